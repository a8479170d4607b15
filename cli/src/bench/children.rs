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

/// Looks are this far apart at least: one costs as much as there are children. Nothing is timed by them.
const LOOK: Duration = Duration::from_millis(200);

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

/// All children that are there, by kind and name.
pub(super) type Seen = BTreeMap<(ObjectKind, String), Child>;

/// Watches over the children in a namespace. They end when this is dropped.
pub(super) struct Watched {
    seen: Arc<Mutex<Seen>>,
    changed: watch::Receiver<()>,
    _watches: JoinSet<()>,
}

impl Watched {
    /// Begins to watch.
    pub(super) fn start(client: &Client, namespace: &str, kinds: impl IntoIterator<Item = ObjectKind>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::new()));
        let (told, changed) = watch::channel(());
        let mut watches = JoinSet::new();
        for kind in kinds {
            let (seen, told) = (seen.clone(), told.clone());
            // Only of Deployments anything but the metadata is looked at.
            if kind == ObjectKind::DEPLOYMENT {
                let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource(kind));
                let image = |object: &DynamicObject| {
                    let image = object.data.pointer("/spec/template/spec/containers/0/image");
                    image.and_then(|image| Some(image.as_str()?.to_owned()))
                };
                watches.spawn(follow(
                    watcher(api, watcher::Config::default()),
                    kind,
                    image,
                    seen,
                    told,
                ));
            } else {
                let none = |_: &PartialObjectMeta<DynamicObject>| None;
                let api: Api<PartialObjectMeta<DynamicObject>> =
                    Api::namespaced_with(client.clone(), namespace, &resource(kind));
                let events = watcher(api, watcher::Config::default());
                watches.spawn(follow(events, kind, none, seen, told));
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
            while !is(&self.seen.lock()) {
                if changed.changed().await.is_err() {
                    return false;
                }
                sleep(LOOK).await;
            }
            true
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

/// Takes down what a watch tells, for ever.
async fn follow<K: ResourceExt>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    kind: ObjectKind,
    image: impl Fn(&K) -> Option<String>,
    seen: Arc<Mutex<Seen>>,
    told: watch::Sender<()>,
) {
    let mut events = std::pin::pin!(events);
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        let mut seen = seen.lock();
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.insert(object.name_any());
                take(&mut seen, kind, &object, image(&object));
            }
            Ok(Event::InitDone) => seen.retain(|(known, name), _| *known != kind || listed.contains(name)),
            Ok(Event::Apply(object)) => take(&mut seen, kind, &object, image(&object)),
            Ok(Event::Delete(object)) => drop(seen.remove(&(kind, object.name_any()))),
            Err(error) => tracing::debug!(kind = kind.kind, %error, "a watch failed and is tried again"),
        }
        drop(seen);
        told.send_replace(());
    }
}

fn take(seen: &mut Seen, kind: ObjectKind, object: &impl ResourceExt, image: Option<String>) {
    let Some(owner) = object
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))
    else {
        return;
    };
    let key = (kind, object.name_any());
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
