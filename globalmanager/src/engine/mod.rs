//! The one reconcile engine, for all kinds.
//!
//! ```text
//! watch ─▶ cache ─▶ queue ─▶ pass: fetch inputs ─▶ plan (pure) ─▶ apply ─▶ status (pure) ─▶ patch
//!           │ ▲                                                      │
//!           │ └────────────────── answers to writes ─────────────────┘
//!           └─▶ placing: plan (pure) ─▶ edge objects per node ─▶ hub
//! ```
//!
//! Level-triggered: a watch only fills the cache and asks for a look; what is to be done is decided by the pass, from
//! the cache alone. The engine knows effects, retries and order; of a kind it knows what [`Kind`] tells.

mod addresses;
mod apply;
mod cache;
mod driver;
mod events;
mod fold;
mod heard;
mod ownership;
mod packed;
mod pass;
mod placing;
mod queue;
mod references;
mod reports;
mod same;
mod second_look;
mod status;
mod strays;
mod trim;
mod turns;
mod watches;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{Client, core::object::HasStatus};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use skerry_workloads::{Kind, NodePart, ObjectKind, Settings};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::queue::Ended;
pub use self::reports::{NodeReport, Start, Taken};
use self::{
    addresses::Addresses,
    cache::Cache,
    driver::{Driven, Driver},
    queue::Queue,
    references::{Named, Secrets},
};
use crate::metrics::Metrics;

/// A pass that takes longer is ended and tried again: the client has no read time-out of its own.
const PASS_TIMEOUT: Duration = Duration::from_secs(60);
/// Passes at once: enough to hide the API server's latency, few enough not to storm it. Each has one request under way, or a
/// few while it looks up what it may make. A busy API server has about twenty of Kubernetes' controllers, and serves all alike:
/// with fewer, these do more before the children are there. More would take memory.
pub const PASSES_AT_ONCE: usize = 40;

/// A resource: kind, namespace, name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Where the parts of resources that edge nodes hold are kept: the hub, or nothing at all.
pub trait NodeParts: Send + Sync + 'static {
    /// What this resource (of this uid and generation) places on nodes, whole: a node that is not named holds nothing.
    fn set(&self, owner: &ResourceKey, uid: &str, generation: i64, placement: Placement);
    /// Whether that is what it places on nodes already, since it was set last.
    fn holds(&self, owner: &ResourceKey, uid: &str, generation: i64, placement: Placement) -> bool;
    /// The resource is not there: gone, unless no list of its kind has been seen in this term.
    fn owner_gone(&self, owner: &ResourceKey);
    /// A consistent list of `kind` named exactly these resources; owners that it does not name are gone.
    fn kind_listed(&self, kind: ObjectKind, owners: Vec<(String, String)>);
    /// A list of `kind` failed, because there is no such kind perhaps: no owner counts as gone until one succeeds.
    fn kind_unknown(&self, kind: ObjectKind);
}

/// What a resource places on nodes, by their names.
pub type Placement = BTreeMap<String, (NodePart, Option<Credential>)>;

/// The content of a Secret that a node needs; prints as `[redacted]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// The Secret's name.
    pub secret: String,
    /// Annotations and decoded data, by key.
    pub fields: BTreeMap<String, String>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({}, [redacted])", self.secret)
    }
}

/// What the engine works with.
pub struct Parts {
    /// The API server.
    pub client: Client,
    /// The namespace that is watched; all where none is named.
    pub namespace: Option<String>,
    /// What plans are given.
    pub settings: Settings,
    /// Whether this process holds the lease: only then does it write.
    pub leader: watch::Receiver<bool>,
    /// Where edge objects go.
    pub nodes: Arc<dyn NodeParts>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The name of this process, in events.
    pub instance: String,
    /// The wall clock, for what statuses say of times; virtual in tests.
    pub clock: Clock,
    /// How long things are put off.
    pub pace: Pace,
}

/// How long the engine puts things off: by default as suits a cluster, sooner where a test has to wait for it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The longest wait after failures of one resource.
    pub longest_retry: Duration,
    /// The least time between two writes of one status.
    pub status: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            longest_retry: queue::LONGEST_RETRY,
            status: status::PAUSE,
        }
    }
}

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The engine; cheap to clone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    parts: Parts,
    drivers: BTreeMap<ObjectKind, Arc<dyn Driver>>,
    cache: Mutex<Cache>,
    queue: Mutex<Queue<ResourceKey>>,
    asked: Notify,
    placing: Mutex<Queue<ResourceKey>>,
    to_place: Notify,
    named: Mutex<Named>,
    addresses: Addresses,
    secrets: Secrets,
    events: events::Events,
    status_written: status::Written,
}

/// The kinds that the engine drives; one line each.
#[derive(Default)]
pub struct Kinds(BTreeMap<ObjectKind, Arc<dyn Driver>>);

impl Kinds {
    /// Adds a kind.
    #[must_use]
    pub fn with<K: Kind + HasStatus<Status: DeserializeOwned>>(mut self) -> Self {
        self.0.insert(K::KIND, Arc::new(Driven::<K>::new()));
        self
    }

    /// Every kind that is watched for the sake of these: the manager has to be allowed to.
    pub fn watched(&self) -> Vec<ObjectKind> {
        watched(&self.0)
    }
}

impl Engine {
    /// An engine for these kinds; nothing happens before [`Engine::run`].
    pub fn new(parts: Parts, kinds: Kinds) -> Self {
        let events = events::Events::new(parts.client.clone(), &parts.instance, parts.clock.clone());
        let secrets = Secrets::new(parts.client.clone());
        let queue = Queue::new(parts.pace.longest_retry);
        Self {
            shared: Arc::new(Shared {
                parts,
                drivers: kinds.0,
                cache: Mutex::default(),
                queue: Mutex::new(queue),
                asked: Notify::new(),
                placing: Mutex::new(Queue::new(Duration::ZERO)),
                to_place: Notify::new(),
                named: Mutex::default(),
                addresses: Addresses::default(),
                secrets,
                events,
                status_written: status::Written::default(),
            }),
        }
    }

    /// Watches and reconciles until `stop`; passes under way are then finished.
    pub async fn run(&self, stop: CancellationToken) {
        let mut watches = watches::spawn_all(self, &stop);
        let (placer, stopped) = (self.clone(), stop.clone());
        watches.spawn(async move {
            stopped.run_until_cancelled(placing::run(&placer)).await;
        });
        let mut leader = self.shared.parts.leader.clone();
        let mut passes = JoinSet::new();
        loop {
            let next = self.start_due(&mut passes);
            let full = passes.len() >= PASSES_AT_ONCE;
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.shared.asked.notified() => {}
                () = wait_until(next), if !full => {}
                Some(_) = passes.join_next() => {}
                Ok(()) = leader.changed() => self.ask_for_all(),
            }
        }
        while passes.join_next().await.is_some() {}
        watches.shutdown().await;
    }

    /// What keeps the engine from working: the kinds whose first list has not come.
    pub fn missing(&self) -> Vec<ObjectKind> {
        let cache = self.shared.cache.lock();
        self.watched_kinds()
            .into_iter()
            .filter(|kind| !cache.listed(*kind))
            .collect()
    }

    /// Whether no pass is under way or due within `time`, and nothing is to be placed on nodes.
    pub fn idle(&self, time: Duration) -> bool {
        let then = Instant::now() + time;
        self.shared.queue.lock().idle_until(then) && self.shared.placing.lock().idle_until(then)
    }

    /// Whether this state of a resource, or a later one, or its deletion was seen: what is decided from now on follows from
    /// it. Of objects that concern no resource nothing is known.
    pub fn has_seen(&self, key: &ResourceKey, version: u64) -> bool {
        let name = (key.namespace.clone(), key.name.clone());
        self.shared.cache.lock().reaches(key.kind, &name, version)
    }

    /// Asks for a look at a resource now.
    pub fn ask(&self, key: ResourceKey) {
        self.ask_at(key, Instant::now());
    }

    /// Whether resources that no pass looks at are due for one.
    fn others_are_due(&self) -> bool {
        let due = self.shared.queue.lock().due_at();
        due.is_some_and(|due| due <= Instant::now())
    }

    /// Whether others come before telling of a resource of which something is left to tell since then: theirs may be children
    /// that are missing or wrong, or they have waited longer to tell of theirs.
    fn others_come_before(&self, key: &ResourceKey, since: Instant) -> bool {
        let queue = self.shared.queue.lock();
        queue.others_come_before(key, since, Instant::now())
    }

    /// Asks that the hub be told what a resource places on nodes.
    fn place(&self, key: ResourceKey) {
        self.shared.placing.lock().ask(key, Instant::now());
        self.shared.to_place.notify_one();
    }

    fn ask_at(&self, key: ResourceKey, at: Instant) {
        self.shared.queue.lock().ask(key, at);
        self.shared.asked.notify_one();
    }

    fn ask_after_others(&self, key: ResourceKey, since: Instant) {
        self.shared.queue.lock().ask_after_others(key, since);
        self.shared.asked.notify_one();
    }

    fn ask_for_all(&self) {
        for kind in self.shared.drivers.keys() {
            let names = self.shared.cache.lock().names(*kind);
            for (namespace, name) in names {
                self.ask(ResourceKey {
                    kind: *kind,
                    namespace,
                    name,
                });
            }
        }
    }

    /// Starts passes over what is due, and tells when more may be.
    fn start_due(&self, passes: &mut JoinSet<()>) -> Option<Instant> {
        let now = Instant::now();
        let mut queue = self.shared.queue.lock();
        while passes.len() < PASSES_AT_ONCE
            && let Some(key) = queue.next(now)
        {
            self.shared.parts.metrics.queue_depth(queue.depth());
            passes.spawn(self.clone().one_pass(key));
        }
        queue.next_at(now)
    }

    async fn one_pass(self, key: ResourceKey) {
        let started = Instant::now();
        let ended = match self.shared.drivers.get(&key.kind).cloned() {
            Some(driver) => self.timed_pass(driver.as_ref(), &key).await,
            None => Ended::Well,
        };
        self.shared
            .parts
            .metrics
            .reconciled(key.kind.kind, ended, started.elapsed());
        self.shared
            .queue
            .lock()
            .done(key, ended, Instant::now(), rand::random());
        self.shared.asked.notify_one();
    }

    async fn timed_pass(&self, driver: &dyn Driver, key: &ResourceKey) -> Ended {
        match tokio::time::timeout(PASS_TIMEOUT, driver.pass(self, key)).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(error)) => {
                let category = error.category();
                tracing::warn!(kind = key.kind.kind, namespace = key.namespace, name = key.name, category, %error,
                    "the pass failed and is tried again");
                self.shared.parts.metrics.failed(key.kind.kind, category);
                Ended::Failed
            }
            Err(_) => {
                tracing::warn!(
                    kind = key.kind.kind,
                    namespace = key.namespace,
                    name = key.name,
                    "the pass took longer than {PASS_TIMEOUT:?} and is tried again"
                );
                self.shared.parts.metrics.failed(key.kind.kind, "timeout");
                Ended::Failed
            }
        }
    }

    fn watched_kinds(&self) -> Vec<ObjectKind> {
        watched(&self.shared.drivers)
    }

    /// The time, to the second: what Kubernetes' times can hold.
    fn now(&self) -> Timestamp {
        let now = (self.shared.parts.clock)();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }

    fn is_leader(&self) -> bool {
        *self.shared.parts.leader.borrow()
    }
}

fn watched(drivers: &BTreeMap<ObjectKind, Arc<dyn Driver>>) -> Vec<ObjectKind> {
    let mut kinds: Vec<_> = drivers.values().flat_map(|driver| driver.watched()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
