//! The addresses of Services: who asks for one next, and which one a Service had that is made again.
//!
//! An API server chooses addresses one after the other, each with a request to itself that waits behind all others. An address
//! that is named is not chosen, so many Services are made at once that had one before; and whoever has looked one up still
//! reaches it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::{Value, json};
use skerry_workloads::{Child, Live, ObjectKind};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::ResourceKey;

/// How many resources are looked at at once for a child of which an address is chosen. While it is looked up for others whether
/// theirs may be made, one is being made, and the API server has no pause; and whoever deletes a Service, which waits behind all
/// who ask for an address, does not wait long.
const AT_ONCE: usize = 4;

/// The field that holds it, below `spec`.
const FIELD: &str = "clusterIP";

/// What is known of addresses.
pub(super) struct Addresses {
    turns: Semaphore,
    /// By resource, and by the name of its Service.
    last: Mutex<BTreeMap<ResourceKey, BTreeMap<String, String>>>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self {
            turns: Semaphore::new(AT_ONCE),
            last: Mutex::default(),
        }
    }
}

impl Addresses {
    /// A turn at asking for one, for as long as it is held.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }

    /// Whether one has to be chosen for this child of a resource, should it be made.
    pub(super) fn is_chosen(&self, owner: &ResourceKey, child: &Child) -> bool {
        child.kind == ObjectKind::SERVICE && self.last(owner, &child.name).is_none()
    }

    /// Remembers those of these children of a resource.
    pub(super) fn remember(&self, owner: &ResourceKey, children: &[Live]) {
        let mut last = self.last.lock();
        for live in children.iter().filter(|live| live.kind == ObjectKind::SERVICE) {
            let address = live.object.get("spec").and_then(|spec| spec.get(FIELD)?.as_str());
            // A Service without one says so in its place.
            let Some(address) = address.filter(|address| address.parse::<std::net::IpAddr>().is_ok()) else {
                continue;
            };
            let of_owner = last.entry(owner.clone()).or_default();
            if of_owner.get(live.name()).is_none_or(|known| known != address) {
                of_owner.insert(live.name().to_owned(), address.to_owned());
            }
        }
    }

    /// What is planned of this child, with the address that it had; nothing where it had none.
    pub(super) fn with_last(&self, owner: &ResourceKey, child: &Child, planned: &Value) -> Option<Value> {
        let address = self.last(owner, &child.name)?;
        let mut body = planned.clone();
        body.get_mut("spec")?
            .as_object_mut()?
            .insert(FIELD.to_owned(), json!(address));
        Some(body)
    }

    /// Forgets those of a resource.
    pub(super) fn forget(&self, owner: &ResourceKey) {
        self.last.lock().remove(owner);
    }

    fn last(&self, owner: &ResourceKey, name: &str) -> Option<String> {
        self.last.lock().get(owner)?.get(name).cloned()
    }
}
