//! The Datasets of this node: how many samples each has, told when it changes.
//!
//! ```text
//!   object put ──▶ counting ──▶ told ──▶ waiting ──┐ 60 s, or something happened in the file's directory
//!                     ▲                            │
//!                     └────────────────────────────┘   another url, format or credential: from the start
//! ```
//!
//! Decides when a file is read and what is said of it. An error is told as a count is, and heals as a count changes.

mod count;
mod error;
mod hostpath;
mod location;
mod s3;
mod source;
mod task;
#[cfg(test)]
mod tests;
mod turns;
mod watch;

use std::{collections::HashMap, path::PathBuf, sync::Arc};

pub use count::{CountError, Counter, Format};
pub use error::DatasetError;
pub use location::Location;
use skerry_edge::ObjectKey;
pub use source::Sources;
pub use task::{Shared, Spec, Timing};
use tokio::{sync::Semaphore, task::AbortHandle};
pub use watch::Watcher;

use crate::{metrics::Metrics, store::Store};

/// Files that are read at once: a node has little memory, and a disk that is read by many is slow for all.
const READERS: usize = 2;

/// The Datasets that are looked after. Dropping it ends that.
#[derive(Debug)]
pub struct Datasets {
    shared: Arc<Shared>,
    tasks: HashMap<Arc<ObjectKey>, Task>,
}

#[derive(Debug)]
struct Task {
    spec: Arc<Spec>,
    running: AbortHandle,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Datasets {
    /// No Datasets yet; files of the host are looked up under `rootfs`.
    pub fn new(store: Store, rootfs: PathBuf, timing: Timing, metrics: Arc<Metrics>) -> Self {
        let shared = Shared {
            store,
            sources: Sources::new(rootfs),
            watcher: Watcher::default(),
            readers: Semaphore::new(READERS),
            timing,
            metrics,
        };
        Self {
            shared: Arc::new(shared),
            tasks: HashMap::new(),
        }
    }

    /// Looks after a Dataset that says this of itself, or no longer after one that is gone.
    pub fn set(&mut self, key: &ObjectKey, spec: Option<Spec>) {
        let Some(spec) = spec else {
            self.tasks.remove(key);
            return;
        };
        if self.tasks.get(key).is_some_and(|task| *task.spec == spec) {
            return;
        }
        // The old one first: they would tell each other's count.
        self.tasks.remove(key);
        let spec = Arc::new(spec);
        let key = Arc::new(key.clone());
        let looking = task::look_after(self.shared.clone(), key.clone(), spec.clone());
        let running = tokio::spawn(looking).abort_handle();
        self.tasks.insert(key, Task { spec, running });
    }
}
