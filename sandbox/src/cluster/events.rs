//! The event log: what controllers, the scheduler and kubelets say about objects, repetitions counted on one event.
//!
//! An event that cannot be recorded is dropped: nothing may wait for it.

use std::collections::BTreeMap;

use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{Request, Resource};
use serde_json::{Value, json};

use super::clock::Times;
use super::effect::Announcement;
use crate::api::Clock;

use k8s_openapi::api::core::v1::Event;

/// The number of different events that are remembered to count repetitions on.
const REMEMBERED: usize = 4096;

pub(crate) struct Recorder {
    client: Client,
    clock: Clock,
    known: BTreeMap<Key, Known>,
    recorded: u64,
}

/// The object's uid and part, who says it, the reason and the message.
type Key = ((String, String), &'static str, &'static str, String);

struct Known {
    namespace: String,
    name: String,
    count: i32,
}

impl Recorder {
    pub(crate) fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            known: BTreeMap::new(),
            recorded: 0,
        }
    }

    /// Records an event; one that was recorded before is counted up.
    pub(crate) async fn record(&mut self, event: &Announcement) {
        let part = event.about.field_path.clone().unwrap_or_default();
        let subject = (event.about.uid.clone().unwrap_or_default(), part);
        let key = (subject, event.component, event.reason, event.message.clone());
        if self.repeat(&key).await {
            return;
        }
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        if let Some(known) = self.create(event).await {
            self.known.insert(key, known);
        }
    }

    /// Counts up a known event; false if it is not known or no longer there.
    async fn repeat(&mut self, key: &Key) -> bool {
        let now = self.clock.time();
        let Some(known) = self.known.get_mut(key) else {
            return false;
        };
        known.count = known.count.saturating_add(1);
        let patch = json!({"count": known.count, "lastTimestamp": now});
        let at = Request::new(Event::url_path(&(), Some(&known.namespace)));
        let request = at.patch(&known.name, &PatchParams::default(), &Patch::Merge(&patch));
        let counted = match request {
            Ok(request) => self.client.request::<Value>(request).await.is_ok(),
            Err(_) => false,
        };
        if !counted {
            self.known.remove(key);
        }
        counted
    }

    async fn create(&mut self, event: &Announcement) -> Option<Known> {
        self.recorded += 1;
        let namespace = event.about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let subject = event.about.name.as_deref().unwrap_or_default();
        let unique = self.clock.now().as_microsecond().unsigned_abs().wrapping_mul(1000) + self.recorded % 1000;
        let name = format!("{subject}.{unique:x}");
        let now = self.clock.time();
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": name},
            "involvedObject": event.about,
            "reason": event.reason,
            "message": event.message,
            "type": if event.warning { "Warning" } else { "Normal" },
            "source": {"component": event.component},
            "reportingComponent": event.component,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        });
        let bytes = serde_json::to_vec(&body).ok()?;
        let path = Event::url_path(&(), Some(&namespace));
        let request = Request::new(path).create(&PostParams::default(), bytes).ok()?;
        match self.client.request::<Value>(request).await {
            Ok(_) => Some(Known {
                namespace,
                name,
                count: 1,
            }),
            Err(error) => {
                tracing::debug!(%error, reason = event.reason, "event dropped");
                None
            }
        }
    }
}
