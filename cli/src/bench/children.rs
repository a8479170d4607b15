//! What the bench sees of children: which there are, whose they are, and since when they are as they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::ApiResource,
    core::{DynamicObject, PartialObjectMeta},
    runtime::watcher::{self, Event, watcher},
};
use parking_lot::Mutex;
use skerry_workloads::ObjectKind;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::clock::last_declared;
use crate::failure::Failure;

/// Looks are this far apart at least. Nothing is timed by them.
const LOOK: Duration = Duration::from_millis(200);
/// And so many times as far as one takes: that is longer the more children there are, on the processors that make them.
const SELDOM: u32 = 50;

/// A child that was seen.
#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) uid: String,
    /// The kind and name of the resource that controls it.
    pub(super) owner: (String, String),
    /// The first image of a Deployment.
    pub(super) image: Option<String>,
    /// When the last change of it was seen that changed one of these.
    pub(super) since: Instant,
    /// In which second that was made, by the API server's clock: a watch may tell of it much later.
    pub(super) declared: Option<Timestamp>,
}

/// Which child.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: ObjectKind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// All children that are there.
pub(super) type Seen = BTreeMap<Key, Child>;

/// Watches over the children in all namespaces of a load. They end when this is dropped.
pub(super) struct Watched {
    seen: Arc<Mutex<Seen>>,
    /// When anything there was last told, be it a status, or a pod of a Deployment's.
    changed: watch::Receiver<Instant>,
    _watches: JoinSet<()>,
}

impl Watched {
    /// Begins to watch over the namespaces whose names begin so.
    pub(super) fn start(client: &Client, namespaces: &str, kinds: impl IntoIterator<Item = ObjectKind>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::new()));
        let (told, changed) = watch::channel(Instant::now());
        let mut watches = JoinSet::new();
        for kind in kinds {
            let notes = Notes {
                namespaces: namespaces.to_owned(),
                kind,
                seen: seen.clone(),
                told: told.clone(),
            };
            // Only of Deployments anything but the metadata is looked at.
            if kind == ObjectKind::DEPLOYMENT {
                let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
                let image = |object: &DynamicObject| {
                    let image = object.data.pointer("/spec/template/spec/containers/0/image");
                    image.and_then(|image| Some(image.as_str()?.to_owned()))
                };
                watches.spawn(notes.follow(watcher(api, watcher::Config::default()), image));
            } else {
                let none = |_: &PartialObjectMeta<DynamicObject>| None;
                let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource(kind));
                watches.spawn(notes.follow(watcher(api, watcher::Config::default()), none));
            }
        }
        Self {
            seen,
            changed,
            _watches: watches,
        }
    }

    /// What there is now.
    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    /// Waits until the children are as `is` wants, for so long at most.
    pub(super) async fn until(&self, what: &str, limit: Duration, is: impl Fn(&Seen) -> bool) -> Result<(), Failure> {
        let mut changed = self.changed.clone();
        let seen = async {
            loop {
                let begun = Instant::now();
                if is(&self.seen.lock()) {
                    return true;
                }
                let took = begun.elapsed();
                if changed.changed().await.is_err() {
                    return false;
                }
                sleep(LOOK.max(SELDOM * took)).await;
            }
        };
        match timeout(limit, seen).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(unseen(what, limit)),
        }
    }

    /// Waits until nothing was told for so long, for `limit` at most: when the last was.
    pub(super) async fn still(&self, quiet: Duration, limit: Duration) -> Result<Instant, Failure> {
        let still = async {
            loop {
                let last = *self.changed.borrow();
                if last.elapsed() >= quiet {
                    return last;
                }
                sleep_until(last + quiet).await;
            }
        };
        timeout(limit, still)
            .await
            .map_err(|_| unseen("that Kubernetes has nothing left to do", limit))
    }
}

fn unseen(what: &str, limit: Duration) -> Failure {
    Failure::new(
        format!("not seen within {limit:?}: {what}"),
        "the manager's log may say why; a smaller load may fit this control plane",
    )
}

/// Where what a watch tells is taken down.
struct Notes {
    /// How the namespaces that count begin.
    namespaces: String,
    kind: ObjectKind,
    seen: Arc<Mutex<Seen>>,
    told: watch::Sender<Instant>,
}

impl Notes {
    /// Takes down what a watch tells, for ever.
    async fn follow<K: ResourceExt>(
        self,
        events: impl Stream<Item = Result<Event<K>, watcher::Error>>,
        image: impl Fn(&K) -> Option<String>,
    ) {
        let mut events = std::pin::pin!(events);
        let mut listed = BTreeSet::new();
        while let Some(event) = events.next().await {
            let mut seen = self.seen.lock();
            match event {
                Ok(Event::InitApply(object) | Event::Apply(object) | Event::Delete(object))
                    if !self.counts(&object) =>
                {
                    continue;
                }
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    listed.insert(self.key(&object));
                    self.take(&mut seen, &object, image(&object));
                }
                Ok(Event::InitDone) => seen.retain(|key, _| key.kind != self.kind || listed.contains(key)),
                Ok(Event::Apply(object)) => self.take(&mut seen, &object, image(&object)),
                Ok(Event::Delete(object)) => drop(seen.remove(&self.key(&object))),
                Err(error) => tracing::debug!(kind = self.kind.kind, %error, "a watch failed and is tried again"),
            }
            drop(seen);
            self.told.send_replace(Instant::now());
        }
    }

    fn counts(&self, object: &impl ResourceExt) -> bool {
        let namespace = object.meta().namespace.as_deref();
        namespace.is_some_and(|namespace| namespace.starts_with(&self.namespaces))
    }

    fn key(&self, object: &impl ResourceExt) -> Key {
        Key {
            kind: self.kind,
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }

    fn take(&self, seen: &mut Seen, object: &impl ResourceExt, image: Option<String>) {
        let owners = object.owner_references();
        let Some(owner) = owners.iter().find(|owner| owner.controller == Some(true)) else {
            return;
        };
        let key = self.key(object);
        let uid = object.uid().unwrap_or_default();
        let as_before = |known: &Child| known.uid == uid && known.image == image;
        if !seen.get(&key).is_some_and(as_before) {
            let owner = (owner.kind.clone(), owner.name.clone());
            let (since, declared) = (Instant::now(), last_declared(object));
            seen.insert(
                key,
                Child {
                    uid,
                    owner,
                    image,
                    since,
                    declared,
                },
            );
        }
    }
}

/// How kube names a kind.
pub(super) fn resource(kind: ObjectKind) -> ApiResource {
    ApiResource {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        api_version: kind.api_version(),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;
    use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
    use kube::core::ObjectMeta;

    use super::*;

    const QUIET: Duration = Duration::from_secs(3);
    const LIMIT: Duration = Duration::from_secs(60);

    /// What watches over `load-…`, and how it is told of pods.
    fn watched() -> (Watched, mpsc::UnboundedSender<Result<Event<Pod>, watcher::Error>>) {
        let (told, changed) = watch::channel(Instant::now());
        let (tell, events) = mpsc::unbounded();
        let seen = Arc::new(Mutex::new(Seen::new()));
        let notes = Notes {
            namespaces: "load-".to_owned(),
            kind: ObjectKind::POD,
            seen: seen.clone(),
            told,
        };
        let mut following = JoinSet::new();
        following.spawn(notes.follow(events, |_| None));
        let watched = Watched {
            seen,
            changed,
            _watches: following,
        };
        (watched, tell)
    }

    fn pod(namespace: &str) -> Event<Pod> {
        let owner = OwnerReference {
            controller: Some(true),
            ..OwnerReference::default()
        };
        Event::Apply(Pod {
            metadata: ObjectMeta {
                name: Some("worker".to_owned()),
                namespace: Some(namespace.to_owned()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_still_once_nothing_changed_for_so_long_and_what_does_not_count_changes_nothing() {
        let (watched, events) = watched();
        let begun = Instant::now();
        let tell = async {
            for (after, namespace) in [(2, "load-0"), (2, "others"), (0, "load-1"), (2, "others")] {
                sleep(Duration::from_secs(after)).await;
                events.unbounded_send(Ok(pod(namespace))).unwrap();
            }
        };
        let (still, ()) = tokio::join!(watched.still(QUIET, LIMIT), tell);
        let last = still.unwrap_or_else(|_| panic!("it is never still"));
        assert_eq!(last - begun, Duration::from_secs(4));
        assert_eq!(begun.elapsed(), Duration::from_secs(7));
        let namespaces: Vec<String> = watched.seen().into_keys().map(|key| key.namespace).collect();
        assert_eq!(namespaces, ["load-0", "load-1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_never_still_fails() {
        let (watched, events) = watched();
        let tell = async {
            loop {
                sleep(Duration::from_secs(2)).await;
                events.unbounded_send(Ok(pod("load-0"))).unwrap();
            }
        };
        tokio::select! {
            still = watched.still(QUIET, LIMIT) => assert!(still.is_err()),
            () = tell => {}
        }
    }
}
