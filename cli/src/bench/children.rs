//! What the bench sees of children: which there are, whose they are, and since when they are as they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt as _};
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
    time::{Instant, sleep, timeout},
};

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
    changed: watch::Receiver<()>,
    _watches: JoinSet<()>,
}

impl Watched {
    /// Begins to watch over the namespaces whose names begin so.
    pub(super) fn start(client: &Client, namespaces: &str, kinds: impl IntoIterator<Item = ObjectKind>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::new()));
        let (told, changed) = watch::channel(());
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
            Ok(false) | Err(_) => Err(Failure::new(
                format!("not seen within {limit:?}: {what}"),
                "the manager's log may say why; a smaller load may fit this control plane",
            )),
        }
    }
}

/// Where what a watch tells is taken down.
struct Notes {
    /// How the namespaces that count begin.
    namespaces: String,
    kind: ObjectKind,
    seen: Arc<Mutex<Seen>>,
    told: watch::Sender<()>,
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
            self.told.send_replace(());
        }
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
        if !key.namespace.starts_with(&self.namespaces) {
            return;
        }
        let uid = object.uid().unwrap_or_default();
        let as_before = |known: &Child| known.uid == uid && known.image == image;
        if !seen.get(&key).is_some_and(as_before) {
            let owner = (owner.kind.clone(), owner.name.clone());
            let since = Instant::now();
            seen.insert(
                key,
                Child {
                    uid,
                    owner,
                    image,
                    since,
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
