//! The addresses of Services: who asks for one next, and which one a Service had that is made again.
//!
//! An API server chooses addresses one after the other, each with a request to itself that waits behind all others. An address
//! that is named is not chosen, so many Services are made at once that had one before; and whoever has looked one up still
//! reaches it.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};
use skerry_workloads::{Child, Live, ObjectKind};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use super::ResourceKey;

/// How many resources are looked at at once for a child of which an address is chosen. While it is looked up for others whether
/// theirs may be made, one is being made, and the API server has no pause; and whoever deletes a Service, which waits behind all
/// who ask for an address, does not wait long.
const AT_ONCE: usize = 4;

/// An API server gives an address back after it has told that the Service is gone, by a request to itself that waits behind all
/// others, and refuses it until then. What is refused is named again this much later, and then after twice the time.
const GIVEN_BACK_AFTER: Duration = Duration::from_millis(200);
/// What is refused for so long is not given back: another Service has it. On a busy API server it takes seconds, and the longer, the
/// more addresses are chosen meanwhile.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(10);

/// The field that holds it, below `spec`.
const FIELD: &str = "clusterIP";

/// What is known of addresses.
pub(super) struct Addresses {
    turns: Semaphore,
    /// By resource, and by the name of its Service.
    last: Mutex<BTreeMap<ResourceKey, BTreeMap<String, Address>>>,
}

/// The address that a Service has, or had.
struct Address {
    address: String,
    refused: Option<Refused>,
}

/// That the API server has not given it back.
#[derive(Clone, Copy)]
struct Refused {
    since: Instant,
    named_from: Instant,
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
            match of_owner.get_mut(live.name()) {
                Some(known) if known.address == address => known.refused = None,
                _ => {
                    let (address, refused) = (address.to_owned(), None);
                    of_owner.insert(live.name().to_owned(), Address { address, refused });
                }
            }
        }
    }

    /// How long this child is not to be made yet, since the address that it had was refused.
    pub(super) fn not_given_back(&self, owner: &ResourceKey, child: &Child, now: Instant) -> Option<Duration> {
        if child.kind != ObjectKind::SERVICE {
            return None;
        }
        let refused = self.last.lock().get(owner)?.get(&child.name)?.refused?;
        let wait = refused.named_from.saturating_duration_since(now);
        (!wait.is_zero()).then_some(wait)
    }

    /// How long this child is not to be made now that the address that it had was refused. Once that will not be given back it is
    /// forgotten, and another one is chosen.
    pub(super) fn refused(&self, owner: &ResourceKey, child: &Child, now: Instant) -> Duration {
        let mut last = self.last.lock();
        let Some(of_owner) = last.get_mut(owner) else {
            return Duration::ZERO;
        };
        if let Some(known) = of_owner.get_mut(&child.name) {
            let since = known.refused.map_or(now, |refused| refused.since);
            let refused_for = now.saturating_duration_since(since);
            if refused_for < GIVEN_BACK_WITHIN {
                let wait = refused_for.max(GIVEN_BACK_AFTER);
                let named_from = now + wait;
                known.refused = Some(Refused { since, named_from });
                return wait;
            }
        }
        of_owner.remove(&child.name);
        Duration::ZERO
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
        Some(self.last.lock().get(owner)?.get(name)?.address.clone())
    }
}
