//! Tells when something happens in a directory, so that a Dataset is counted soon after it has changed.
//!
//! Decides nothing: what is missed here (a file system that tells nothing, no more watches to be had, a directory that
//! is not there yet) is found by polling.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode},
};
use tokio::sync::watch;

/// Watches directories. Nothing is started before the first is asked for.
#[derive(Debug, Default)]
pub struct Watcher {
    inner: Mutex<Option<RecommendedWatcher>>,
    directories: Directories,
}

type Directories = Arc<Mutex<HashMap<PathBuf, watch::Sender<()>>>>;

impl Watcher {
    /// Marks the receiver as changed whenever something happens in the directory; none where that cannot be told.
    pub(super) fn watch(&self, directory: &Path) -> Option<watch::Receiver<()>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let watcher = match inner.take() {
            Some(watcher) => watcher,
            None => start(self.directories.clone())?,
        };
        let watcher = inner.insert(watcher);
        self.forget_unwatched(watcher);
        // Once more for one that is watched: it may have been deleted and made again.
        if let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive) {
            tracing::debug!(directory = %directory.display(), %error, "not watched, only polled");
            return None;
        }
        let mut directories = self.lock();
        let sender = directories
            .entry(directory.to_owned())
            .or_insert_with(|| watch::Sender::new(()));
        Some(sender.subscribe())
    }

    fn forget_unwatched(&self, watcher: &mut RecommendedWatcher) {
        let unwanted: Vec<PathBuf> = self
            .lock()
            .extract_if(|_, sender| sender.receiver_count() == 0)
            .map(|(directory, _)| directory)
            .collect();
        // Not under the lock: this waits for the watcher's thread, which may be waiting for the lock.
        for directory in unwanted {
            // One that is gone is not watched any more.
            let _ = watcher.unwatch(&directory);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, watch::Sender<()>>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(directories: Directories) -> Option<RecommendedWatcher> {
    let heard = move |event: notify::Result<Event>| {
        let Ok(event) = event else { return };
        if !changes(event.kind) {
            return;
        }
        let directories = directories.lock().unwrap_or_else(PoisonError::into_inner);
        for path in &event.paths {
            for directory in [Some(path.as_path()), path.parent()].into_iter().flatten() {
                if let Some(sender) = directories.get(directory) {
                    sender.send_replace(());
                }
            }
        }
    };
    notify::recommended_watcher(heard)
        .inspect_err(|error| tracing::warn!(%error, "directories cannot be watched, only polled"))
        .ok()
}

/// Whether a file may be another one after this; our own reading is an event, too.
fn changes(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_) | EventKind::Other => true,
    }
}
