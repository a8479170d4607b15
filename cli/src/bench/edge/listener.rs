//! Somebody who hears of every change and does nothing with it but note when: no engine can hear of them sooner.

use std::{collections::BTreeMap, future::ready, time::Duration};

use futures::StreamExt as _;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
    core::DynamicObject,
};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use super::{super::place::refused, clock, edits::newest, matched::Edit, orders::Stored};
use crate::failure::Failure;

/// How long the last changes may be under way.
const PATIENCE: Duration = Duration::from_secs(60);

/// Versions by name, as they were heard of.
type Heard = BTreeMap<String, Vec<Stored>>;

/// Whoever listens. It ends when this is dropped.
pub(super) struct Listener {
    heard: watch::Receiver<Heard>,
    _watch: JoinSet<()>,
}

impl Listener {
    /// Has the API server tell of every change from now on.
    pub(super) async fn start(api: &Api<DynamicObject>) -> Result<Self, Failure> {
        let all = api.list_metadata(&ListParams::default()).await.map_err(refused)?;
        let since = all.metadata.resource_version.unwrap_or_default();
        let changes = api.watch(&WatchParams::default(), &since).await.map_err(refused)?;
        let changes = changes.boxed();
        let (told, heard) = watch::channel(Heard::default());
        let mut watch = JoinSet::new();
        watch.spawn(changes.for_each(move |change| {
            if let Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) = change {
                let stored = Stored {
                    generation: object.metadata.generation.unwrap_or_default(),
                    at: clock::now(),
                };
                told.send_modify(|heard| heard.entry(object.name_any()).or_default().push(stored));
            }
            ready(())
        }));
        Ok(Self { heard, _watch: watch })
    }

    /// What was heard of, once the newest of these edits were, or are not heard of any more.
    pub(super) async fn heard(mut self, edits: &[Edit]) -> Heard {
        let newest = newest(edits);
        let all = self.heard.wait_for(|heard| {
            newest.iter().all(|(name, generation)| {
                let last = heard.get(name).and_then(|versions| versions.last());
                last.is_some_and(|last| last.generation >= *generation)
            })
        });
        // What is missing then is told by whoever matches it with the edits.
        let _ = timeout(PATIENCE, all).await.map(drop);
        self.heard.borrow().clone()
    }
}
