//! A manager with the real engine on an API server, on paused time, and connections to it without a network.

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
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use skerry_edge::{
    Epoch,
    cloud::Server,
    link::{self, Signals},
    transport::client::Dialer,
};
use skerry_sandbox::ApiServer;
use skerry_workloads::Settings;
use tokio::{
    io::DuplexStream,
    sync::{mpsc, watch},
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{
    super::{Hub, Reports},
    node::{Disk, MemoryStore, session},
};
use crate::{
    engine::{Engine, Pace, Parts},
    metrics::Metrics,
    run::kinds,
};

/// The node that all has to do with.
pub(super) const NODE: &str = "edge-1";

/// Both ends of connections without a network, so that time can be virtual.
pub(super) fn pipes() -> (PipeDialer, Pipes) {
    let (dial, taken) = mpsc::channel(1);
    let bytes = 1 << 16;
    (PipeDialer { dial, bytes }, Pipes(taken))
}

pub(super) struct Pipes(mpsc::Receiver<DuplexStream>);

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

#[derive(Clone)]
pub(super) struct PipeDialer {
    dial: mpsc::Sender<DuplexStream>,
    bytes: usize,
}

impl PipeDialer {
    /// One whose connections hold only so many bytes that are not read yet.
    pub(super) fn holding(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }
}

impl Dialer for PipeDialer {
    type Io = DuplexStream;

    fn host(&self) -> &'static str {
        "cloud:9000"
    }

    async fn dial(&self) -> io::Result<DuplexStream> {
        let (near, far) = tokio::io::duplex(self.bytes);
        self.dial.send(far).await.map_err(io::Error::other)?;
        Ok(near)
    }
}

/// A request of the manager.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) at: Instant,
    pub(super) verb: String,
    pub(super) path: String,
    query: String,
}

impl Asked {
    pub(super) fn by_nodes(&self) -> bool {
        self.query.contains("fieldManager=skerry-edge&") || self.query.ends_with("fieldManager=skerry-edge")
    }

    pub(super) fn reads(&self) -> bool {
        self.verb == "GET" && !self.query.contains("watch=") && !self.query.contains("resourceVersion=")
    }
}

/// The cluster, and the manager that leads in it.
pub(super) struct Cluster {
    pub(super) api: ApiServer,
    pub(super) asked: Arc<Mutex<Vec<Asked>>>,
    pub(super) hub: Hub,
    engine: Engine,
    /// What the manager consists of.
    lives: JoinSet<()>,
}

impl Cluster {
    /// With our definitions, and nothing else.
    pub(super) async fn start() -> Self {
        let api = ApiServer::new();
        let crds: Api<CustomResourceDefinition> = Api::all(api.client());
        for crd in skerry_crds::all() {
            crds.create(&PostParams::default(), crd).await.unwrap();
        }
        Self::led(api, 0)
    }

    /// The manager is killed, and another one leads.
    pub(super) fn another_manager(self) -> Self {
        let Self { api, hub, lives, .. } = self;
        drop((hub, lives));
        Self::led(api, 1)
    }

    /// Another manager that leads, while this one does not know that it is deposed.
    pub(super) fn manager_beside(&self) -> Self {
        Self::led(self.api.clone(), 1)
    }

    fn led(api: ApiServer, transitions: u64) -> Self {
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
        let mut lives = JoinSet::new();
        let runs = engine.clone();
        lives.spawn(async move { runs.run(CancellationToken::new()).await });
        let cluster = Self {
            api,
            asked,
            hub,
            engine,
            lives,
        };
        cluster.lead_in(transitions, |engine| Arc::new(engine));
        cluster
    }

    /// Begins a term in which reports go where this says.
    pub(super) fn lead_with(&self, reports: impl FnOnce(Engine) -> Arc<dyn Reports>) {
        self.lead_in(0, reports);
    }

    /// Begins this term, likewise.
    pub(super) fn lead_in(&self, transitions: u64, reports: impl FnOnce(Engine) -> Arc<dyn Reports>) {
        let (cluster, lease) = ("c".to_owned(), "l".to_owned());
        let epoch = Epoch {
            lease,
            transitions,
            made: None,
        };
        self.hub.lead(Server { cluster, epoch }, reports(self.engine.clone()));
    }

    /// Serves nodes.
    pub(super) fn serve(&self) -> PipeDialer {
        let (dialer, taken) = pipes();
        let hub = self.hub.clone();
        tokio::spawn(async move { hub.serve_on(taken, CancellationToken::new()).await });
        dialer
    }

    fn objects(&self, object: &Value) -> Api<DynamicObject> {
        let kind = object["kind"].as_str().unwrap();
        let api_version = object["apiVersion"].as_str().unwrap();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: format!("{}s", kind.to_lowercase()),
        };
        Api::namespaced_with(self.api.client(), "default", &resource)
    }

    pub(super) async fn create(&self, object: &Value) {
        let made: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        self.objects(object)
            .create(&PostParams::default(), &made)
            .await
            .unwrap();
    }

    /// Changes the object of this kind and name by a merge.
    pub(super) async fn edit(&self, object: &Value, edit: &Value) {
        let (objects, how) = (self.objects(object), PatchParams::default());
        objects.patch(name(object), &how, &Patch::Merge(edit)).await.unwrap();
    }

    pub(super) async fn delete(&self, object: &Value) {
        let objects = self.objects(object);
        objects.delete(name(object), &DeleteParams::default()).await.unwrap();
    }

    pub(super) async fn status(&self, object: &Value) -> Value {
        self.objects(object).get(name(object)).await.unwrap().data["status"].clone()
    }
}

/// A node that runs until it is told to stop.
pub(super) struct Running {
    pub(super) disk: Arc<Mutex<Disk>>,
    pub(super) signals: Signals,
    task: JoinHandle<()>,
}

impl Running {
    pub(super) fn start(dialer: PipeDialer) -> Self {
        Self::start_on(Arc::default(), 1, dialer)
    }

    /// A start of a node that has this disk.
    pub(super) fn start_on(disk: Arc<Mutex<Disk>>, boot: u64, dialer: PipeDialer) -> Self {
        let signals = Signals::new(CancellationToken::new());
        let store = Arc::new(MemoryStore::new(disk.clone(), || Duration::ZERO));
        let session = session(NODE, boot, &mut disk.lock());
        let task = tokio::spawn(link::run(session, dialer, store, signals.clone(), || 0.0));
        Self { disk, signals, task }
    }

    pub(super) async fn stop(self) {
        self.signals.stop.cancel();
        self.task.await.unwrap();
    }

    /// Ends it as a crash does; what is left of it.
    pub(super) fn kill(self) -> Arc<Mutex<Disk>> {
        self.task.abort();
        self.disk
    }
}

/// A manager with an object of each kind, and a node that holds its part of each.
pub(super) async fn world() -> (Cluster, Running) {
    let cluster = Cluster::start().await;
    let node = Running::start(cluster.serve());
    for object in [model(), dataset(), job(), service()] {
        cluster.create(&object).await;
    }
    settle().await;
    (cluster, node)
}

/// Lets everything happen that follows.
pub(super) async fn settle() {
    sleep(Duration::from_secs(60)).await;
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
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

pub(super) fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "sedna.io/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

pub(super) fn model() -> Value {
    object("Model", "m", &json!({"url": "/var/m", "format": "ckpt"}))
}

pub(super) fn dataset() -> Value {
    let spec = json!({"url": "/var/d.txt", "format": "txt", "nodeName": NODE});
    object("Dataset", "d", &spec)
}

fn template(node: &str) -> Value {
    json!({"spec": {"nodeName": node, "containers": [{"name": "c", "image": "example/i:v1"}]}})
}

pub(super) fn job() -> Value {
    let spec = json!({
        "aggregationWorker": {"model": {"name": "m"}, "template": template("cloud-1")},
        "trainingWorkers": [{"dataset": {"name": "d"}, "template": template(NODE)}],
    });
    object("FederatedLearningJob", "job", &spec)
}

pub(super) fn service() -> Value {
    let mining = json!({"name": "IBT", "parameters": []});
    let spec = json!({
        "edgeWorker": {"model": {"name": "m"}, "hardExampleMining": mining, "template": template(NODE)},
        "cloudWorker": {"model": {"name": "m"}, "template": template("cloud-1")},
    });
    object("JointInferenceService", "service", &spec)
}
