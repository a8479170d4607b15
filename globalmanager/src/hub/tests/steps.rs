//! Single steps over loopback.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;
use skerry_edge::{
    Credential, Epoch, Item, ItemKey, Object, ObjectKey, ReportResult,
    cloud::Server,
    limits,
    link::{self, Signals},
    node::State,
    transport::client::TcpDialer,
};
use tokio::{net::TcpListener, task::JoinHandle, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    super::{Answers, Hub, Part, Reported, Reports},
    node::{Disk, MemoryStore, session},
};
use crate::engine::Taken;

/// Longer than anything here takes, so that a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("dataset", "default", name)
}

fn part(name: &str, edit: i64) -> Part {
    let object = Object {
        key: key(name),
        uid: format!("uid-{name}"),
        generation: edit,
        body: json!({"e": edit}).into(),
    };
    Part {
        object,
        credentials: Vec::new(),
    }
}

fn on(nodes: &[&str], name: &str, edit: i64) -> BTreeMap<String, Part> {
    nodes
        .iter()
        .map(|node| ((*node).to_owned(), part(name, edit)))
        .collect()
}

fn server(transitions: u64) -> Server {
    Server {
        cluster: "c".to_owned(),
        epoch: Epoch {
            lease: "l".to_owned(),
            transitions,
            made: None,
        },
    }
}

/// Answers reports by what their resource is called.
#[derive(Default)]
struct ByName {
    taken: Mutex<Vec<(String, u64)>>,
}

#[async_trait]
impl Reports for ByName {
    async fn take(&self, key: &ObjectKey, reports: &[Reported]) -> Answers {
        let mut taken = self.taken.lock();
        let each = reports.iter().map(|Reported { node, report, .. }| {
            let again = taken.iter().any(|(_, seq)| *seq == report.seq);
            taken.push((node.to_string(), report.seq));
            match key.name.as_str() {
                "refused" => Taken::Refused("no".to_owned()),
                "later" if !again => Taken::Later("not now".to_owned()),
                _ => Taken::Accepted,
            }
        });
        Answers {
            each: each.collect(),
            asked: true,
        }
    }
}

/// A hub on a socket.
struct World {
    hub: Hub,
    address: String,
    reports: Arc<ByName>,
    _stop: DropGuard,
}

/// A node that runs until it is dropped.
struct Edge {
    disk: Arc<Mutex<Disk>>,
    signals: Signals,
    running: JoinHandle<()>,
    _stop: DropGuard,
}

impl World {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (hub, stop) = (Hub::default(), CancellationToken::new());
        let reports = Arc::<ByName>::default();
        hub.lead(server(0), reports.clone());
        let (serving, stopped) = (hub.clone(), stop.clone());
        tokio::spawn(async move { serving.serve(listener, stopped).await });
        Self {
            hub,
            address,
            reports,
            _stop: stop.drop_guard(),
        }
    }

    fn edge(&self, name: &str, disk: &Arc<Mutex<Disk>>) -> Edge {
        let stop = CancellationToken::new();
        let signals = Signals::new(stop.clone());
        let store = Arc::new(MemoryStore::new(disk.clone(), || Duration::ZERO));
        let session = session(name, rand::random(), &mut disk.lock());
        let dialer = TcpDialer::new(self.address.clone());
        let running = tokio::spawn(link::run(session, dialer, store, signals.clone(), || 0.0));
        Edge {
            disk: disk.clone(),
            signals,
            running,
            _stop: stop.drop_guard(),
        }
    }

    fn list(&self, names: &[&str]) {
        self.hub
            .kind_listed("dataset", names.iter().map(|name| key(name)).collect::<BTreeSet<_>>());
    }

    /// Waits until nothing is owed to any node.
    async fn settled(&self) {
        eventually("nothing is owed", || {
            let nodes = self.hub.nodes();
            nodes.iter().all(|node| node.connected.is_none() || node.unacked == 0)
        })
        .await;
    }
}

impl Edge {
    async fn live(&self) {
        let mut state = self.signals.state.subscribe();
        timeout(PATIENCE, state.wait_for(|state| *state == State::Live))
            .await
            .expect("it comes up")
            .unwrap();
    }

    async fn stop(self) {
        self.signals.stop.cancel();
        self.running.await.unwrap();
    }

    async fn holds(&self, wanted: &[(&str, i64)]) {
        let wanted: BTreeMap<_, _> = wanted
            .iter()
            .map(|(name, edit)| (ItemKey::from(key(name)), Item::Object(part(name, *edit).object)))
            .collect();
        eventually("the node holds what it should", || self.disk.lock().items == wanted).await;
    }
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "not in time: {what}");
}

fn holding(names: &[&str]) -> Arc<Mutex<Disk>> {
    let mut disk = Disk::default();
    for name in names {
        disk.items.insert(key(name).into(), Item::Object(part(name, 1).object));
    }
    Arc::new(Mutex::new(disk))
}

#[tokio::test]
async fn objects_follow_their_owners_over_nodes() {
    let world = World::new().await;
    let [a, b] = ["a", "b"].map(|name| world.edge(name, &Arc::default()));
    world.hub.set(&key("d"), on(&["a"], "d", 1));
    a.holds(&[("d", 1)]).await;
    world.hub.set(&key("d"), on(&["a", "b"], "d", 2));
    a.holds(&[("d", 2)]).await;
    b.holds(&[("d", 2)]).await;
    world.hub.set(&key("d"), on(&["b"], "d", 3));
    a.holds(&[]).await;
    b.holds(&[("d", 3)]).await;
    world.list(&["d"]);
    world.hub.owner_gone(&key("d"));
    b.holds(&[]).await;
    world.settled().await;
    assert_eq!(world.hub.snapshot().assigned, 0);
}

#[tokio::test]
async fn what_a_node_holds_in_excess_goes_when_its_owner_is_known_to_be_gone_and_not_before() {
    let world = World::new().await;
    let a = world.edge("a", &holding(&["planned", "unplanned", "moved", "gone", "deleted"]));
    a.live().await;
    let strays = || world.hub.nodes().first().map_or(0, |node| node.strays);
    eventually("the digest is done", || strays() == 5).await;

    world.hub.set(&key("planned"), on(&["a"], "planned", 1));
    world.hub.set(&key("moved"), on(&["b"], "moved", 1));
    world.hub.owner_gone(&key("deleted"));
    a.holds(&[("planned", 1), ("unplanned", 1), ("gone", 1), ("deleted", 1)])
        .await;
    world.list(&["planned", "moved", "unplanned", "deleted"]);
    a.holds(&[("planned", 1), ("unplanned", 1), ("deleted", 1)]).await;
    world.hub.owner_gone(&key("deleted"));
    a.holds(&[("planned", 1), ("unplanned", 1)]).await;
    assert_eq!(strays(), 1, "its owner exists, and where it belongs is not known");
    assert_eq!(a.disk.lock().puts, 0, "nothing was sent that was there");

    a.stop().await;
    world.hub.set(&key("unplanned"), on(&["a"], "unplanned", 2));
    let a = world.edge("a", &holding(&["planned", "unplanned", "another"]));
    a.holds(&[("planned", 1), ("unplanned", 2)]).await;
}

#[tokio::test]
async fn a_kind_that_is_not_known_any_more_keeps_what_nodes_hold() {
    let world = World::new().await;
    world.list(&[]);
    world.hub.kind_unknown("dataset");
    let a = world.edge("a", &holding(&["d"]));
    a.live().await;
    eventually("the digest is done", || {
        world.hub.nodes().first().is_some_and(|node| node.strays == 1)
    })
    .await;
    world.list(&[]);
    a.holds(&[]).await;
}

#[tokio::test]
async fn another_term_finds_out_what_nodes_hold_and_sends_none_of_it_again() {
    let world = World::new().await;
    let a = world.edge("a", &Arc::default());
    for i in 0..100 {
        world.hub.set(&key(&format!("d{i}")), on(&["a"], &format!("d{i}"), 1));
    }
    a.live().await;
    world.settled().await;
    assert_eq!(a.disk.lock().puts, 100);

    world.hub.stand_down();
    eventually("it is sent away", || world.hub.snapshot().sessions == 0).await;
    world.hub.lead(server(1), world.reports.clone());
    let left: Vec<_> = (0..100).filter(|i| *i != 8).map(|i| format!("d{i}")).collect();
    for name in &left {
        let edit = if name == "d7" { 2 } else { 1 };
        world.hub.set(&key(name), on(&["a"], name, edit));
    }
    world.list(&left.iter().map(String::as_str).collect::<Vec<_>>());
    eventually("it is back", || {
        a.disk
            .lock()
            .position
            .as_ref()
            .is_some_and(|position| position.epoch == server(1).epoch)
    })
    .await;
    world.settled().await;
    let disk = a.disk.lock();
    assert_eq!((disk.puts, disk.items.len()), (101, 99));
}

#[tokio::test]
async fn nodes_come_back_at_once_where_one_term_follows_the_other() {
    let world = World::new().await;
    let nodes: Vec<_> = (0..20)
        .map(|i| (format!("n{i}"), world.edge(&format!("n{i}"), &Arc::default())))
        .collect();
    for (_, node) in &nodes {
        node.live().await;
    }
    // As where its Lease was deleted: the manager makes another one and goes on.
    world.hub.lead(server(1), world.reports.clone());
    for (name, node) in &nodes {
        world.hub.set(&key("d"), on(&[name], "d", 1));
        node.holds(&[("d", 1)]).await;
    }
    assert_eq!(world.hub.snapshot().ended, [("restarting", 20)].into());
}

#[tokio::test]
async fn a_term_knows_nothing_of_the_one_before() {
    let world = World::new().await;
    world.list(&["kept"]);
    world.hub.set(&key("kept"), on(&["a"], "kept", 1));
    world.hub.stand_down();
    // Another manager has had its turn: it edited one object, and placed another.
    let disk = holding(&["another"]);
    let edited = Item::Object(part("kept", 2).object);
    disk.lock().items.insert(key("kept").into(), edited);
    world.hub.lead(server(1), world.reports.clone());
    let a = world.edge("a", &disk);
    a.live().await;
    eventually("the digest is done", || {
        world.hub.nodes().first().is_some_and(|node| node.strays == 2)
    })
    .await;
    world.hub.owner_gone(&key("another"));
    a.holds(&[("another", 1), ("kept", 2)]).await;
    world.list(&["kept"]);
    a.holds(&[("kept", 2)]).await;
    assert_eq!(a.disk.lock().puts, 0, "what the term before said is not said again");
}

#[tokio::test]
async fn a_manager_of_before_is_not_heard() {
    let world = World::new().await;
    let a = world.edge("a", &Arc::default());
    world.hub.set(&key("d"), on(&["a"], "d", 1));
    a.holds(&[("d", 1)]).await;
    a.disk.lock().position.as_mut().unwrap().epoch.transitions = 9;
    let disk = a.disk.clone();
    a.stop().await;
    world.hub.set(&key("d"), on(&["a"], "d", 2));
    let a = world.edge("a", &disk);
    let mut state = a.signals.state.subscribe();
    let refused =
        |state: &State| matches!(state, State::Waiting { cause: Some(cause), .. } if cause.contains("deposed"));
    timeout(PATIENCE, state.wait_for(refused))
        .await
        .expect("it is refused")
        .unwrap();
    a.holds(&[("d", 1)]).await;
    assert_eq!(world.hub.snapshot().refused, [("deposed", 1)].into());
}

#[tokio::test]
async fn the_newer_session_of_a_node_ends_the_older() {
    let world = World::new().await;
    let first = world.edge("a", &Arc::default());
    first.live().await;
    let second = world.edge("a", &Arc::default());
    second.live().await;
    let mut state = first.signals.state.subscribe();
    let replaced =
        |state: &State| matches!(state, State::Waiting { cause: Some(cause), .. } if cause.contains("taken over"));
    timeout(PATIENCE, state.wait_for(replaced))
        .await
        .expect("it is told")
        .unwrap();
    world.hub.set(&key("d"), on(&["a"], "d", 1));
    second.holds(&[("d", 1)]).await;
    assert!(first.disk.lock().items.is_empty());
}

#[tokio::test]
async fn reports_are_answered_each_in_its_way() {
    let world = World::new().await;
    let a = world.edge("a", &Arc::default());
    for name in ["accepted", "refused", "later"] {
        world.hub.set(&key(name), on(&["a"], name, 1));
    }
    a.holds(&[("accepted", 1), ("refused", 1), ("later", 1)]).await;
    for name in ["accepted", "refused", "later"] {
        assert!(a.disk.lock().report(&key(name), 1));
    }
    a.signals.outbox.notify_one();
    eventually("all are answered", || a.disk.lock().outbox.is_empty()).await;
    let settled: Vec<_> = a
        .disk
        .lock()
        .settled
        .values()
        .map(|(_, result)| result.clone())
        .collect();
    let accepted = || ReportResult::Accepted {};
    assert_eq!(
        settled,
        [
            accepted(),
            ReportResult::Refused {
                reason: "no".to_owned()
            },
            accepted()
        ]
    );
    let snapshot = world.hub.snapshot();
    let counts = (
        snapshot.reports_accepted,
        snapshot.reports_refused,
        snapshot.reports_put_off,
    );
    assert_eq!(counts, (2, 1, 1));
    assert_eq!(world.reports.taken.lock().len(), 4);
}

#[tokio::test]
async fn a_node_that_reports_on_what_it_does_not_hold_is_told_counted_and_kept_on() {
    let world = World::new().await;
    let (a, b) = (world.edge("a", &Arc::default()), world.edge("b", &Arc::default()));
    world.hub.set(&key("mine"), on(&["a"], "mine", 1));
    world.hub.set(&key("others"), on(&["b"], "others", 1));
    a.holds(&[("mine", 1)]).await;
    b.holds(&[("others", 1)]).await;
    {
        let mut disk = a.disk.lock();
        disk.invent(&key("others"), "uid-others");
        disk.invent(&key("mine"), "uid-before");
        disk.invent(&key("../mine"), "uid-mine");
        assert!(disk.report(&key("mine"), 1));
    }
    a.signals.outbox.notify_one();
    eventually("all are answered", || a.disk.lock().outbox.is_empty()).await;
    let refused = |result: &ReportResult| matches!(result, ReportResult::Refused { .. });
    let settled: Vec<_> = a
        .disk
        .lock()
        .settled
        .values()
        .map(|(_, result)| refused(result))
        .collect();
    assert_eq!(settled, [true, true, true, false]);
    let snapshot = world.hub.snapshot();
    assert_eq!(
        snapshot.reports_denied,
        [("no_name", 1), ("not_placed", 1), ("other_uid", 1)].into()
    );
    assert_eq!((snapshot.reports_accepted, snapshot.reports_refused), (1, 0));
    assert_eq!(
        world.reports.taken.lock().len(),
        1,
        "the engine hears of the last one only"
    );
    assert_eq!(
        (snapshot.connections, snapshot.ended),
        (2, BTreeMap::new()),
        "the sessions go on"
    );
}

#[tokio::test]
async fn credentials_reach_a_node_over_loopback() {
    let world = World::new().await;
    let a = world.edge("a", &Arc::default());
    let fields = [("ACCESS_KEY_ID".to_owned(), "id".to_owned())].into();
    let credential = Credential {
        owner: key("d"),
        uid: "uid-d".to_owned(),
        secret: "s3".to_owned(),
        fields,
    };
    let with = Part {
        credentials: vec![credential.clone()],
        ..part("d", 1)
    };
    world.hub.set(&key("d"), [("a".to_owned(), with)].into());
    eventually("both are there", || a.disk.lock().items.len() == 2).await;
    assert_eq!(
        a.disk.lock().items.get(&credential.key()),
        Some(&Item::Credential(credential))
    );
    world.hub.set(&key("d"), on(&["a"], "d", 1));
    a.holds(&[("d", 1)]).await;
}

#[tokio::test]
async fn nothing_is_kept_of_nodes_that_come_and_go() {
    let world = World::new().await;
    for i in 0..20 {
        let edge = world.edge(&format!("invented-{i}"), &Arc::default());
        edge.live().await;
        edge.stop().await;
    }
    let none = || world.hub.nodes().is_empty() && world.hub.snapshot().sessions == 0;
    eventually("all are forgotten", none).await;
    world.hub.set(&key("d"), on(&["a"], "d", 1));
    assert_eq!(world.hub.nodes().len(), 1, "it should hold something");
    world.list(&["d"]);
    world.hub.owner_gone(&key("d"));
    assert!(world.hub.nodes().is_empty());
}

#[tokio::test]
async fn an_object_that_is_too_large_leaves_its_node_with_the_last_one() {
    let world = World::new().await;
    let a = world.edge("a", &Arc::default());
    world.hub.set(&key("d"), on(&["a"], "d", 1));
    let mut large = part("d", 2);
    large.object.body = json!("x".repeat(limits::MAX_BODY)).into();
    world.hub.set(&key("d"), [("a".to_owned(), large)].into());
    a.holds(&[("d", 1)]).await;
    assert_eq!(world.hub.snapshot().oversize, 1);
    let mut most = part("d", 3);
    most.object.body = json!("\"".repeat(limits::MAX_BODY / 2 - 10)).into();
    world.hub.set(&key("d"), [("a".to_owned(), most.clone())].into());
    eventually("the largest arrives", || {
        a.disk.lock().items.get(&key("d").into()) == Some(&Item::Object(most.object.clone()))
    })
    .await;
}

#[tokio::test]
async fn a_secret_that_no_message_has_room_for_keeps_nothing_else_from_its_node() {
    let world = World::new().await;
    let a = world.edge("a", &Arc::default());
    a.live().await;
    for (number, value) in ["\u{1}".repeat(400 << 10), "\"".repeat(1 << 20)]
        .into_iter()
        .enumerate()
    {
        let secret = Credential {
            owner: key("d"),
            uid: "uid-d".to_owned(),
            secret: "s3".to_owned(),
            fields: [("ACCESS_KEY_ID".to_owned(), value)].into(),
        };
        let with = Part {
            credentials: vec![secret],
            ..part("d", 1)
        };
        world.hub.set(&key("d"), [("a".to_owned(), with)].into());
        assert_eq!(world.hub.snapshot().oversize, number as u64 + 1);
    }
    world.hub.set(&key("e"), on(&["a"], "e", 1));
    a.holds(&[("e", 1)]).await;
    assert_eq!(world.hub.snapshot().ended, BTreeMap::new(), "the session goes on");
}

#[tokio::test]
async fn a_shut_down_waits_until_every_node_is_told() {
    let world = World::new().await;
    let nodes: Vec<_> = (0..5).map(|i| world.edge(&format!("n{i}"), &Arc::default())).collect();
    for node in &nodes {
        node.live().await;
    }
    timeout(PATIENCE, world.hub.shut_down()).await.expect("it ends");
    for node in &nodes {
        let later =
            |state: &State| matches!(state, State::Waiting { cause: Some(cause), .. } if cause.contains("later"));
        let mut state = node.signals.state.subscribe();
        timeout(PATIENCE, state.wait_for(later))
            .await
            .expect("it is told")
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_objects_with_five_quick_edits_each_arrive_in_their_last_form() {
    const OBJECTS: usize = 20_000;
    let world = World::new().await;
    let a = world.edge("a", &Arc::default());
    a.live().await;
    for edit in 1..=5 {
        for i in 0..OBJECTS {
            let name = format!("d{i}");
            world.hub.set(&key(&name), on(&["a"], &name, edit));
        }
    }
    world.settled().await;
    let disk = a.disk.lock();
    assert_eq!(disk.items.len(), OBJECTS);
    for item in disk.items.values() {
        let Item::Object(object) = item else { panic!("{item:?}") };
        assert_eq!(object.generation, 5, "{}", object.key);
    }
    assert!(disk.puts <= 5 * OBJECTS);
}
