//! Fills the cache from one watch a kind, and asks for a look at whichever resource an object concerns.
//!
//! Nothing is decided here: an event that is missed or seen twice changes no outcome.

use std::{collections::BTreeSet, time::Duration};

use backon::ExponentialBuilder;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::ApiResource,
    core::{DynamicObject, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        utils::{Backoff, ResetTimerBackoff},
        watcher,
    },
};
use serde_json::Value;
use skerry_workloads::ObjectKind;
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Engine, ResourceKey,
    cache::{self, News},
    driver::{Change, Follows},
    trim,
};

/// The wait after a watch's first failure; it doubles.
const FIRST_RETRY: Duration = Duration::from_millis(800);
/// The longest wait, to which up to as much is added by chance.
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// A watch that held so long is tried again soon after its next failure.
const STABLE: Duration = Duration::from_secs(120);

/// How many objects a list is asked for at once: a page is parsed as a whole, and weighs ten times as much then.
const LIST_PAGE: u32 = 100;

/// How the API machinery names a kind.
fn api_resource(kind: ObjectKind) -> ApiResource {
    ApiResource {
        group: kind.group.into(),
        version: kind.version.into(),
        api_version: kind.api_version(),
        kind: kind.kind.into(),
        plural: kind.plural.into(),
    }
}

/// Starts the watch of every kind that the engine needs.
pub(crate) fn spawn_all(engine: &Engine, stop: &CancellationToken) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    for kind in engine.watched_kinds() {
        let (engine, stop) = (engine.clone(), stop.clone());
        watches.spawn(async move { stop.run_until_cancelled(watch(&engine, kind)).await.unwrap_or_default() });
    }
    watches
}

/// Watches `kind`; one that we drive is listed anew when a term begins. What a standby knows may be older than what the
/// manager before it placed on nodes, and what a list of this term names is all that may be held against that.
async fn watch(engine: &Engine, kind: ObjectKind) {
    if !engine.shared.drivers.contains_key(&kind) {
        return list_and_watch(engine, kind).await;
    }
    let mut leader = engine.shared.parts.leader.clone();
    loop {
        tokio::select! {
            () = list_and_watch(engine, kind) => return,
            () = term_begins(engine, kind, &mut leader) => {}
        }
    }
}

async fn term_begins(engine: &Engine, kind: ObjectKind, leader: &mut tokio::sync::watch::Receiver<bool>) {
    while leader.changed().await.is_ok() {
        // Either it is over, or another one begins.
        engine.shared.cache.lock().term_ended(kind);
        if *leader.borrow_and_update() {
            return;
        }
    }
    std::future::pending::<()>().await;
}

fn in_pages() -> watcher::Config {
    watcher::Config::default().page_size(LIST_PAGE)
}

async fn list_and_watch(engine: &Engine, kind: ObjectKind) {
    if kind == ObjectKind::SECRET {
        return watch_secrets(engine).await;
    }
    let client = engine.shared.parts.client.clone();
    let resource = api_resource(kind);
    let api: Api<DynamicObject> = match &engine.shared.parts.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    follow(engine, kind, watcher(api, in_pages()), |object| {
        trim::trim(kind, object)
    })
    .await;
}

/// That a Secret changed is enough: its content is read when a resource that names it is looked at.
async fn watch_secrets(engine: &Engine) {
    let client = engine.shared.parts.client.clone();
    let api: Api<PartialObjectMeta<Secret>> = match &engine.shared.parts.namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let kind = ObjectKind::SECRET;
    follow(engine, kind, watcher(api, in_pages()), |object| {
        trim::metadata_only(kind, object)
    })
    .await;
}

/// How soon a watch that failed is tried again. [`WatchStreamExt::default_backoff`] would leave what users do after a long
/// outage unseen for a minute; a few requests every few seconds hurt no API server that struggles.
fn retries() -> impl Backoff {
    let builder = ExponentialBuilder::default()
        .with_min_delay(FIRST_RETRY)
        .with_max_delay(LONGEST_RETRY)
        .without_max_times()
        .with_jitter();
    ResetTimerBackoff::new(watcher::ExponentialBackoff::from(builder), STABLE)
}

async fn follow<O>(
    engine: &Engine,
    kind: ObjectKind,
    events: impl futures::Stream<Item = watcher::Result<watcher::Event<O>>>,
    trim: impl Fn(O) -> Value,
) {
    let mut events = std::pin::pin!(events.backoff(retries()));
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => engine.shared.cache.lock().list_begins(kind, engine.is_leader()),
            Ok(watcher::Event::InitApply(object)) => engine.learn(kind, &trim(object), true),
            Ok(watcher::Event::InitDone) => engine.list_ended(kind),
            Ok(watcher::Event::Apply(object)) => engine.learn(kind, &trim(object), false),
            Ok(watcher::Event::Delete(object)) => {
                let object = trim(object);
                engine.shared.cache.lock().lose(kind, &object);
                engine.ask_for_concerned(kind, [&object], Change::Any);
            }
            Err(error) => {
                if matches!(error, watcher::Error::InitialListFailed(_)) && engine.shared.drivers.contains_key(&kind) {
                    engine.shared.parts.nodes.kind_unknown(kind);
                }
                engine.shared.parts.metrics.watch_failed(kind.kind);
                tracing::warn!(kind = kind.kind, %error, "the watch failed; what is known stays, and it is tried again");
            }
        }
    }
}

impl Engine {
    /// The objects of a kind in a namespace, at the API server.
    pub(crate) fn objects(&self, kind: ObjectKind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.shared.parts.client.clone(), namespace, &api_resource(kind))
    }

    /// Takes in an object's state; where it is news, whoever it concerns is looked at.
    pub(crate) fn learn(&self, kind: ObjectKind, object: &Value, from_list: bool) {
        if !self.is_declared(kind) && !trim::concerns_us(object) {
            // It may have concerned us until now: its owner reference was taken away, or its name taken over.
            let (namespace, name) = cache::name_of(object);
            let before = {
                let mut cache = self.shared.cache.lock();
                let before = cache.get(kind, &namespace, &name);
                before.filter(|_| cache.lose(kind, object))
            };
            if let Some(before) = before {
                self.ask_for_concerned(kind, [&before], Change::Any);
            }
            return;
        }
        let news = self.shared.cache.lock().learn(kind, object, from_list);
        match news {
            News::None => {}
            News::Appeared => self.ask_for_concerned(kind, [object], Change::Any),
            News::Status => self.ask_for_concerned(kind, [object], Change::Status),
            News::Changed(before) => self.ask_for_concerned(kind, [object, &before], Change::Any),
        }
    }

    /// Takes in the answer to what a pass has written of a child.
    pub(crate) fn learn_ours(&self, kind: ObjectKind, object: &Value) {
        if self.shared.cache.lock().learn(kind, object, false) != News::None {
            self.ask_for_concerned(kind, [object], Change::Ours);
        }
    }

    fn list_ended(&self, kind: ObjectKind) {
        let gone = self.shared.cache.lock().list_ends(kind);
        for object in gone {
            self.ask_for_concerned(kind, [&object], Change::Any);
        }
        if self.shared.drivers.contains_key(&kind) {
            let owners = self.shared.cache.lock().names(kind);
            self.shared.parts.nodes.kind_listed(kind, owners);
        }
        // A resource that was looked at too early waits for exactly this.
        self.ask_for_all();
    }

    /// Has the resources looked at that these states of an object concern: now, where other children may follow from its change,
    /// and else after those. Where children come up by the thousand, statuses are most of what is heard: they are looked at
    /// together with what follows them.
    fn ask_for_concerned<const N: usize>(&self, kind: ObjectKind, states: [&Value; N], change: Change) {
        let concerned: BTreeSet<_> = states
            .into_iter()
            .flat_map(|state| self.concerned(kind, state))
            .collect();
        for key in concerned {
            let Some(driver) = self.shared.drivers.get(&key.kind) else {
                continue;
            };
            let follows = driver.follows(kind, change);
            // Passes see to what follows for nodes from anything else.
            let is_for_nodes = match follows {
                Follows::Children => self.is_declared(kind),
                Follows::Told => change == Change::Any,
            };
            if is_for_nodes {
                self.place(key.clone());
            }
            let pause = self.shared.parts.pace.status;
            let soon = self.shared.status_written.next(&key, pause);
            match (follows, change) {
                (Follows::Children, Change::Any | Change::Ours) => self.ask(key),
                (Follows::Children, Change::Status) => self.ask_at(key, soon),
                (Follows::Told, Change::Any | Change::Status) => self.ask_after_others(key, soon),
                // Together with what others make of it.
                (Follows::Told, Change::Ours) => self.ask_after_others(key, Instant::now() + pause),
            }
        }
    }

    /// The resources that an object concerns.
    fn concerned(&self, kind: ObjectKind, object: &Value) -> Vec<ResourceKey> {
        let (namespace, name) = cache::name_of(object);
        let mut concerned = self.shared.named.lock().by(kind, &namespace, &name);
        if self.shared.drivers.contains_key(&kind) {
            concerned.push(ResourceKey {
                kind,
                namespace: namespace.clone(),
                name: name.clone(),
            });
        }
        concerned.extend(self.owner_of(object, &namespace));
        concerned.extend(self.labelled_owners(object, &namespace));
        concerned
    }

    /// Whether users declare objects of this kind: resources, and what these name. All others are children.
    fn is_declared(&self, kind: ObjectKind) -> bool {
        self.shared.drivers.contains_key(&kind)
            || matches!(kind, ObjectKind::MODEL | ObjectKind::DATASET | ObjectKind::SECRET)
    }

    fn owner_of(&self, object: &Value, namespace: &str) -> Option<ResourceKey> {
        let (owner_kind, name, _) = cache::controller_of(object)?;
        let kind = *self.shared.drivers.keys().find(|kind| kind.kind == owner_kind)?;
        Some(ResourceKey {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Owners by the label `<kind, lower-case>.sedna.io/name`.
    fn labelled_owners(&self, object: &Value, namespace: &str) -> Vec<ResourceKey> {
        let labels = object
            .pointer("/metadata/labels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        let named = labels.filter_map(|(key, name)| Some((key.strip_suffix(".sedna.io/name")?, name.as_str()?)));
        named
            .filter_map(|(lower, name)| {
                let kind = *self
                    .shared
                    .drivers
                    .keys()
                    .find(|kind| kind.kind.eq_ignore_ascii_case(lower))?;
                Some(ResourceKey {
                    kind,
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                })
            })
            .collect()
    }
}
