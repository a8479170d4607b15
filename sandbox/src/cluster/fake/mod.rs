//! A kubelet without processes, for tests in virtual time: pods start, become ready, end and fail as the test says, and
//! deleted pods go after their grace period.
//!
//! It stands for the kubelets of all its nodes, each of which goes about its own pods, one after the other. It never starts
//! anything and knows no probes or volumes.

mod act;
mod script;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::cache::Table;
use super::clock::{Times, until};
use super::heartbeat;
use super::meta::{Id, id};
use super::node::NodeSpec;
use super::queue::Queue;
use super::report;
use super::watching::watch_fields;
use crate::api::Clock;
use act::{Act, Place, act, evicted};
use script::Script;
pub use script::{Behaviour, Timing};

/// The kubelets of some nodes. They stop when this is dropped.
#[derive(Clone)]
pub struct FakeKubelet {
    shared: Arc<Shared>,
    _tasks: Arc<JoinSet<()>>,
}

struct Shared {
    script: Mutex<Script>,
    changed: watch::Sender<()>,
    /// How many pods got an address so far.
    started: AtomicU32,
}

impl FakeKubelet {
    /// Makes the nodes known and starts their kubelets. By default every pod runs and becomes ready.
    pub async fn spawn(
        client: Client,
        clock: Clock,
        nodes: impl IntoIterator<Item = NodeSpec>,
    ) -> Result<Self, kube::Error> {
        let shared = Arc::new(Shared {
            script: Mutex::default(),
            changed: watch::Sender::new(()),
            started: AtomicU32::new(0),
        });
        let mut names = Vec::new();
        let mut tasks = JoinSet::new();
        for (index, node) in (1_u8..=250).zip(nodes) {
            let address = format!("192.0.2.{index}");
            heartbeat::register(&client, &clock, &node, &address).await?;
            names.push(node.name.clone());
            tasks.spawn(Tending::new(client.clone(), clock, node.name, address, shared.clone()).run());
        }
        tasks.spawn(beat(client, clock, names, shared.clone()));
        Ok(Self {
            shared,
            _tasks: Arc::new(tasks),
        })
    }

    /// Says what pods do, running ones too. The latest rule that answers for a pod counts.
    pub fn behave(&self, rule: impl Fn(&Pod) -> Option<Behaviour> + Send + Sync + 'static) {
        self.direct(|script| script.rules.push(Arc::new(rule)));
    }

    /// Says how long things take.
    pub fn set_timing(&self, timing: Timing) {
        self.direct(|script| script.timing = timing);
    }

    /// Gives a sign of life so often, where nodes are given up sooner than they are by default.
    pub fn beat_every(&self, period: Duration) {
        self.direct(|script| script.beat = Some(period));
    }

    /// How long things take.
    pub fn timing(&self) -> Timing {
        self.shared.read(|script| script.timing.clone())
    }

    /// Ends a pod's containers once, now or when they run.
    pub fn exit(&self, namespace: &str, pod: &str, code: i32) {
        self.direct(|script| {
            script.exits.insert((namespace.to_owned(), pod.to_owned()), code);
        });
    }

    /// Evicts a pod for lack of a resource, as a node under pressure does.
    pub fn evict(&self, namespace: &str, pod: &str) {
        let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ".to_owned();
        self.direct(|script| {
            script.evictions.insert((namespace.to_owned(), pod.to_owned()), message);
        });
    }

    /// Silences a node: its pods stay as they are, its Lease runs out.
    pub fn lose_node(&self, node: &str) {
        self.direct(|script| {
            script.lost.insert(node.to_owned());
        });
    }

    /// Brings a silenced node back.
    pub fn restore_node(&self, node: &str) {
        self.direct(|script| {
            script.lost.remove(node);
        });
    }

    fn direct(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.shared.script.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.changed.send_replace(());
    }
}

impl Shared {
    fn read<T>(&self, question: impl FnOnce(&mut Script) -> T) -> T {
        question(&mut self.script.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Gives signs of life for all nodes that are not lost; at once for one that comes back.
async fn beat(client: Client, clock: Clock, nodes: Vec<String>, shared: Arc<Shared>) {
    let mut changed = shared.changed.subscribe();
    loop {
        let period = shared.read(|script| script.beat).unwrap_or(heartbeat::PERIOD);
        let there = nodes
            .iter()
            .filter(|node| shared.read(|script| !script.lost.contains(*node)));
        let signs = there.map(async |node| {
            let alive = async {
                heartbeat::beat(&client, &clock, node).await?;
                heartbeat::contradict(&client, &clock, node).await
            };
            match timeout(period, alive).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(node, %error, "no sign of life given"),
                Err(_) => tracing::debug!(node, "no sign of life was taken in time"),
            }
        });
        join_all(signs).await;
        // The sender is ours too, so it cannot be gone; either way the next beat is due.
        let _ = timeout(period, changed.changed()).await;
    }
}

/// What one node's kubelet does.
struct Tending {
    client: Client,
    clock: Clock,
    node: String,
    address: String,
    shared: Arc<Shared>,
    pods: Table<Pod>,
    queue: Queue<Id>,
}

impl Tending {
    fn new(client: Client, clock: Clock, node: String, address: String, shared: Arc<Shared>) -> Self {
        let (pods, queue) = (Table::default(), Queue::default());
        Self {
            client,
            clock,
            node,
            address,
            shared,
            pods,
            queue,
        }
    }

    async fn run(mut self) {
        let mut events = watch_fields(
            Api::<Pod>::all(self.client.clone()),
            &format!("spec.nodeName={}", self.node),
        );
        let mut changed = self.shared.changed.subscribe();
        loop {
            let due = self.queue.next_due();
            let wake = until(due);
            tokio::select! {
                biased;
                Some(event) = events.next() => {
                    let seen = self.pods.watched(event);
                    let pods = seen.iter().filter_map(|change| change.new.as_ref());
                    pods.for_each(|pod| self.queue.add(id(pod.as_ref()), Instant::now()));
                }
                Ok(()) = changed.changed() => self.pods.all().for_each(|pod| self.queue.add(id(pod.as_ref()), Instant::now())),
                () = wake => {
                    if let Some(id) = self.queue.pop(Instant::now()) {
                        self.look_at(id).await;
                    }
                }
            }
        }
    }

    async fn look_at(&mut self, id: Id) {
        let Some(pod) = self.pods.get(&id).cloned() else { return };
        if self.shared.read(|script| script.lost.contains(&self.node)) {
            return;
        }
        match self.carry_out(&pod).await {
            Ok(()) => self.queue.succeeded(&id),
            Err(error) => {
                tracing::debug!(pod = id.1, %error, "tried again later");
                self.queue.failed(id, Instant::now());
            }
        }
    }

    async fn carry_out(&mut self, pod: &Pod) -> Result<(), kube::Error> {
        let (now, id) = (self.clock.time(), id(pod));
        let place = Place {
            pod_ip: self.pod_ip(pod),
            host_ip: self.address.clone(),
        };
        let (behaviour, timing, eviction) = self.shared.read(|script| {
            (
                script.behaviour(pod),
                script.timing.clone(),
                script.evictions.get(&id).cloned(),
            )
        });
        if let Some(message) = eviction {
            self.report(pod, &evicted(pod, &message, place, &now)).await?;
            self.shared.read(|script| script.evictions.remove(&id));
            return Ok(());
        }
        match act(pod, &behaviour, &timing, place, &now) {
            Act::Wait(again) => {
                if let Some(again) = again {
                    self.queue.add(id, self.clock.instant(&again));
                }
                Ok(())
            }
            Act::Report(status) => {
                self.report(pod, &status).await?;
                if ended(&status) {
                    self.shared.read(|script| script.exits.remove(&id));
                }
                Ok(())
            }
            Act::Remove(status) => {
                self.report(pod, &status).await?;
                report::removal(&self.client, pod).await
            }
        }
    }

    /// A pod keeps its address; one in the node's network has the node's.
    fn pod_ip(&self, pod: &Pod) -> String {
        let known = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        if pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default() {
            return self.address.clone();
        }
        known.unwrap_or_else(|| pod_address(self.shared.started.fetch_add(1, Ordering::Relaxed)))
    }

    async fn report(&mut self, pod: &Pod, status: &PodStatus) -> Result<(), kube::Error> {
        if let Some(pod) = report::status(&self.client, pod, status).await? {
            let id = id(&pod);
            if self.pods.wrote(pod).is_some() {
                self.queue.add(id, Instant::now());
            }
        }
        Ok(())
    }
}

/// The address of a pod that gets one after so many others. There are three quarters of a million; then they begin again.
fn pod_address(before: u32) -> String {
    let (net, host) = (before / 250, before % 250 + 2);
    format!("10.{}.{}.{host}", 244 + net / 256 % 12, net % 256)
}

/// Whether the containers have come to the end that a test asked for.
fn ended(status: &PodStatus) -> bool {
    let statuses = status.container_statuses.iter().flatten();
    statuses
        .filter_map(|container| container.state.as_ref())
        .any(|state| state.terminated.is_some())
}

#[cfg(test)]
mod tests {
    use super::pod_address;

    #[test]
    fn the_addresses_of_pods_differ_and_are_valid() {
        let address = |before| pod_address(before).parse::<std::net::Ipv4Addr>().unwrap().octets();
        assert_eq!(address(0), [10, 244, 0, 2]);
        assert_eq!(address(249), [10, 244, 0, 251]);
        assert_eq!(address(250), [10, 244, 1, 2]);
        assert_eq!(address(64_000), [10, 245, 0, 2]);
        assert_eq!(address(767_999), [10, 255, 255, 251]);
        assert_eq!(address(768_000), address(0));
    }
}
