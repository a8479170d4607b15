use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PropagationPolicy;

use super::graph::{FOREGROUND, Graph, Item, KindKey, ORPHAN};
use super::judge::{Owner, Verdict, judge};

fn item(uid: &str, owners: &[&str]) -> Item {
    Item {
        kind: KindKey {
            group: "apps".to_owned(),
            kind: "Thing".to_owned(),
        },
        id: ("default".to_owned(), uid.to_owned()),
        uid: uid.to_owned(),
        owners: owners.iter().map(|owner| reference(owner, true)).collect(),
        deleting: false,
        finalizers: vec![],
    }
}

fn reference(uid: &str, blocks: bool) -> OwnerReference {
    OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "Thing".to_owned(),
        name: uid.to_owned(),
        uid: uid.to_owned(),
        controller: None,
        block_owner_deletion: Some(blocks),
    }
}

fn deleting(item: Item, finalizer: &str) -> Item {
    Item {
        deleting: true,
        finalizers: vec![finalizer.to_owned()],
        ..item
    }
}

fn uids(uids: &[&str]) -> BTreeSet<String> {
    uids.iter().map(|uid| (*uid).to_owned()).collect()
}

#[test]
fn what_becomes_of_an_object() {
    use Owner::{Absent, Solid, Waiting};
    use PropagationPolicy::{Background, Foreground, Orphan};
    let child = item("child", &["a", "b"]);
    let grandchild = item("grandchild", &["child"]);
    let leaving = deleting(item("grandchild", &["child"]), FOREGROUND);
    let kept = Item {
        finalizers: vec![ORPHAN.to_owned()],
        ..child.clone()
    };
    for (name, item, owners, dependents, expected) in [
        ("no owners", item("alone", &[]), vec![], vec![], Verdict::Keep),
        ("both stay", child.clone(), vec![Solid, Solid], vec![], Verdict::Keep),
        (
            "one is gone",
            child.clone(),
            vec![Absent, Solid],
            vec![],
            Verdict::Strip(vec!["a".to_owned()]),
        ),
        (
            "one is leaving",
            child.clone(),
            vec![Solid, Waiting],
            vec![],
            Verdict::Strip(vec!["b".to_owned()]),
        ),
        (
            "both are gone",
            child.clone(),
            vec![Absent, Absent],
            vec![],
            Verdict::Delete(Background),
        ),
        (
            "leaving, no dependents",
            child.clone(),
            vec![Waiting, Absent],
            vec![],
            Verdict::Delete(Background),
        ),
        (
            "leaving, dependents",
            child.clone(),
            vec![Waiting, Absent],
            vec![&grandchild],
            Verdict::Delete(Foreground),
        ),
        (
            "a circle",
            child.clone(),
            vec![Waiting, Absent],
            vec![&leaving],
            Verdict::UnblockAndDelete,
        ),
        (
            "asks for orphans",
            kept,
            vec![Absent, Absent],
            vec![],
            Verdict::Delete(Orphan),
        ),
        (
            "deleted already",
            Item {
                deleting: true,
                ..child.clone()
            },
            vec![],
            vec![&grandchild],
            Verdict::Keep,
        ),
        (
            "waits for dependents",
            deleting(child.clone(), FOREGROUND),
            vec![],
            vec![&grandchild],
            Verdict::Keep,
        ),
        (
            "waited long enough",
            deleting(child.clone(), FOREGROUND),
            vec![],
            vec![],
            Verdict::RemoveFinalizer(FOREGROUND),
        ),
        (
            "sets free",
            deleting(child.clone(), ORPHAN),
            vec![],
            vec![&grandchild],
            Verdict::SetFree(vec!["grandchild".to_owned()]),
        ),
    ] {
        assert_eq!(judge(&item, &owners, &dependents), expected, "{name}");
    }
}

#[test]
fn a_dependent_that_does_not_block_does_not_hold_its_owner() {
    let owner = deleting(item("owner", &[]), FOREGROUND);
    let mut child = item("child", &[]);
    child.owners = vec![reference("owner", false)];
    assert_eq!(judge(&owner, &[], &[&child]), Verdict::RemoveFinalizer(FOREGROUND));
}

#[test]
fn changes_ask_for_looks_at_what_they_concern() {
    let mut graph = Graph::default();
    assert_eq!(graph.observe(item("owner", &[])), uids(&[]));
    assert_eq!(graph.observe(item("child", &["owner"])), uids(&["child"]));
    assert_eq!(graph.observe(item("child", &["owner"])), uids(&[]), "nothing changed");
    assert_eq!(
        graph.observe(deleting(item("owner", &[]), FOREGROUND)),
        uids(&["owner", "child"])
    );
    assert_eq!(
        graph.observe(deleting(item("owner", &[]), FOREGROUND)),
        uids(&[]),
        "seen before"
    );
    assert_eq!(graph.forget("child"), uids(&["owner"]), "the owner waits for this");
    graph.observe(item("child", &["owner"]));
    assert_eq!(graph.forget("owner"), uids(&["child"]));
    assert_eq!(graph.dependents("owner").count(), 1, "it still names its owner");
    assert_eq!(
        graph.observe(item("child", &[])),
        uids(&["child", "owner"]),
        "the owner may be free to go"
    );
    assert_eq!(graph.dependents("owner").count(), 0);
}

#[test]
fn a_reference_means_an_object_only_if_all_of_it_fits() {
    let owner = item("owner", &[]);
    let fits = |change: fn(&mut OwnerReference), namespace| {
        let mut reference = reference("owner", true);
        change(&mut reference);
        owner.is_meant_by(&reference, namespace)
    };
    assert!(fits(|_| {}, "default"));
    assert!(
        fits(|reference| reference.api_version = "apps/v2".to_owned(), "default"),
        "any version will do"
    );
    assert!(!fits(|_| {}, "other"));
    assert!(!fits(|reference| reference.name = "else".to_owned(), "default"));
    assert!(!fits(|reference| reference.uid = "else".to_owned(), "default"));
    assert!(!fits(|reference| reference.api_version = "v1".to_owned(), "default"));
}
