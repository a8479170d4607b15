//! Which objects have changed since somebody last looked: names only, so that what waits is bounded by what there is.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use skerry_edge::ObjectKey;
use tokio::sync::Notify;

/// The keys of changed objects, each once, for one reader.
#[derive(Debug, Default)]
pub struct Changes {
    keys: Mutex<BTreeSet<ObjectKey>>,
    added: Notify,
}

impl Changes {
    pub(super) fn add(&self, keys: BTreeSet<ObjectKey>) {
        if keys.is_empty() {
            return;
        }
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).extend(keys);
        self.added.notify_one();
    }

    /// Waits for changes and takes them. Dropping it before it returns loses nothing.
    pub async fn next(&self) -> BTreeSet<ObjectKey> {
        loop {
            let keys = std::mem::take(&mut *self.keys.lock().unwrap_or_else(PoisonError::into_inner));
            if !keys.is_empty() {
                return keys;
            }
            self.added.notified().await;
        }
    }
}
