//! A manager in a test: the real engine with all its kinds, and in place of the hub a record of what nodes were told.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;
use skerry_globalmanager::{
    engine::{Engine, NodeParts, Pace, Parts, Placement, ResourceKey},
    lease::{self, Claim},
    metrics::Metrics,
    run::kinds,
};
use skerry_workloads::{ObjectKind, Settings};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{server::Server, world::NAMESPACE};

/// What nodes hold, as a manager last said.
#[derive(Clone, Default)]
pub struct Held(Arc<Mutex<BTreeMap<ResourceKey, Placement>>>);

impl Held {
    /// What `node` holds of a resource.
    pub fn on(&self, node: &str, kind: ObjectKind, name: &str) -> Option<Value> {
        Some(self.parts(kind, name).get(node)?.0.body.clone())
    }

    /// What all nodes hold of a resource.
    pub fn parts(&self, kind: ObjectKind, name: &str) -> Placement {
        let key = ResourceKey {
            kind,
            namespace: NAMESPACE.to_owned(),
            name: name.to_owned(),
        };
        self.0.lock().unwrap().get(&key).cloned().unwrap_or_default()
    }

    /// All of it: resource, node, object.
    pub fn all(&self) -> Vec<(String, String, Value)> {
        let held = self.0.lock().unwrap();
        let parts = held
            .iter()
            .flat_map(|(key, placed)| placed.iter().map(move |(node, (part, _))| (key, node, part)));
        parts
            .map(|(key, node, part)| {
                (
                    format!("{}/{}", key.kind.kind, key.name),
                    node.clone(),
                    part.body.clone(),
                )
            })
            .collect()
    }

    /// A manager that starts remembers nothing.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

impl NodeParts for Held {
    fn set(&self, owner: &ResourceKey, _: &str, _: i64, placement: Placement) {
        self.0.lock().unwrap().insert(owner.clone(), placement);
    }

    fn holds(&self, owner: &ResourceKey, _: &str, _: i64, placement: Placement) -> bool {
        self.0.lock().unwrap().get(owner) == Some(&placement)
    }

    fn owner_gone(&self, owner: &ResourceKey) {
        self.0.lock().unwrap().remove(owner);
    }

    fn kind_listed(&self, kind: ObjectKind, owners: Vec<(String, String)>) {
        let named = |key: &ResourceKey| owners.contains(&(key.namespace.clone(), key.name.clone()));
        self.0.lock().unwrap().retain(|key, _| key.kind != kind || named(key));
    }

    fn kind_unknown(&self, _: ObjectKind) {}
}

/// Where time passes, a pod that was lost is replaced ten times as soon.
fn settings(api: &Server) -> Settings {
    let mut settings = Settings::default();
    if let Server::Cluster(_) = api {
        settings.replace_lost_after = Duration::from_secs(1);
    }
    settings
}

/// The longest wait after failures, where the usual five minutes would outlast what a test waits for.
pub(crate) const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// How long a manager puts things off: where time passes, nobody waits minutes for one that was refused nine times, nor a
/// second for a status.
pub(crate) fn pace(api: &Server) -> Pace {
    match api {
        Server::Sandbox(_) => Pace::default(),
        Server::Cluster(_) => Pace {
            longest_retry: LONGEST_RETRY,
            status: Duration::from_millis(100),
        },
    }
}

/// One run of a manager's process.
pub struct Manager {
    /// Its engine.
    pub engine: Engine,
    /// All that runs in it.
    tasks: JoinSet<()>,
}

impl Manager {
    /// Starts a manager as `user` that leads whenever `leader` says so.
    pub fn start(api: &Server, user: &str, held: &Held, leader: watch::Receiver<bool>, pace: Pace) -> Self {
        held.clear();
        let clock = api.clock();
        let parts = Parts {
            client: api.manager(user),
            namespace: None,
            settings: settings(api),
            leader,
            nodes: Arc::new(held.clone()),
            metrics: Metrics::new(),
            instance: user.to_owned(),
            clock: Arc::new(move || clock.now()),
            pace,
        };
        let engine = Engine::new(parts, kinds());
        let running = engine.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { running.run(CancellationToken::new()).await });
        Self { engine, tasks }
    }

    /// Starts a manager as `user` that leads while it holds the Lease.
    pub fn contend(api: &Server, user: &str, held: &Held) -> Self {
        let (leads, leader) = watch::channel(false);
        let mut manager = Self::start(api, user, held, leader, pace(api));
        let (epochs, mut epoch) = watch::channel(None);
        let claim = Claim {
            namespace: NAMESPACE.to_owned(),
            name: LEASE.to_owned(),
            claimant: user.to_owned(),
        };
        let (client, troubles) = (api.manager(user), watch::Sender::new(None));
        manager
            .tasks
            .spawn(async move { lease::hold(client, claim, epochs, troubles, CancellationToken::new()).await });
        manager.tasks.spawn(async move {
            while epoch.changed().await.is_ok() {
                leads.send_replace(epoch.borrow_and_update().is_some());
            }
        });
        manager
    }

    /// Ends it as SIGKILL does, in the midst of whatever it was doing.
    pub async fn kill(mut self) {
        self.tasks.shutdown().await;
    }
}

/// The Lease over which managers contend.
pub const LEASE: &str = "skerry-globalmanager";
