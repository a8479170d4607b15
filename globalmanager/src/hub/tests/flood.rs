//! A node that reports as fast as it can, against the real engine and an API server: what that costs, and that nothing
//! that counts is lost.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::serve::Listener;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use skerry_edge::{
    Body, Epoch, ObjectKey, ReportPayload, ReportResult,
    cloud::Server,
    limits,
    link::{self, Signals},
    transport::client::Dialer,
};
use skerry_sandbox::ApiServer;
use skerry_workloads::Settings;
use tokio::{
    io::DuplexStream,
    sync::{mpsc, watch},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{
    super::Hub,
    node::{Disk, MemoryStore, session},
};
use crate::{
    engine::{Engine, Pace, Parts},
    metrics::Metrics,
    run::kinds,
};

const NODE: &str = "edge-1";
/// How long the node floods.
const SECONDS: u64 = 20;

/// Connections without a network, so that time can be virtual.
struct Pipes(mpsc::Receiver<DuplexStream>);

impl Listener for Pipes {
    type Io = DuplexStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (DuplexStream, SocketAddr) {
        match self.0.recv().await {
            Some(pipe) => (pipe, SocketAddr::from((Ipv4Addr::LOCALHOST, 1))),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)))
    }
}

struct PipeDialer(mpsc::Sender<DuplexStream>);

impl Dialer for PipeDialer {
    type Io = DuplexStream;

    fn host(&self) -> &'static str {
        "cloud:9000"
    }

    async fn dial(&self) -> io::Result<DuplexStream> {
        let (near, far) = tokio::io::duplex(1 << 16);
        self.0.send(far).await.map_err(io::Error::other)?;
        Ok(near)
    }
}

/// A request of the manager.
#[derive(Clone, Debug)]
struct Asked {
    at: Instant,
    verb: String,
    path: String,
    query: String,
}

impl Asked {
    fn by_nodes(&self) -> bool {
        self.query.contains("fieldManager=skerry-edge&") || self.query.ends_with("fieldManager=skerry-edge")
    }

    fn reads(&self) -> bool {
        self.verb == "GET" && !self.query.contains("watch=") && !self.query.contains("resourceVersion=")
    }
}

struct World {
    api: ApiServer,
    asked: Arc<Mutex<Vec<Asked>>>,
    disk: Arc<Mutex<Disk>>,
    signals: Signals,
}

impl World {
    /// A manager, and a node that holds a job and a service.
    async fn start() -> Self {
        let api = ApiServer::new();
        let crds: Api<CustomResourceDefinition> = Api::all(api.client());
        for crd in skerry_crds::all() {
            crds.create(&PostParams::default(), crd).await.unwrap();
        }
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let hub = Hub::default();
        let (_, leader) = watch::channel(true);
        let clock = api.clock();
        let parts = Parts {
            client: watched(&api, asked.clone()),
            namespace: None,
            settings: Settings::default(),
            leader,
            nodes: Arc::new(hub.clone()),
            metrics: Metrics::new(),
            instance: "test".into(),
            clock: Arc::new(move || clock.now()),
            pace: Pace::default(),
        };
        let engine = Engine::new(parts, kinds());
        let (cluster, lease) = ("c".to_owned(), "l".to_owned());
        let epoch = Epoch { lease, transitions: 0 };
        hub.lead(Server { cluster, epoch }, Arc::new(engine.clone()));
        tokio::spawn(async move { engine.run(CancellationToken::new()).await });
        let (dial, pipes) = mpsc::channel(1);
        tokio::spawn(async move { hub.serve_on(Pipes(pipes), CancellationToken::new()).await });

        let disk = Arc::<Mutex<Disk>>::default();
        let signals = Signals::new(CancellationToken::new());
        let store = Arc::new(MemoryStore::new(disk.clone(), || Duration::ZERO));
        let session = session(NODE, 1, &disk.lock());
        tokio::spawn(link::run(session, PipeDialer(dial), store, signals.clone(), || 0.0));
        let world = Self {
            api,
            asked,
            disk,
            signals,
        };
        for object in [model(), dataset(), job(), service()] {
            world.create(&object).await;
        }
        sleep(Duration::from_secs(60)).await;
        world
    }

    fn objects(&self, object: &Value) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: "sedna.io".to_owned(),
            version: "v1alpha1".to_owned(),
            api_version: "sedna.io/v1alpha1".to_owned(),
            kind: object["kind"].as_str().unwrap().to_owned(),
            plural: format!("{}s", object["kind"].as_str().unwrap().to_lowercase()),
        };
        Api::namespaced_with(self.api.client(), "default", &resource)
    }

    async fn create(&self, object: &Value) {
        let made: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        self.objects(object)
            .create(&PostParams::default(), &made)
            .await
            .unwrap();
    }

    async fn status(&self, object: &Value) -> Value {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.objects(object).get(name).await.unwrap().data["status"].clone()
    }

    fn put(&self, key: &ObjectKey, payload: ReportPayload) {
        assert!(self.disk.lock().say(key, payload), "the node holds {key}");
        self.signals.outbox.notify_one();
    }
}

/// A client whose requests are noted.
fn watched(api: &ApiServer, asked: Arc<Mutex<Vec<Asked>>>) -> Client {
    let router = api.router();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        asked.lock().push(Asked {
            at: Instant::now(),
            verb: request.method().to_string(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
        });
        router.clone().oneshot(request.map(axum::body::Body::new))
    });
    Client::new(service, "default")
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "sedna.io/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn model() -> Value {
    object("Model", "m", &json!({"url": "/var/m", "format": "ckpt"}))
}

fn dataset() -> Value {
    let spec = json!({"url": "/var/d.txt", "format": "txt", "nodeName": NODE});
    object("Dataset", "d", &spec)
}

fn template(node: &str) -> Value {
    json!({"spec": {"nodeName": node, "containers": [{"name": "c", "image": "example/i:v1"}]}})
}

fn job() -> Value {
    let spec = json!({
        "aggregationWorker": {"model": {"name": "m"}, "template": template("cloud-1")},
        "trainingWorkers": [{"dataset": {"name": "d"}, "template": template(NODE)}],
    });
    object("FederatedLearningJob", "job", &spec)
}

fn service() -> Value {
    let mining = json!({"name": "IBT", "parameters": []});
    let spec = json!({
        "edgeWorker": {"model": {"name": "m"}, "hardExampleMining": mining, "template": template(NODE)},
        "cloudWorker": {"model": {"name": "m"}, "template": template("cloud-1")},
    });
    object("JointInferenceService", "service", &spec)
}

fn round(number: u64) -> ReportPayload {
    let message = json!({
        "name": "trainer", "kind": "train", "status": "running",
        "ownerInfo": {"currentRound": number, "startTime": "t", "sampleCount": 9},
        "results": [{"metrics": {"accuracy": number.to_string()}}],
    });
    ReportPayload::Round {
        round: number,
        message: Body::from(&message),
    }
}

fn figures(count: u64) -> ReportPayload {
    let message = json!({"name": "little", "kind": "inference", "ownerInfo": {"inferenceNumber": count}});
    ReportPayload::Metrics {
        message: Body::from(&message),
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_costs_one_write_a_second_and_resource_and_no_read_and_no_round_is_lost() {
    let world = World::start().await;
    let job_key = ObjectKey::new("federatedlearningjob", "default", "job");
    let service_key = ObjectKey::new("jointinferenceservice", "default", "service");
    let dataset_key = ObjectKey::new("dataset", "default", "d");
    world.asked.lock().clear();
    let began = Instant::now();
    let (rounds, floods) = (5 * SECONDS, 50 * SECONDS);
    for tick in 1..=floods {
        world.put(&service_key, figures(tick));
        world.put(&dataset_key, ReportPayload::DatasetSamples { count: tick });
        if tick.is_multiple_of(floods / rounds) {
            world.put(&job_key, round(tick / (floods / rounds)));
        }
        sleep(Duration::from_millis(20)).await;
    }
    while !world.disk.lock().outbox.is_empty() {
        sleep(Duration::from_millis(100)).await;
    }
    let seconds = began.elapsed().as_secs() + 1;
    let settled = world.disk.lock().settled.len() as u64;
    assert_eq!(settled, 2 * floods + rounds, "each is answered");
    let accepted = |(_, result): &(_, ReportResult)| *result == ReportResult::Accepted {};
    assert!(world.disk.lock().settled.values().all(accepted));

    let asked = world.asked.lock().clone();
    let reads: Vec<_> = asked.iter().filter(|asked| asked.reads()).collect();
    assert!(reads.is_empty(), "{reads:?}");
    for (path, least) in [
        ("jointinferenceservices/service/status", SECONDS / 2),
        ("federatedlearningjobs/job/status", SECONDS / 2),
        ("models/m/status", SECONDS / 2),
        ("datasets/d/status", SECONDS / 2),
    ] {
        let writes: Vec<_> = asked
            .iter()
            .filter(|asked| asked.by_nodes() && asked.path.ends_with(path))
            .collect();
        assert!(writes.iter().all(|write| write.verb == "PATCH"), "{writes:?}");
        assert!(
            writes.len() as u64 <= seconds,
            "{path}: {} writes in {seconds} s",
            writes.len()
        );
        assert!(
            writes.len() as u64 >= least,
            "{path}: the status follows while the flood lasts"
        );
        for pair in writes.windows(2) {
            assert!(pair[1].at - pair[0].at >= limits::STATUS_PACE, "{path}: {pair:?}");
        }
    }
    let own = asked.iter().filter(|asked| asked.verb != "GET" && !asked.by_nodes());
    let (of_rounds, others): (Vec<_>, Vec<_>) = own
        .filter(|asked| !asked.path.ends_with("/events"))
        .partition(|asked| asked.path.ends_with("job/status"));
    assert!(of_rounds.len() as u64 <= seconds, "the job's conditions tell of rounds");
    assert!(
        others.len() == 1 && others.iter().all(|asked| asked.path.ends_with("d/status")),
        "the Dataset is ready once it is counted, and nothing else follows: {others:?}"
    );

    let told = world.status(&job()).await;
    let numbers: Vec<_> = told["rounds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|round| round["round"].clone())
        .collect();
    assert_eq!(
        json!(numbers),
        json!((1..=rounds).collect::<Vec<_>>()),
        "all rounds arrive"
    );
    let last = |key: &str, value: u64| json!([{"key": key, "value": value.to_string()}]);
    assert_eq!(world.status(&model()).await["metrics"], last("accuracy", rounds));
    assert_eq!(
        world.status(&service()).await["metrics"],
        last("inferenceNumber", floods)
    );
    assert_eq!(world.status(&dataset()).await["numberOfSamples"], json!(floods));
}
