//! Makes the node do what its objects say: after a change, and after a restart from what the store holds, without the
//! cloud.
//!
//! Level-triggered: of a change only the key is known, and what holds now is read from the store. A kind that the node
//! acts upon is one arm in `Effects::bring_about`; of all others the store's copy is all that is needed.

use std::time::Duration;

use serde::Deserialize;
use skerry_edge::{Object, ObjectKey};
use tokio::time::sleep;

use crate::{
    dataset::{self, Datasets},
    store::{DATASET, Store, StoreError},
};

/// How long a store that failed is left alone.
const PAUSE: Duration = Duration::from_secs(5);

/// What the node does by itself.
#[derive(Debug)]
pub struct Effects {
    store: Store,
    datasets: Datasets,
}

impl Effects {
    /// Nothing is done yet.
    pub fn new(store: Store, datasets: Datasets) -> Self {
        Self { store, datasets }
    }

    /// Brings about what the store holds, now and after each change; ends only by being dropped, or with the store.
    pub async fn run(mut self) {
        while let Err(error) = self.store.announce_all().await {
            if !pause(&error).await {
                return;
            }
        }
        loop {
            let keys = self.store.changes().next().await;
            for key in &keys {
                while let Err(error) = self.bring_about(key).await {
                    if !pause(&error).await {
                        return;
                    }
                }
            }
        }
    }

    async fn bring_about(&mut self, key: &ObjectKey) -> Result<(), StoreError> {
        if key.kind == DATASET {
            let spec = match self.store.object(key).await? {
                Some(object) => Some(self.dataset(object).await?),
                None => None,
            };
            self.datasets.set(key, spec);
        }
        Ok(())
    }

    async fn dataset(&self, object: Object) -> Result<dataset::Spec, StoreError> {
        let Object { key, uid, body, .. } = object;
        // What the manager sends is a Dataset; were it not, its url would be missing, and that would be told.
        let DatasetBody { spec } = serde_json::from_str(body.json()).unwrap_or_default();
        let DatasetSpec {
            url,
            format,
            credential_name,
        } = spec;
        let credential = match credential_name.filter(|name| !name.is_empty()) {
            Some(name) => Some((name.clone(), self.store.credential(&key, &name).await?)),
            None => None,
        };
        Ok(dataset::Spec {
            uid,
            url,
            format,
            credential,
        })
    }
}

/// Waits before the next try; false where there will be none.
async fn pause(error: &StoreError) -> bool {
    if error.is_final() {
        return false;
    }
    tracing::error!(%error, "what this node should do cannot be read");
    sleep(PAUSE).await;
    true
}

/// What is read of a Dataset.
#[derive(Debug, Default, Deserialize)]
struct DatasetBody {
    #[serde(default)]
    spec: DatasetSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DatasetSpec {
    url: String,
    format: String,
    credential_name: Option<String>,
}
