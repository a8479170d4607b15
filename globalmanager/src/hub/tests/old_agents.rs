//! Sedna's own local controller, by a stand-in that reads and writes what that one does, against the real engine.

mod busy;
mod pace;
mod rooms;
mod terms;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use skerry_edge::transport::client::Dialer as _;
use tokio::{
    io::DuplexStream,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, Message, client::IntoClientRequest as _},
};
use tokio_util::sync::CancellationToken;

use super::{
    super::OldAgents,
    cluster::{Cluster, NODE, PipeDialer, Running, dataset, job, model, object, pipes, service, settle},
};

/// Longer than anything here takes, so that a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Two messages that come closer than this may be handled at once, and that one has no lock.
const APART: Duration = Duration::from_millis(20);

/// What it holds, by kind, namespace and name.
type Held = BTreeMap<String, Value>;

struct SednaLc {
    wire: WebSocketStream<DuplexStream>,
    held: Held,
    /// Operations and what they were about, over this connection.
    told: Vec<(String, String)>,
    /// What each message carried, as text.
    contents: Vec<String>,
    last: Option<Instant>,
}

impl SednaLc {
    /// Connects as one that holds this from before. An error has the status of the answer.
    async fn dial(dialer: &PipeDialer, node: &str, held: Held) -> Result<Self, u16> {
        let mut request = "ws://gm.sedna:9000/".into_client_request().unwrap();
        request.headers_mut().insert("Node-Name", node.parse().unwrap());
        let io = dialer.dial().await.unwrap();
        let (mut wire, _) = client_async(request, io).await.map_err(|error| match error {
            tungstenite::Error::Http(answer) => answer.status().as_u16(),
            error => panic!("{error}"),
        })?;
        let hello = r#"{"namespace":"","resourceKind":"","resourceName":"","operation":""}"#;
        wire.send(Message::text(format!("{hello}\n"))).await.unwrap();
        Ok(Self {
            wire,
            held,
            told: Vec::new(),
            contents: Vec::new(),
            last: None,
        })
    }

    async fn connect(dialer: &PipeDialer) -> Self {
        Self::dial(dialer, NODE, Held::new()).await.expect("it is let in")
    }

    /// Connects, and has been told of all that is placed on its node.
    async fn up_to_date(dialer: &PipeDialer) -> Self {
        let mut lc = Self::connect(dialer).await;
        lc.until("all is there", |lc| lc.held.len() == 3).await;
        lc
    }

    /// Takes a message as its handler does.
    fn take(&mut self, text: &str) {
        let now = Instant::now();
        assert!(self.last.is_none_or(|last| now >= last + APART), "it would crash");
        self.last = Some(now);
        let message: BTreeMap<String, Value> = serde_json::from_str(text).unwrap();
        let header: BTreeMap<String, String> = serde_json::from_value(message["header"].clone()).unwrap();
        let content = STANDARD.decode(message["content"].as_str().unwrap()).unwrap();
        let object: Value = serde_json::from_slice(&content).unwrap();
        self.contents.push(object.to_string());
        let [kind, namespace, name] = ["resourceKind", "namespace", "resourceName"].map(|field| &header[field]);
        assert_eq!(
            [&object["metadata"]["namespace"], &object["metadata"]["name"]],
            [namespace, name]
        );
        let key = format!("{kind}/{namespace}/{name}");
        match header["operation"].as_str() {
            "insert" => {
                assert!(
                    object.get("apiVersion").is_none() && object["spec"].is_object(),
                    "{object}"
                );
                assert_eq!(object["kind"].as_str().unwrap().to_lowercase(), *kind);
                self.held.insert(key.clone(), object);
            }
            "delete" => drop(self.held.remove(&key)),
            other => panic!("unknown operation: {other}"),
        }
        self.told.push((header["operation"].clone(), key));
    }

    /// Reads until this holds.
    async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let read = async {
            while !holds(self) {
                match self.wire.next().await {
                    Some(Ok(Message::Text(text))) => self.take(&text),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    other => panic!("{other:?}, and not yet: {what}"),
                }
            }
        };
        timeout(PATIENCE, read)
            .await
            .unwrap_or_else(|_| panic!("not in time: {what}"));
    }

    /// Reads until the connection ends.
    async fn ended(&mut self) {
        let read = async {
            loop {
                match self.wire.next().await {
                    Some(Ok(Message::Text(text))) => self.take(&text),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(_) | Err(_)) | None => return,
                }
            }
        };
        timeout(PATIENCE, read).await.expect("it is ended in time");
    }

    /// Reads for a minute.
    async fn settle(&mut self) {
        let end = Instant::now() + Duration::from_secs(60);
        while let Ok(message) = timeout_at(end, self.wire.next()).await {
            match message {
                Some(Ok(Message::Text(text))) => self.take(&text),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn say(&mut self, text: &str) {
        self.wire.send(Message::text(text)).await.unwrap();
    }

    async fn report(&mut self, kind: &str, name: &str, status: &Value) {
        let header = json!({"namespace": "default", "resourceKind": kind, "resourceName": name, "operation": "status"});
        let content = STANDARD.encode(status.to_string());
        self.say(&format!("{}\n", json!({"header": header, "content": content})))
            .await;
    }

    fn keys(&self) -> Vec<&str> {
        self.held.keys().map(String::as_str).collect()
    }
}

const DATASET: &str = "dataset/default/d";
const JOB: &str = "federatedlearningjob/default/job";
const SERVICE: &str = "jointinferenceservice/default/service";

/// A manager with a job and a service, and where old agents dial.
async fn world(old: OldAgents) -> (Cluster, PipeDialer) {
    let cluster = Cluster::start().await;
    let (dialer, taken) = pipes();
    let hub = cluster.hub.clone();
    tokio::spawn(async move { hub.serve_old_agents_on(old, taken, CancellationToken::new()).await });
    for object in [model(), dataset(), job(), service()] {
        cluster.create(&object).await;
    }
    settle().await;
    (cluster, dialer)
}

#[tokio::test(start_paused = true)]
async fn it_is_told_all_whenever_it_connects_and_what_changes_meanwhile() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let mut lc = SednaLc::connect(&dialer).await;
    lc.until("all is there", |lc| lc.keys() == [DATASET, JOB, SERVICE])
        .await;
    assert_eq!(lc.held[DATASET]["spec"]["url"], "/var/d.txt");
    assert_eq!(lc.held[DATASET]["kind"], "Dataset");

    cluster.edit(&dataset(), &json!({"spec": {"url": "/var/e.txt"}})).await;
    lc.until("the edit is there", |lc| {
        lc.held
            .get(DATASET)
            .is_some_and(|held| held["spec"]["url"] == "/var/e.txt")
    })
    .await;
    cluster.delete(&service()).await;
    lc.until("it is forgotten", |lc| lc.keys() == [DATASET, JOB]).await;

    let held = lc.held.clone();
    drop(lc);
    settle().await;
    cluster.delete(&job()).await;
    settle().await;
    let mut lc = SednaLc::dial(&dialer, NODE, held).await.expect("it is let in");
    lc.until("what was deleted meanwhile is gone", |lc| lc.keys() == [DATASET])
        .await;
    lc.until("what it may have forgotten is told again", |lc| {
        lc.told.contains(&("insert".to_owned(), DATASET.to_owned()))
    })
    .await;
    assert!(!lc.told.iter().any(|(_, key)| key == SERVICE), "that is done");
}

#[tokio::test(start_paused = true)]
async fn what_it_reports_is_in_the_status_at_the_pace_of_all_reports() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let mut lc = SednaLc::up_to_date(&dialer).await;
    lc.settle().await;
    cluster.asked.lock().clear();
    for number in 1..=200 {
        let info = json!({"startTime": "t", "updateTime": "u", "inferenceNumber": number});
        let output = json!({"models": null, "ownerInfo": info});
        let status = json!({"phase": "inference", "status": "", "output": output});
        lc.report("jointinferenceservice", "service", &status).await;
    }
    lc.report("Dataset", "d", &json!({"numberOfSamples": 3})).await;
    for number in 1..=30 {
        let models = json!([{"format": "ckpt", "url": "/m", "metrics": {"accuracy": number}, "classes": null}]);
        let info = json!({"currentRound": number, "sampleCount": 9, "startTime": "t", "updateTime": "u"});
        let output = json!({"models": models, "ownerInfo": info});
        let status = json!({"phase": "train", "status": "running", "output": output});
        lc.report("FederatedLearningJob", "job", &status).await;
    }
    lc.settle().await;
    let metric = |key: &str, value: &str| json!([{"key": key, "value": value}]);
    assert_eq!(
        cluster.status(&service()).await["metrics"],
        metric("inferenceNumber", "200")
    );
    assert_eq!(cluster.status(&dataset()).await["numberOfSamples"], 3);
    let told = cluster.status(&job()).await;
    let rounds: Vec<_> = told["rounds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|round| round["round"].clone())
        .collect();
    assert_eq!(json!(rounds), json!((1..=30).collect::<Vec<_>>()));
    assert_eq!(
        told["rounds"][0]["workers"][0]["name"], NODE,
        "which worker it was, nobody says"
    );
    assert_eq!(cluster.status(&model()).await["metrics"], metric("accuracy", "30"));
    let asked = cluster.asked.lock();
    let writes = asked.iter().filter(|asked| asked.by_nodes()).count();
    assert!(writes < 20, "{writes} writes for 231 reports");
}

#[tokio::test(start_paused = true)]
async fn what_it_says_before_it_is_told_is_taken_once_it_is() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let mut lc = SednaLc::connect(&dialer).await;
    // As one does that has something left of before, with a manager that has not listed everything yet.
    lc.report("dataset", "late", &json!({"numberOfSamples": 9})).await;
    lc.settle().await;
    let late = object(
        "Dataset",
        "late",
        &json!({"url": "/l.txt", "format": "txt", "nodeName": NODE}),
    );
    cluster.create(&late).await;
    lc.settle().await;
    assert_eq!(cluster.status(&late).await["numberOfSamples"], 9);
}

#[tokio::test(start_paused = true)]
async fn what_it_may_not_say_is_counted_and_its_connection_goes_on() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let mut other = object(
        "Dataset",
        "other",
        &json!({"url": "/o.txt", "format": "txt", "nodeName": "edge-2"}),
    );
    cluster.create(&other).await;
    let mut lc = SednaLc::up_to_date(&dialer).await;
    let samples = json!({"numberOfSamples": 7});
    for text in ["", "[]", "null", "{\"header\":7}", "not JSON"] {
        lc.say(text).await;
    }
    lc.say(&format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000))).await;
    let header = json!({"namespace": "default", "resourceKind": "dataset", "resourceName": "d", "operation": "status"});
    lc.say(&json!({"header": header, "content": "%"}).to_string()).await;
    lc.report("dataset", "d", &json!({"numberOfSamples": -1})).await;
    lc.report("jointinferenceservice", "service", &json!([])).await;
    lc.report("dataset", "../d", &samples).await;
    lc.report("dataset/status", "d", &samples).await;
    lc.say(&json!({"header": {"operation": "insert"}}).to_string()).await;
    // On another's, and on nobody's.
    lc.report("dataset", "other", &samples).await;
    lc.report("secret", "d", &samples).await;
    lc.report("dataset", "d", &samples).await;
    lc.settle().await;
    assert_eq!(
        cluster.status(&dataset()).await["numberOfSamples"],
        7,
        "its own is taken"
    );
    other["metadata"]["name"] = json!("other");
    assert_eq!(cluster.status(&other).await.get("numberOfSamples"), None);
    let denied = cluster.hub.snapshot().reports_denied;
    assert_eq!(denied, [("form", 10), ("no_name", 2)].into());
    assert_eq!(cluster.hub.snapshot().reports_refused, 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_is_no_proof_where_others_prove_theirs() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let dial = async |node: &'static str| SednaLc::dial(&dialer, node, Held::new()).await.map(drop);
    for wrong in ["", "../edge-1", "Edge_1"] {
        assert_eq!(dial(wrong).await, Err(400), "{wrong:?}");
    }
    cluster.hub.set_joined(["edge-2".to_owned()].into());
    assert_eq!(dial("edge-2").await, Err(403), "it has a certificate, or had one");

    let mut lc = SednaLc::up_to_date(&dialer).await;
    let node = Running::start(cluster.serve());
    lc.ended().await;
    assert_eq!(dial(NODE).await, Err(403), "a local controller of ours is there");
    settle().await;
    assert_eq!(node.disk.lock().items.len(), 3);
    node.stop().await;
    settle().await;
    let mut first = SednaLc::up_to_date(&dialer).await;
    sleep(Duration::from_secs(5)).await;
    let mut second = SednaLc::connect(&dialer).await;
    first.ended().await;
    second.until("all is there", |lc| lc.held.len() == 3).await;

    cluster.hub.stand_down();
    second.ended().await;
    assert_eq!(dial(NODE).await, Err(503));
}

#[tokio::test(start_paused = true)]
async fn where_others_prove_their_names_it_has_to_be_known_first_which() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    cluster.hub.expect_proof();
    assert_eq!(SednaLc::dial(&dialer, NODE, Held::new()).await.map(drop), Err(503));
    cluster.hub.set_joined(std::collections::BTreeSet::new());
    SednaLc::connect(&dialer).await;
}

#[tokio::test(start_paused = true)]
async fn credentials_are_sent_in_clear_only_where_that_is_said() {
    for credentials in [false, true] {
        let old = OldAgents { credentials };
        let (cluster, dialer) = world(old).await;
        let metadata = json!({"name": "s3", "namespace": "default", "annotations": {"s3-endpoint": "s3.local"}});
        let data = json!({"ACCESS_KEY_ID": STANDARD.encode("id"), "SECRET_ACCESS_KEY": STANDARD.encode("key")});
        cluster
            .create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}))
            .await;
        let edit = json!({"spec": {"url": "s3://bucket/d.txt", "credentialName": "s3"}});
        cluster.edit(&dataset(), &edit).await;
        settle().await;
        let mut lc = SednaLc::connect(&dialer).await;
        // Whatever follows of what there is, and of an edit, is told by then.
        lc.settle().await;
        cluster.edit(&dataset(), &json!({"spec": {"format": "csv"}})).await;
        lc.settle().await;
        let annotation = &lc.held[DATASET]["metadata"]["annotations"]["sedna.io/credential"];
        let expected = json!({"s3-endpoint": "s3.local", "ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "key"});
        let sent: Option<Value> = annotation.as_str().map(|fields| serde_json::from_str(fields).unwrap());
        assert_eq!(sent, credentials.then_some(expected));
        let telling = lc
            .contents
            .iter()
            .filter(|content| content.contains("SECRET_ACCESS_KEY"));
        assert_eq!(telling.count() > 0, credentials, "{:?}", lc.contents);
        assert!(lc.told.len() > 3 && lc.contents.len() == lc.told.len());
    }
}
