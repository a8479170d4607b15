//! A cluster in memory with the real engine on it: an API server, the built-in controllers, kubelets that do as a test
//! says, and the manager's engine with all its kinds. On paused time a minute passes at once.

use std::{collections::BTreeMap, fmt::Debug, future::Future, sync::Arc, time::Duration};

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DeleteParams, Patch, PatchParams},
    core::DynamicObject,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use skerry_globalmanager::{
    engine::{Credential, Engine, NodeParts, Parts, ResourceKey},
    metrics::Metrics,
    run::kinds,
};
use skerry_sandbox::{
    ApiServer,
    api::Mark,
    cluster::{Controllers, FakeKubelet, NodeSpec},
};
use skerry_workloads::{NodePart, ObjectKind, Settings};
use tokio::{sync::watch, task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

/// The namespace of the scenarios.
pub const NAMESPACE: &str = "default";
/// The manager, as faults and the request log know it.
pub const MANAGER: &str = "manager";
/// The user, likewise.
pub const USER: &str = "user";
/// In virtual time: longer than anything that the cluster does by itself within a minute.
pub const A_WHILE: Duration = Duration::from_secs(60);

/// What nodes hold, as the manager last said.
#[derive(Clone, Default)]
pub struct Held(Arc<std::sync::Mutex<BTreeMap<ResourceKey, Placed>>>);

/// A resource's parts, by node.
pub type Placed = BTreeMap<String, (NodePart, Option<Credential>)>;

impl Held {
    /// What `node` holds of a resource.
    pub fn on(&self, node: &str, kind: ObjectKind, name: &str) -> Option<Value> {
        let key = ResourceKey {
            kind,
            namespace: NAMESPACE.to_owned(),
            name: name.to_owned(),
        };
        Some(self.0.lock().unwrap().get(&key)?.get(node)?.0.body.clone())
    }
}

impl NodeParts for Held {
    fn set(&self, owner: &ResourceKey, _: &str, _: i64, parts: Placed) {
        self.0.lock().unwrap().insert(owner.clone(), parts);
    }

    fn owner_gone(&self, owner: &ResourceKey) {
        self.0.lock().unwrap().remove(owner);
    }

    fn kind_listed(&self, kind: ObjectKind, owners: Vec<(String, String)>) {
        let named = |key: &ResourceKey| owners.contains(&(key.namespace.clone(), key.name.clone()));
        self.0.lock().unwrap().retain(|key, _| key.kind != kind || named(key));
    }
}

/// The cluster and the manager.
pub struct World {
    /// The API server.
    pub api: ApiServer,
    /// The kubelets of `cloud-1`, `edge-1` and `edge-2`.
    pub kubelet: FakeKubelet,
    /// What nodes hold.
    pub held: Held,
    /// The manager's engine; another one after [`World::restart_manager`].
    pub engine: Engine,
    /// Whether the manager holds the lease.
    pub leads: watch::Sender<bool>,
    manager: (CancellationToken, JoinHandle<()>),
    _controllers: Controllers,
}

impl World {
    /// A cluster with our CRDs, and a manager that holds the lease.
    pub async fn start() -> Self {
        let api = ApiServer::new();
        install_crds(&api.client()).await;
        let controllers = Controllers::spawn(api.client_as("controllers"), api.clock());
        let nodes = [
            NodeSpec::cloud("cloud-1"),
            NodeSpec::edge("edge-1"),
            NodeSpec::edge("edge-2"),
        ];
        let kubelet = FakeKubelet::spawn(api.client_as("kubelet"), api.clock(), nodes)
            .await
            .unwrap();
        let held = Held::default();
        let (leads, leader) = watch::channel(true);
        let (engine, manager) = start_engine(&api, &held, leader);
        let world = Self {
            api,
            kubelet,
            held,
            engine,
            leads,
            manager,
            _controllers: controllers,
        };
        world.settle().await;
        world
    }

    /// Kills the manager as SIGKILL does, between whatever it was doing, and starts another.
    pub async fn restart_manager(&mut self) {
        self.kill_manager().await;
        self.start_manager();
    }

    /// Kills the manager as SIGKILL does.
    pub async fn kill_manager(&mut self) {
        self.manager.1.abort();
        // An aborted task ends at its next await point; passes are tasks of its own that end with it.
        let _ = (&mut self.manager.1).await;
    }

    /// Starts a manager with nothing in its memory.
    pub fn start_manager(&mut self) {
        self.held = Held::default();
        (self.engine, self.manager) = start_engine(&self.api, &self.held, self.leads.subscribe());
    }

    /// A typed view, as the user.
    pub fn view<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        Api::namespaced(self.api.client_as(USER), NAMESPACE)
    }

    /// What `kubectl apply --server-side` does with a file of one or more documents, strict as kubectl is; the first
    /// refusal is returned.
    pub async fn try_apply(&self, yaml: &str) -> Result<(), kube::Error> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("the scenario's YAML parses");
        for document in documents {
            let object: DynamicObject = serde_json::from_value(document).expect("the scenario's object has a kind");
            let types = object.types.clone().expect("the scenario's object has a kind");
            let gvk = kube::core::GroupVersionKind::try_from(&types).expect("the scenario's object has an apiVersion");
            let resource = ApiResource::from_gvk(&gvk);
            let api: Api<DynamicObject> = Api::namespaced_with(self.api.client_as(USER), NAMESPACE, &resource);
            let name = object.metadata.name.clone().expect("the scenario's object has a name");
            let how = PatchParams {
                field_validation: Some(kube::api::ValidationDirective::Strict),
                ..PatchParams::apply(USER).force()
            };
            api.patch(&name, &how, &Patch::Apply(&object)).await?;
        }
        Ok(())
    }

    /// As [`World::try_apply`], accepted, and settled.
    pub async fn apply(&self, yaml: &str) {
        self.try_apply(yaml).await.expect("the manifest is accepted");
        self.settle().await;
    }

    /// A merge patch by the user (what `kubectl edit` sends for custom resources), settled.
    pub async fn edit<K>(&self, name: &str, patch: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        self.view::<K>()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .expect("the edit is accepted");
        self.settle().await;
    }

    /// A deletion by the user, settled.
    pub async fn delete<K>(&self, name: &str, how: &DeleteParams)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        self.view::<K>()
            .delete(name, how)
            .await
            .expect("the deletion is accepted");
        self.settle().await;
    }

    /// Lets everything that follows from what was done happen.
    pub async fn settle(&self) {
        sleep(A_WHILE).await;
    }

    /// Looks again every virtual second until `seen` finds what it looks for, for ten virtual minutes at most.
    pub async fn until<T, F: Future<Output = Option<T>>>(&self, what: &str, mut seen: impl FnMut() -> F) -> T {
        for _ in 0..600 {
            if let Some(found) = seen().await {
                return found;
            }
            sleep(Duration::from_secs(1)).await;
        }
        panic!("{what} was not seen within ten minutes");
    }

    /// A point in the request log.
    pub fn mark(&self) -> Mark {
        self.api.requests().mark()
    }

    /// The manager's mutating requests since `mark`, events apart: `verb resource[/subresource] name`.
    pub fn writes_since(&self, mark: Mark) -> Vec<String> {
        let writes = self.api.requests().writes_since(mark);
        let ours = writes
            .into_iter()
            .filter(|entry| entry.request.user == MANAGER && entry.request.resource != "events");
        ours.map(|entry| {
            let request = entry.request;
            let subresource = if request.subresource.is_empty() {
                String::new()
            } else {
                format!("/{}", request.subresource)
            };
            format!("{:?} {}{subresource} {}", request.verb, request.resource, request.name).to_lowercase()
        })
        .collect()
    }
}

fn start_engine(
    api: &ApiServer,
    held: &Held,
    leader: watch::Receiver<bool>,
) -> (Engine, (CancellationToken, JoinHandle<()>)) {
    let parts = Parts {
        client: api.client_as(MANAGER),
        namespace: None,
        settings: Settings::default(),
        leader,
        nodes: Arc::new(held.clone()),
        metrics: Metrics::new(),
        instance: "test".to_owned(),
    };
    let engine = Engine::new(parts, kinds());
    let stop = CancellationToken::new();
    let (running, stopped) = (engine.clone(), stop.clone());
    (engine, (stop, tokio::spawn(async move { running.run(stopped).await })))
}

/// Makes our CRDs known.
pub async fn install_crds(client: &Client) {
    let crds: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
        Api::all(client.clone());
    for crd in skerry_crds::all() {
        crds.create(&kube::api::PostParams::default(), &crd)
            .await
            .expect("the CRD is accepted");
    }
}
