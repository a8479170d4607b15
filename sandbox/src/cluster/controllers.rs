//! The loop of the built-in controllers: watches feed the tables, changes ask for a look at what they touch, one look at
//! a time is decided and carried out. It decides nothing itself.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cache::Cache;
use super::clock::{Times, until};
use super::decision::Decision;
use super::effect::{Effect, Kind, Target};
use super::execute::{Answer, Executor, Refused};
use super::keys::{Key, NODE_LEASES, Touch};
use super::meta::{Id, controller_of, node_name, uid};
use super::queue::Queue;
use super::watching::watch_all;
use super::{deployment, endpoints, gc, namespaces, nodes, replicaset, scheduler};
use crate::api::Clock;

/// The field manager of the controllers' writes, as in Kubernetes.
const MANAGER: &str = "kube-controller-manager";

/// The controllers and the scheduler of a cluster. They stop when this is dropped.
#[derive(Debug)]
pub struct Controllers {
    tasks: JoinSet<()>,
}

impl Controllers {
    /// Starts them on a cluster. `clock` gives the times that they write.
    pub fn spawn(client: Client, clock: Clock) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(Loop::new(client.clone(), clock).run());
        tasks.spawn(gc::run(client.clone()));
        tasks.spawn(namespaces::run(client, clock));
        Self { tasks }
    }

    /// Stops them and waits until they have.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

enum Observed {
    Deployment(Event<Deployment>),
    ReplicaSet(Event<ReplicaSet>),
    Pod(Event<Pod>),
    Service(Event<Service>),
    Slice(Event<EndpointSlice>),
    Node(Event<Node>),
    Lease(Event<Lease>),
}

struct Loop {
    cache: Cache,
    queue: Queue<Key>,
    changes: SelectAll<BoxStream<'static, Observed>>,
    executor: Executor,
    clock: Clock,
    /// The nodes that pods name and that do not exist, and since when.
    missing: BTreeMap<String, Time>,
}

impl Loop {
    fn new(client: Client, clock: Clock) -> Self {
        let changes = futures::stream::select_all([
            follow(client.clone(), Observed::Node),
            follow(client.clone(), Observed::Lease),
            follow(client.clone(), Observed::Deployment),
            follow(client.clone(), Observed::ReplicaSet),
            follow(client.clone(), Observed::Pod),
            follow(client.clone(), Observed::Service),
            follow(client.clone(), Observed::Slice),
        ]);
        Self {
            cache: Cache::default(),
            queue: Queue::default(),
            changes,
            executor: Executor::new(client, MANAGER, clock),
            clock,
            missing: BTreeMap::new(),
        }
    }

    async fn run(mut self) {
        loop {
            let due = self.queue.next_due().filter(|_| self.cache.listed());
            let wake = until(due);
            tokio::select! {
                biased;
                Some(observed) = self.changes.next() => self.observe(observed),
                () = wake => {
                    if let Some(key) = self.queue.pop(Instant::now()) {
                        self.look_at(key).await;
                    }
                }
            }
        }
    }

    fn observe(&mut self, observed: Observed) {
        match observed {
            Observed::Deployment(event) => self.watched(event),
            Observed::ReplicaSet(event) => self.watched(event),
            Observed::Pod(event) => self.watched(event),
            Observed::Service(event) => self.watched(event),
            Observed::Slice(event) => self.watched(event),
            Observed::Node(event) => self.watched(event),
            Observed::Lease(event) => self.watched(event),
        }
    }

    fn watched<K: Touch>(&mut self, event: Event<K>) {
        for change in K::table(&mut self.cache).watched(event) {
            let keys = K::touched(&self.cache, &change);
            self.ask_for(keys);
        }
    }

    fn ask_for(&mut self, keys: Vec<Key>) {
        let now = Instant::now();
        for key in keys {
            self.queue.add(key, now);
        }
    }

    async fn look_at(&mut self, key: Key) {
        let done = match &key {
            Key::Deployment(id) => self.deployment(id).await,
            Key::ReplicaSet(id) => self.replica_set(id).await,
            Key::Service(id) => self.service(id).await,
            Key::Node(name) => self.node(name).await,
            Key::Pod(id) => self.pod(id).await,
        };
        match done {
            Ok(again) => {
                self.queue.succeeded(&key);
                if let Some(again) = again {
                    self.queue.add(key, self.clock.instant(&again));
                }
            }
            Err(refused) => {
                tracing::debug!(?key, %refused, "tried again later");
                self.queue.failed(key, Instant::now());
            }
        }
    }

    async fn deployment(&mut self, id: &Id) -> Result<Option<Time>, Refused> {
        let Some(deployment) = self.cache.deployments.get(id).cloned() else {
            return Ok(None);
        };
        let sets: Vec<_> = self.cache.replica_sets.within(&id.0).cloned().collect();
        let pods: Vec<_> = self.cache.pods.within(&id.0).cloned().collect();
        let now = self.clock.time();
        let decision = deployment::reconcile(&deployment, &sets, &pods, &now);
        for effect in &decision.effects {
            let Err(refused) = self.carry_out(effect).await else {
                continue;
            };
            if let Effect::Create(_, Some(announce)) = effect
                && !refused.namespace_terminating()
            {
                let message = format!("{}{}", announce.refused.1, refused.message());
                if let Some(effect) = deployment::set_refused(&deployment, message, &now) {
                    self.carry_out(&effect).await?;
                }
            }
            return Err(refused);
        }
        Ok(decision.again)
    }

    async fn replica_set(&mut self, id: &Id) -> Result<Option<Time>, Refused> {
        let Some(set) = self.cache.replica_sets.get(id).cloned() else {
            return Ok(None);
        };
        let now = self.clock.time();
        let owner = controller_of(&set.metadata).map(|owner| &owner.uid);
        let siblings: Vec<_> = self
            .cache
            .replica_sets
            .within(&id.0)
            .filter(|other| {
                uid(other.as_ref()) == uid(set.as_ref())
                    || owner.is_some() && controller_of(&other.metadata).map(|of| &of.uid) == owner
            })
            .cloned()
            .collect();
        let effects = replicaset::manage(&set, &self.pods_in(&id.0), &siblings, &now);
        let managed = self.carry_out_all(&effects).await;
        let refused = managed
            .as_ref()
            .err()
            .filter(|refused| !refused.namespace_terminating())
            .map(Refused::message);
        let decision = replicaset::status(&set, &self.pods_in(&id.0), refused.as_deref(), &now);
        self.carry_out_all(&decision.effects).await?;
        managed.map(|()| decision.again)
    }

    fn pods_in(&self, namespace: &str) -> Vec<Arc<Pod>> {
        self.cache.pods.within(namespace).cloned().collect()
    }

    async fn service(&mut self, id: &Id) -> Result<Option<Time>, Refused> {
        let Some(service) = self.cache.services.get(id).cloned() else {
            return Ok(None);
        };
        let slices: Vec<_> = self.cache.slices.within(&id.0).cloned().collect();
        let effects = endpoints::reconcile(&service, &self.pods_in(&id.0), &slices);
        self.carry_out_all(&effects).await.map(|()| None)
    }

    async fn node(&mut self, name: &str) -> Result<Option<Time>, Refused> {
        let Some(node) = self.cache.nodes.get(&(String::new(), name.to_owned())).cloned() else {
            return Ok(None);
        };
        let lease = self
            .cache
            .leases
            .get(&(NODE_LEASES.to_owned(), name.to_owned()))
            .cloned();
        let pods: Vec<_> = self.cache.pods.all().cloned().collect();
        let decision = nodes::reconcile(&node, lease.as_deref(), &pods, &self.clock.time());
        self.follow(decision).await
    }

    async fn pod(&mut self, id: &Id) -> Result<Option<Time>, Refused> {
        let Some(pod) = self.cache.pods.get(id).cloned() else {
            return Ok(None);
        };
        let now = self.clock.time();
        if scheduler::waits(&pod) {
            let nodes: Vec<_> = self.cache.nodes.all().cloned().collect();
            let pods: Vec<_> = self.cache.pods.all().cloned().collect();
            return self.follow(scheduler::schedule(&pod, &nodes, &pods, &now)).await;
        }
        let name = node_name(&pod).unwrap_or_default().to_owned();
        let node = self.cache.nodes.get(&(String::new(), name.clone())).cloned();
        let missing_since = match node {
            Some(_) => {
                self.missing.remove(&name);
                None
            }
            None => Some(self.missing.entry(name).or_insert_with(|| now.clone()).clone()),
        };
        self.follow(nodes::pod(&pod, node.as_deref(), missing_since.as_ref(), &now))
            .await
    }

    async fn follow(&mut self, decision: Decision) -> Result<Option<Time>, Refused> {
        self.carry_out_all(&decision.effects).await.map(|()| decision.again)
    }

    async fn carry_out_all(&mut self, effects: &[Effect]) -> Result<(), Refused> {
        for effect in effects {
            self.carry_out(effect).await?;
        }
        Ok(())
    }

    /// Does one thing and takes in what the server answered.
    async fn carry_out(&mut self, effect: &Effect) -> Result<(), Refused> {
        match self.executor.carry_out(effect).await {
            Ok(Answer::Object(kind, object)) => self.answered(kind, object)?,
            Ok(Answer::Gone(target)) => self.gone(&target),
            Ok(Answer::Bound(pod, node)) => {
                self.cache
                    .pods
                    .assume(&pod.id, |pod| pod.spec.get_or_insert_default().node_name = Some(node));
            }
            Ok(Answer::Nothing) => {}
            Err(refused) => {
                let Some(target) = effect.target().filter(|_| refused.not_found()) else {
                    return Err(refused);
                };
                self.gone(target);
                if !matches!(effect, Effect::Delete(_)) {
                    return Err(refused);
                }
            }
        }
        Ok(())
    }

    fn answered(&mut self, kind: Kind, object: Value) -> Result<(), Refused> {
        match kind {
            Kind::Deployment => self.wrote::<Deployment>(object),
            Kind::EndpointSlice => self.wrote::<EndpointSlice>(object),
            Kind::Node => self.wrote::<Node>(object),
            Kind::Pod => self.wrote::<Pod>(object),
            Kind::ReplicaSet => self.wrote::<ReplicaSet>(object),
        }
    }

    fn wrote<K: Touch + DeserializeOwned>(&mut self, object: Value) -> Result<(), Refused> {
        if let Some(change) = K::table(&mut self.cache).wrote(serde_json::from_value(object)?) {
            let keys = K::touched(&self.cache, &change);
            self.ask_for(keys);
        }
        Ok(())
    }

    fn gone(&mut self, target: &Target) {
        match target.kind {
            Kind::Deployment => self.deleted::<Deployment>(target),
            Kind::EndpointSlice => self.deleted::<EndpointSlice>(target),
            Kind::Node => self.deleted::<Node>(target),
            Kind::Pod => self.deleted::<Pod>(target),
            Kind::ReplicaSet => self.deleted::<ReplicaSet>(target),
        }
    }

    fn deleted<K: Touch>(&mut self, target: &Target) {
        if let Some(change) = K::table(&mut self.cache).deleted(&target.id, &target.uid) {
            let keys = K::touched(&self.cache, &change);
            self.ask_for(keys);
        }
    }
}

fn follow<K>(client: Client, wrap: fn(Event<K>) -> Observed) -> BoxStream<'static, Observed>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watch_all(Api::<K>::all(client)).map(wrap).boxed()
}
