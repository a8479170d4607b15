//! A node on which as much is placed as one may hold.

use std::collections::BTreeMap;

use serde_json::json;
use skerry_edge::{Credential, Object, ObjectKey, limits};

use super::super::{Hub, Part};

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("dataset", "default", name)
}

/// An object of this name, and so many Secrets of it, on each of these nodes.
fn on(nodes: &[&str], name: &str, edit: i64, secrets: usize) -> BTreeMap<String, Part> {
    let secret = |i| Credential {
        owner: key(name),
        uid: "u".to_owned(),
        secret: format!("s{i}"),
        fields: BTreeMap::new(),
    };
    let part = Part {
        object: Object {
            key: key(name),
            uid: "u".to_owned(),
            generation: edit,
            body: json!({}).into(),
        },
        credentials: (0..secrets).map(secret).collect(),
    };
    nodes.iter().map(|node| ((*node).to_owned(), part.clone())).collect()
}

fn assigned(hub: &Hub, node: &str) -> usize {
    let nodes = hub.nodes();
    nodes
        .iter()
        .find(|known| known.name == node)
        .map_or(0, |known| known.assigned)
}

#[test]
fn nothing_is_placed_on_a_node_beyond_what_one_may_hold() {
    let hub = Hub::default();
    let set = |name: &str, parts| hub.set(&key(name), parts);
    set("many", on(&["a"], "many", 1, limits::MAX_ITEMS - 2));
    set("last", on(&["a"], "last", 1, 0));
    assert_eq!(assigned(&hub, "a"), limits::MAX_ITEMS);
    set("more", on(&["a", "b"], "more", 1, 0));
    assert_eq!(
        (assigned(&hub, "a"), assigned(&hub, "b")),
        (limits::MAX_ITEMS, 1),
        "another node has its part"
    );
    assert_eq!(hub.snapshot().oversize, 1);

    // What is there goes on, may change, and makes room when it goes.
    set("last", on(&["a"], "last", 2, 0));
    set("last", on(&["a"], "last", 3, 1));
    assert_eq!(hub.snapshot().oversize, 2, "one Secret more than there is room for");
    set("last", on(&["b"], "last", 4, 0));
    set("more", on(&["a", "b"], "more", 1, 0));
    assert_eq!((assigned(&hub, "a"), assigned(&hub, "b")), (limits::MAX_ITEMS, 2));
    assert_eq!(hub.snapshot().oversize, 2);
}

#[test]
fn what_is_placed_is_held_until_it_is_something_else_elsewhere_or_more_than_there_is_room_for() {
    let hub = Hub::default();
    let holds = |parts| hub.holds(&key("d"), parts);
    assert!(!holds(on(&[], "d", 1, 0)), "nobody has said where it belongs");
    hub.set(&key("d"), on(&["a", "b"], "d", 1, 1));
    assert!(holds(on(&["a", "b"], "d", 1, 1)));
    for other in [
        on(&["a", "b"], "d", 2, 1),
        on(&["a", "b"], "d", 1, 0),
        on(&["a", "b"], "d", 1, 2),
        on(&["a"], "d", 1, 1),
        on(&["a", "c"], "d", 1, 1),
    ] {
        assert!(!holds(other.clone()), "{other:?}");
    }
    hub.set(&key("d"), on(&[], "d", 1, 0));
    assert!(holds(on(&[], "d", 1, 0)), "it belongs nowhere");
    hub.set(&key("many"), on(&["a"], "many", 1, limits::MAX_ITEMS - 1));
    hub.set(&key("d"), on(&["a"], "d", 1, 0));
    assert!(!holds(on(&["a"], "d", 1, 0)));
}
