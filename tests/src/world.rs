//! A cluster with the real engine on it: an API server, the built-in controllers, kubelets that do as a test says, and a
//! manager. In memory a minute passes at once. On a real control plane (see [`crate::cluster`]) settling takes as long as
//! something happens, and what is said of minutes is shortened.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fmt::Debug,
    future::Future,
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Node, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource,
    api::{ApiResource, DeleteParams, ListParams, Patch, PatchParams},
    core::{DynamicObject, GroupVersionKind},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use skerry_globalmanager::{
    engine::{Engine, Pace},
    run::kinds,
};
use skerry_sandbox::{
    api::{FaultHandle, LogEntry, Mark, RequestInfo},
    cluster::{Controllers, FakeKubelet, NodeSpec, Timing},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    definitions::{KINDS, definitions, install},
    manager::{Held, LEASE, Manager, pace},
    server::Server,
};

/// The namespace of the scenarios.
pub const NAMESPACE: &str = "scenario";
/// The manager, as faults and the request log know it.
pub const MANAGER: &str = "manager";
/// The user, likewise.
pub const USER: &str = "user";
/// In virtual time: longer than anything that the cluster does by itself within a minute.
pub const A_WHILE: Duration = Duration::from_secs(60);
/// The control planes that are lent give nodes up within seconds.
pub const BEAT: Duration = Duration::from_secs(3);
/// On a real control plane: what the manager does later than this is not waited for. What failed it tries again after a
/// second there.
const SOON: Duration = Duration::from_secs(3);
/// On a real control plane nobody waits longer than this for time to pass: its own waits are set to be shorter.
const LONG_ENOUGH: Duration = Duration::from_secs(8);
/// Clients have their watches end sooner.
const LONGER_THAN_WATCHES: Duration = Duration::from_secs(1200);

/// The cluster and the manager.
pub struct World {
    /// The kubelets of `cloud-1`, `edge-1` and `edge-2`.
    pub kubelet: FakeKubelet,
    /// What nodes hold.
    pub held: Held,
    /// Whether the manager holds the lease.
    pub leads: watch::Sender<bool>,
    /// How long [`World::settle`] waits: a minute, but for a test that makes everything take longer.
    pub patience: Cell<Duration>,
    pace: Cell<Pace>,
    manager: RefCell<Option<Manager>>,
    killers: RefCell<Vec<(usize, FaultHandle)>>,
    kills: RefCell<BTreeSet<usize>>,
    _controllers: Option<Controllers>,
    /// The API server. Given back last, when nobody uses it any more.
    pub api: Server,
}

impl World {
    /// A cluster with our CRDs, and a manager that holds the lease.
    pub async fn start() -> Self {
        let world = Self::without_manager().await;
        world.start_manager();
        world.settle().await;
        world
    }

    /// A cluster with our CRDs, and nobody who looks after them.
    pub async fn without_manager() -> Self {
        let world = Self::with_nodes_alone().await;
        match &world.api {
            Server::Sandbox(server) => install(&server.client(), &KINDS).await,
            Server::Cluster(borrowed) => borrowed.define(definitions(&KINDS)).await,
        }
        world
    }

    /// A cluster with somebody else's CRDs, and nobody who looks after them.
    pub async fn with_definitions(definitions: &[CustomResourceDefinition]) -> Self {
        let world = Self::with_nodes_alone().await;
        world.api.define(definitions).await;
        world
    }

    /// A cluster that has not heard of us.
    pub async fn without_crds() -> Self {
        let world = Self::with_nodes_alone().await;
        world.api.forget_us().await;
        world
    }

    async fn with_nodes_alone() -> Self {
        let nodes = [
            NodeSpec::cloud("cloud-1"),
            NodeSpec::edge("edge-1"),
            NodeSpec::edge("edge-2"),
        ];
        let api = Server::with(&nodes).await;
        let controllers = match &api {
            Server::Sandbox(_) => Some(Controllers::spawn(api.client_as("controllers"), api.clock())),
            Server::Cluster(_) => None,
        };
        let kubelet = FakeKubelet::spawn(api.client_as("kubelet"), api.clock(), nodes)
            .await
            .unwrap();
        if let Server::Cluster(_) = &api {
            kubelet.beat_every(BEAT);
            // Where time passes, nobody waits for what does nothing.
            kubelet.set_timing(Timing {
                start: Duration::ZERO,
                stop: Duration::ZERO,
                ..Timing::default()
            });
        }
        Self {
            kubelet,
            held: Held::default(),
            leads: watch::Sender::new(true),
            patience: Cell::new(A_WHILE),
            pace: Cell::new(pace(&api)),
            manager: RefCell::default(),
            killers: RefCell::default(),
            kills: RefCell::default(),
            _controllers: controllers,
            api,
        }
    }

    /// Kills the manager as SIGKILL does, in the midst of whatever it was doing, and starts another.
    pub async fn restart_manager(&self) {
        self.kill_manager().await;
        self.start_manager();
    }

    /// Kills the manager as SIGKILL does.
    pub async fn kill_manager(&self) {
        let manager = self.manager.borrow_mut().take();
        if let Some(manager) = manager {
            manager.kill().await;
        }
    }

    /// Starts a manager with nothing in its memory.
    pub fn start_manager(&self) {
        let manager = Manager::start(&self.api, MANAGER, &self.held, self.leads.subscribe(), self.pace.get());
        *self.manager.borrow_mut() = Some(manager);
    }

    /// Has managers that start from now on write statuses no more often than in a cluster: what comes and goes within a
    /// second is then told in as many writes each time.
    pub fn tell_seldom(&self) {
        let Pace { status, .. } = Pace::default();
        self.pace.set(Pace {
            status,
            ..self.pace.get()
        });
    }

    /// From now on, the manager is killed when it runs into any of these faults, and started anew; once for each fault.
    pub fn kill_manager_at(&self, faults: impl IntoIterator<Item = FaultHandle>) {
        let mut killers = self.killers.borrow_mut();
        let known = killers.len();
        killers.extend((known..).zip(faults));
    }

    /// By which of the faults managers were killed, in the order in which they were named: one may run into several before it
    /// is gone, and was killed by the first.
    pub fn kills(&self) -> BTreeSet<usize> {
        self.kills.borrow().clone()
    }

    /// The engine of the manager that runs.
    pub fn engine(&self) -> Engine {
        let manager = self.manager.borrow();
        manager.as_ref().expect("a manager runs").engine.clone()
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
            let gvk = GroupVersionKind::try_from(&types).expect("the scenario's object has an apiVersion");
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

    /// What `kubectl scale` does, settled.
    pub async fn scale<K>(&self, name: &str, replicas: i32)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let patch = serde_json::json!({"spec": {"replicas": replicas}});
        self.view::<K>()
            .patch_scale(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .expect("the new scale is accepted");
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
        match &self.api {
            Server::Sandbox(_) => self.wait(sleep(self.patience.get())).await,
            Server::Cluster(borrowed) => {
                let limit = self.patience.get() / 3;
                self.wait(borrowed.calm(limit, || self.manager_is_idle(SOON))).await;
            }
        }
    }

    /// Lets everything happen that is ever to come, what is tried again minutes later included.
    pub async fn rest(&self) {
        let time = Duration::from_secs(120).max(self.patience.get());
        match &self.api {
            Server::Sandbox(_) => self.wait(sleep(time)).await,
            Server::Cluster(borrowed) => {
                self.wait(borrowed.calm(time, || self.manager_is_idle(time))).await;
            }
        }
    }

    /// Lets time pass.
    pub async fn pass(&self, time: Duration) {
        match &self.api {
            Server::Sandbox(_) => self.wait(sleep(time)).await,
            Server::Cluster(_) => {
                self.wait(sleep(time.min(LONG_ENOUGH))).await;
                // What is due by then may take its time.
                self.settle().await;
            }
        }
    }

    /// Lets the manager's watches come to their end while it is answered nothing: in memory in their time, of which a minute
    /// passes at once.
    pub async fn end_watches(&self) {
        match &self.api {
            Server::Sandbox(_) => self.pass(LONGER_THAN_WATCHES).await,
            Server::Cluster(borrowed) => {
                let wire = &borrowed.wire;
                wire.end_watches(MANAGER);
                self.until("the end of all watches", async || {
                    (wire.watches(MANAGER) == 0).then_some(())
                })
                .await;
            }
        }
    }

    /// Lets all of a time pass, and whatever follows from that happen.
    pub async fn outlast(&self, time: Duration) {
        self.wait(sleep(time)).await;
        self.settle().await;
    }

    fn manager_is_idle(&self, time: Duration) -> bool {
        let manager = self.manager.borrow();
        let Some(manager) = manager.as_ref() else { return true };
        // Whoever has lost a watch may not have heard of the last change.
        let watches = match &self.api {
            Server::Sandbox(_) => true,
            Server::Cluster(borrowed) => borrowed.wire.watches(MANAGER) >= kinds().watched().len(),
        };
        watches && manager.engine.idle(time)
    }

    /// Waits, and replaces a manager that is killed meanwhile.
    async fn wait(&self, end: impl Future<Output = ()>) {
        let mut end = std::pin::pin!(end);
        loop {
            let killers = self.killers.borrow().clone();
            let hit = |(killer, fault): &(usize, FaultHandle)| {
                let (killer, fault) = (*killer, fault.clone());
                async move {
                    fault.hit().await;
                    killer
                }
            };
            let mut hits: FuturesUnordered<_> = killers.iter().map(hit).collect();
            tokio::select! {
                Some(killer) = hits.next() => {
                    self.kills.borrow_mut().insert(killer);
                    self.kill_manager().await;
                    // It may have been in the midst of several.
                    self.killers.borrow_mut().retain(|(_, fault)| fault.hits() == 0);
                    self.start_manager();
                }
                () = &mut end => return,
            }
        }
    }

    /// Silences a node, until Kubernetes has seen it.
    pub async fn lose_node(&self, node: &str) {
        self.kubelet.lose_node(node);
        self.node_becomes(node, "Unknown").await;
    }

    /// Brings a silenced node back, until Kubernetes has seen it.
    pub async fn restore_node(&self, node: &str) {
        self.kubelet.restore_node(node);
        self.node_becomes(node, "True").await;
    }

    /// Deletes a node, until Kubernetes has given up the pods on it.
    pub async fn delete_node(&self, node: &str) {
        let nodes: Api<Node> = Api::all(self.api.client_as(USER));
        nodes
            .delete(node, &DeleteParams::default())
            .await
            .expect("the node can be deleted");
        let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
        self.until(&format!("the end of the pods on {node}"), async || {
            let pods = self.view::<Pod>().list(&there).await.expect("pods can be listed");
            pods.items.is_empty().then_some(())
        })
        .await;
        self.settle().await;
    }

    async fn node_becomes(&self, node: &str, ready: &str) {
        let nodes: Api<Node> = Api::all(self.api.client_as(USER));
        self.until(&format!("{node} as {ready}"), async || {
            let node = nodes.get(node).await.expect("the node can be read");
            let mut conditions = node.status?.conditions?.into_iter();
            conditions
                .any(|condition| condition.type_ == "Ready" && condition.status == ready)
                .then_some(())
        })
        .await;
        self.settle().await;
    }

    /// Looks again every second until `seen` finds what it looks for, for ten virtual minutes at most; on a real control plane
    /// five times a second, for two.
    pub async fn until<T>(&self, what: &str, mut seen: impl AsyncFnMut() -> Option<T>) -> T {
        let (pause, limit) = match &self.api {
            Server::Sandbox(_) => (Duration::from_secs(1), 600),
            Server::Cluster(_) => (Duration::from_millis(200), 120),
        };
        let end = Instant::now() + Duration::from_secs(limit);
        while Instant::now() < end {
            if let Some(found) = seen().await {
                return found;
            }
            sleep(pause).await;
        }
        panic!("{what} was not seen within {limit} seconds");
    }

    /// A point in the request log.
    pub fn mark(&self) -> Mark {
        self.api.requests().mark()
    }

    /// The manager's mutating requests since `mark`, events apart: `verb resource[/subresource] name`.
    pub fn writes_since(&self, mark: Mark) -> Vec<String> {
        self.writes_of(MANAGER, mark)
    }

    /// The same as they were asked.
    pub fn requests_since(&self, mark: Mark) -> Vec<RequestInfo> {
        let writes = self.writes(MANAGER, mark).into_iter();
        writes.map(|entry| entry.request).collect()
    }

    /// Those that were accepted: what was planned by a view that others have overtaken meanwhile is refused, and costs
    /// nothing but the request.
    pub fn changes_since(&self, mark: Mark) -> Vec<String> {
        let writes = self.writes(MANAGER, mark);
        let accepted = |entry: &&LogEntry| entry.status.is_some_and(|status| status < 300);
        writes.iter().filter(accepted).map(title).collect()
    }

    /// Those of another user; events and the Lease apart.
    pub fn writes_of(&self, user: &str, mark: Mark) -> Vec<String> {
        self.writes(user, mark).iter().map(title).collect()
    }

    fn writes(&self, user: &str, mark: Mark) -> Vec<LogEntry> {
        let mut writes = self.api.requests().writes_since(mark);
        writes.retain(|LogEntry { request, .. }| {
            request.user == user && request.resource != "events" && request.name != LEASE
        });
        writes
    }
}

fn title(entry: &LogEntry) -> String {
    let request = &entry.request;
    let subresource = match request.subresource.as_str() {
        "" => String::new(),
        subresource => format!("/{subresource}"),
    };
    format!("{} {}{subresource} {}", request.verb, request.resource, request.name)
}
