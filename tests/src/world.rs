//! A cluster with the real engine on it: an API server, the built-in controllers, kubelets that do as a test says, and a
//! manager. In memory a minute passes at once. On a real control plane (see [`crate::cluster`]) settling takes as long as
//! something happens, and what is said of minutes is shortened.

mod users;
mod waiting;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use skerry_globalmanager::engine::{Engine, Pace, ResourceKey};
use skerry_sandbox::{
    api::{FaultHandle, LogEntry, Mark, RequestInfo},
    cluster::{Controllers, FakeKubelet, NodeSpec, Timing},
};
use tokio::sync::watch;

use crate::{
    definitions::{KINDS, definitions, install},
    manager::{Held, LEASE, LONGEST_RETRY, Manager, pace},
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
    /// What users wrote that the manager may not have heard of yet.
    unheard: RefCell<Vec<(ResourceKey, u64)>>,
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
            unheard: RefCell::default(),
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
        // It begins with all that is there.
        self.unheard.borrow_mut().clear();
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

    /// Has managers that start from now on try again about a second after each failure, as on a real control plane.
    pub fn retry_soon(&self) {
        self.pace.set(Pace {
            longest_retry: LONGEST_RETRY,
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
