//! The link with Sedna's own manager, by a stand-in that writes and reads what that one does, over real sockets.

mod manager;

use std::{sync::Arc, time::Duration};

use manager::{Connection, SednaGm};
use serde_json::{Value, json};
use skerry_edge::{
    Epoch, Object, ObjectKey, Position, ReportPayload,
    link::Signals,
    node::{Batch, State},
    transport::client::TcpDialer,
};
use tempfile::TempDir;
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::store::{NewReport, OutboxLimits};

/// Longer than anything here takes, so that a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(60);

const NODE: &str = "edge-1";

/// A node whose link runs, if it does.
struct Node {
    store: Store,
    metrics: Arc<Metrics>,
    signals: Signals,
    link: Option<JoinHandle<Result<(), StoreError>>>,
    _directory: TempDir,
}

impl Node {
    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let store = Store::open(&directory.path().join("store.db"), OutboxLimits::default()).await;
        let store = store.unwrap();
        let signals = Signals {
            outbox: store.outbox_grew(),
            ..Signals::new(CancellationToken::new())
        };
        Self {
            store,
            metrics: Arc::default(),
            signals,
            link: None,
            _directory: directory,
        }
    }

    fn dial(&mut self, manager: &SednaGm) {
        let dialer = TcpDialer::new(manager.address());
        let (store, metrics) = (self.store.clone(), self.metrics.clone());
        let link = run(NODE.to_owned(), dialer, store, metrics, self.signals.clone());
        self.link = Some(tokio::spawn(link));
    }

    /// Waits until something has changed in the store.
    async fn changed(&self) -> Vec<ObjectKey> {
        let changed = timeout(PATIENCE, self.store.changes().next()).await;
        changed.expect("nothing has changed").into_iter().collect()
    }

    async fn report(&self, key: &ObjectKey, message: &Value) {
        let payload = ReportPayload::of_worker(&key.kind, message);
        let (key, worker) = (key.clone(), Some("w".to_owned()));
        let report = NewReport { key, worker, payload };
        self.store.push(report).await.unwrap();
    }

    async fn round(&self, round: u64) {
        self.report(&job(), &message(round)).await;
    }

    fn refused(&self, word: &'static str) -> u64 {
        self.metrics.messages_refused.get_or_create(&Outcome::new(word)).get()
    }

    fn settled(&self, word: &'static str) -> u64 {
        self.metrics.reports_settled.get_or_create(&Outcome::new(word)).get()
    }
}

/// A node that is connected with a manager.
async fn connected() -> (Node, SednaGm, Connection) {
    let (mut node, manager) = (Node::new().await, SednaGm::listen().await);
    node.dial(&manager);
    let connection = manager.accept().await;
    (node, manager, connection)
}

fn key(kind: &str, name: &str) -> ObjectKey {
    ObjectKey::new(kind, "default", name)
}

fn dataset() -> ObjectKey {
    key("dataset", "d")
}

fn job() -> ObjectKey {
    key("federatedlearningjob", "job")
}

fn spec(kind: &str, spec: &Value) -> Value {
    json!({"kind": kind, "metadata": {"name": "x", "uid": "u", "generation": 1}, "spec": spec, "status": {}})
}

fn message(round: u64) -> Value {
    json!({
        "name": "w", "namespace": "default", "ownerName": "job", "ownerKind": "federatedlearningjob",
        "kind": "train", "status": "running", "ownerInfo": {"currentRound": round}, "results": [],
    })
}

/// The round that a status tells.
fn told(status: &Value) -> u64 {
    status["output"]["ownerInfo"]["currentRound"].as_u64().unwrap()
}

#[tokio::test]
async fn it_holds_what_it_is_told() {
    let (node, _manager, mut connection) = connected().await;
    assert_eq!((connection.node.as_str(), connection.path.as_str()), (NODE, "/"));
    let mut content = spec("Dataset", &json!({"url": "s3://b/d", "credentialName": "s3"}));
    content["metadata"]["annotations"] = json!({"sedna.io/credential": r#"{"ACCESS_KEY_ID":"hidden"}"#});
    connection.tell("insert", &dataset(), &content).await;
    assert_eq!(node.changed().await, [dataset()]);
    let object = node.store.object(&dataset()).await.unwrap().unwrap();
    assert_eq!(object.body.value().unwrap()["spec"]["url"], "s3://b/d");
    assert!(!object.body.json().contains("hidden"));
    let credential = node.store.credential(&dataset(), "s3").await.unwrap().unwrap();
    assert_eq!(credential.fields["ACCESS_KEY_ID"], "hidden");

    // As it repeats itself every minute: what has not changed is not stored again.
    connection.tell("insert", &dataset(), &content).await;
    let service = key("jointinferenceservice", "s");
    connection
        .tell(
            "update",
            &service,
            &spec("JointInferenceService", &json!({"edgeWorker": {}})),
        )
        .await;
    assert_eq!(node.changed().await, std::slice::from_ref(&service));
    assert_eq!(node.metrics.changes_stored.get(), 3);
    connection.tell("delete", &dataset(), &content).await;
    assert_eq!(node.changed().await, [dataset()]);
    assert_eq!(node.store.object(&dataset()).await.unwrap(), None);
    assert_eq!(node.store.credential(&dataset(), "s3").await.unwrap(), None);
    assert!(node.store.object(&service).await.unwrap().is_some());
}

#[tokio::test]
async fn what_was_stored_is_compared_by_the_next_manager_of_ours() {
    let (mut node, manager) = (Node::new().await, SednaGm::listen().await);
    let epoch = Epoch {
        lease: "lease".to_owned(),
        transitions: 0,
        made: None,
    };
    let position = Position::start("cluster", epoch);
    let batch = Batch {
        changes: Vec::new(),
        position: position.clone(),
    };
    node.store.apply(batch).await.unwrap();
    node.dial(&manager);
    let mut connection = manager.accept().await;
    assert_eq!(node.store.position().await.unwrap(), Some(position));
    connection
        .tell("insert", &job(), &spec("FederatedLearningJob", &json!({})))
        .await;
    node.changed().await;
    assert_eq!(node.store.position().await.unwrap(), None);
}

#[tokio::test]
async fn reports_are_statuses_whether_their_resource_was_told_or_not() {
    let (node, _manager, mut connection) = connected().await;
    // Sedna's manager has told it to whoever was there before, and does not tell it again.
    node.round(4).await;
    let status = connection.status().await;
    assert_eq!(status.key, job());
    assert_eq!(
        status.content,
        json!({"phase": "train", "status": "running", "output": {"models": null, "ownerInfo": {"currentRound": 4}}})
    );
    connection
        .tell("insert", &dataset(), &spec("Dataset", &json!({"url": "/d"})))
        .await;
    node.changed().await;
    for (payload, said) in [
        (
            ReportPayload::DatasetFailed {
                reason: "gone".to_owned(),
            },
            None,
        ),
        (
            ReportPayload::DatasetSamples { count: 3 },
            Some(json!({"numberOfSamples": 3})),
        ),
    ] {
        let (key, worker) = (dataset(), None);
        let report = NewReport { key, worker, payload };
        node.store.push(report).await.unwrap();
        if let Some(said) = said {
            let status = connection.status().await;
            assert_eq!((status.key, status.content), (dataset(), said));
        }
    }
}

#[tokio::test]
async fn what_the_manager_has_read_is_done_with_and_the_rest_goes_again() {
    let (node, manager, mut connection) = connected().await;
    connection
        .tell("insert", &job(), &spec("FederatedLearningJob", &json!({})))
        .await;
    node.changed().await;
    node.round(1).await;
    assert_eq!(told(&connection.status().await.content), 1);
    // It reads on, so it answers what comes behind.
    connection.read_ping().await;
    node.round(2).await;
    assert_eq!(told(&connection.status().await.content), 2);
    drop(connection);
    node.round(3).await;
    let mut connection = manager.accept().await;
    let again = [connection.status().await, connection.status().await];
    assert_eq!(again.map(|status| told(&status.content)), [2, 3], "1 was read");
    assert!(
        node.store.object(&job()).await.unwrap().is_some(),
        "it goes on by itself"
    );
    connection.read_ping().await;
    // What is told behind the answer is stored after it.
    connection
        .tell("delete", &job(), &spec("FederatedLearningJob", &json!({})))
        .await;
    node.changed().await;
    assert_eq!(node.settled("read"), 3);
    assert_eq!(node.store.fetch_homeless_too(0, 9).await.unwrap(), []);
}

#[tokio::test]
async fn what_is_on_its_way_when_its_resource_is_told_is_said_once() {
    let (node, _manager, mut connection) = connected().await;
    node.round(1).await;
    assert_eq!(told(&connection.status().await.content), 1);
    connection
        .tell("insert", &job(), &spec("FederatedLearningJob", &json!({})))
        .await;
    node.changed().await;
    node.round(2).await;
    assert_eq!(told(&connection.status().await.content), 2);
}

#[tokio::test]
async fn what_was_said_of_a_resource_of_before_is_not_told_of_its_successor() {
    let (mut node, manager) = (Node::new().await, SednaGm::listen().await);
    let object = Object {
        key: job(),
        uid: "u-before".to_owned(),
        generation: 1,
        body: json!({}).into(),
    };
    node.store.apply_uncounted(vec![Change::Put(object)]).await.unwrap();
    node.changed().await;
    node.dial(&manager);
    let mut connection = manager.accept().await;
    node.round(1).await;
    assert_eq!(told(&connection.status().await.content), 1);
    connection
        .tell("insert", &job(), &spec("FederatedLearningJob", &json!({})))
        .await;
    node.changed().await;
    drop(connection);
    let mut connection = manager.accept().await;
    node.round(2).await;
    assert_eq!(told(&connection.status().await.content), 2, "1 is of another");
    assert_eq!(node.settled("outdated"), 1);
}

#[tokio::test]
async fn a_bad_message_costs_no_other_one() {
    let (node, manager, mut connection) = connected().await;
    let good = spec("Dataset", &json!({"url": "/d"}));
    let huge = spec("Dataset", &json!({"url": "x".repeat(3 * 1024 * 1024)}));
    connection.tell("insert", &key("pod", "p"), &good).await;
    connection.tell("insert", &key("dataset", "D"), &good).await;
    connection.tell("insert", &dataset(), &huge).await;
    connection.tell("insert", &dataset(), &json!(null)).await;
    connection.tell("patch", &dataset(), &good).await;
    for text in ["", "null", "{", "[1]", r#"{"header":null,"content":null}"#] {
        connection.say(text).await;
    }
    connection.say_bytes(vec![0xff, 0xfe]).await;
    connection.tell("insert", &dataset(), &good).await;
    assert_eq!(node.changed().await, [dataset()]);
    let object = node.store.object(&dataset()).await.unwrap().unwrap();
    assert_eq!(object.body.value().unwrap()["spec"]["url"], "/d");
    assert_eq!(["kind", "no_name", "form"].map(|word| node.refused(word)), [1, 1, 9]);

    // What no resource can make is not read to its end, and no connection goes on after that.
    connection.say_if_read(&"x".repeat(client::LONGEST + 1)).await;
    let mut connection = manager.accept().await;
    assert_eq!(node.refused("form"), 10);
    connection.tell("delete", &dataset(), &good).await;
    node.changed().await;
    assert_eq!(node.metrics.sessions.get(), 2);
}

#[tokio::test]
async fn a_manager_that_is_not_there_or_is_none_is_dialled_again() {
    let (mut node, manager) = (Node::new().await, SednaGm::listen().await);
    let mut state = node.signals.state.subscribe();
    node.dial(&manager);
    for _ in 0..2 {
        manager
            .accept_and_answer("HTTP/1.1 503 Service Unavailable\r\n\r\n")
            .await;
        let waits = state.wait_for(|state| matches!(state, State::Waiting { cause: Some(_), .. }));
        let waiting = timeout(PATIENCE, waits).await.unwrap().unwrap().clone();
        assert!(format!("{waiting:?}").contains("Sedna's protocol"), "{waiting:?}");
    }
    let mut connection = manager.accept().await;
    connection
        .tell("insert", &dataset(), &spec("Dataset", &json!({"url": "/d"})))
        .await;
    node.changed().await;
    assert_eq!(*state.borrow_and_update(), State::Live);
    node.signals.stop.cancel();
    connection.closed().await;
    node.link.take().unwrap().await.unwrap().unwrap();
}

/// On paused time, which passes while nothing happens: also while the store's thread works, so nothing here is quick.
#[tokio::test(start_paused = true)]
async fn a_manager_that_falls_silent_is_dialled_again_later_if_it_has_reports_to_read() {
    for (reports, least, most) in [(0, limits::IDLE, 2 * limits::IDLE), (3, BUSY, 2 * BUSY)] {
        let mut node = Node::new().await;
        for round in 0..reports {
            node.round(round + 1).await;
        }
        let (dialer, mut dialled) = manager::silent();
        let (store, metrics) = (node.store.clone(), node.metrics.clone());
        let link = run(NODE.to_owned(), dialer, store, metrics, node.signals.clone());
        node.link = Some(tokio::spawn(link));
        let first = dialled.recv().await.unwrap();
        let second = dialled.recv().await.unwrap();
        let silent = second - first;
        assert!(silent >= least && silent < most, "{reports} reports: {silent:?}");
        node.signals.stop.cancel();
    }
}

#[tokio::test]
async fn a_full_disk_holds_the_manager_up_and_loses_nothing() {
    let (node, _manager, mut connection) = connected().await;
    let content = |url: &str| spec("Dataset", &json!({"url": url.repeat(100_000)}));
    node.store.fill_disk().await;
    connection.tell("insert", &dataset(), &content("a")).await;
    connection.tell("insert", &key("dataset", "e"), &content("b")).await;
    let failures = node
        .metrics
        .store_failures
        .get_or_create(&Outcome::new("disk-full"))
        .clone();
    while failures.get() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(node.store.rows().await.unwrap(), []);
    node.store.empty_disk().await;
    // The link waits for nothing but the end of its pause.
    tokio::time::pause();
    assert_eq!(
        node.store.changes().next().await.into_iter().collect::<Vec<_>>(),
        [dataset()]
    );
    tokio::time::resume();
    assert_eq!(node.changed().await, [key("dataset", "e")]);
}
