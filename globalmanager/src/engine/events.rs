//! Tells users what happened, where `kubectl describe` shows it. Best effort: an event that cannot be written is logged
//! and changes nothing.
//!
//! What is told again is counted in the event that told it first. How many of these are remembered is bounded: kube's own
//! recorder remembers all of six minutes and walks through them for each new one, and a thousand resources that are edited
//! all the time would have it hold a hundred thousand.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event as Written, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use skerry_crds::names;
use skerry_workloads::{Event, EventType};
use tokio::time::Instant;

use super::{Clock, ResourceKey};

/// How many events are remembered, so that they can be counted on: some hundred bytes each.
const REMEMBERED: usize = 2048;
/// What was not told for so long is told in a new event, as in Kubernetes' own components.
const SERIES_ENDS: SignedDuration = SignedDuration::from_mins(6);
/// The longest name that is taken over into an event's, which has to have room for a number.
const LONGEST_NAME: usize = 230;

/// Writes events, and remembers the last of them.
pub(crate) struct Events {
    client: Client,
    instance: String,
    clock: Clock,
    recent: Mutex<Recent>,
    /// What passes have left for a later one of the same resource.
    left: Mutex<BTreeMap<ResourceKey, Left>>,
}

/// What is still to be told of a resource.
struct Left {
    since: Instant,
    events: Vec<(ObjectReference, Event)>,
}

impl Events {
    pub(crate) fn new(client: Client, instance: &str, clock: Clock) -> Self {
        Self {
            client,
            instance: instance.to_owned(),
            clock,
            recent: Mutex::default(),
            left: Mutex::default(),
        }
    }

    /// Publishes events about an object.
    pub(crate) async fn publish(&self, object: &Value, told: &[Event]) {
        for event in told {
            self.publish_one(about(object), event).await;
        }
    }

    /// Leaves events to be [told](Self::publish_left); what happens again meanwhile is told once.
    pub(crate) fn leave(&self, key: &ResourceKey, object: &Value, told: &[Event]) {
        let mut left = self.left.lock();
        let left = left.entry(key.clone()).or_insert_with(|| Left {
            since: Instant::now(),
            events: vec![],
        });
        for event in told {
            if left.events.iter().all(|(_, known)| known != event) {
                left.events.push((about(object), event.clone()));
            }
        }
    }

    /// Since when something is left of this resource, if anything is.
    pub(crate) fn left_since(&self, key: &ResourceKey) -> Option<Instant> {
        Some(self.left.lock().get(key)?.since)
    }

    /// Publishes what was left.
    pub(crate) async fn publish_left(&self, key: &ResourceKey) {
        let left = self.left.lock().remove(key);
        for (about, event) in left.into_iter().flat_map(|left| left.events) {
            self.publish_one(about, &event).await;
        }
    }

    /// Forgets what was left.
    pub(crate) fn forget(&self, key: &ResourceKey) {
        self.left.lock().remove(key);
    }

    async fn publish_one(&self, about: ObjectReference, event: &Event) {
        if let Err(error) = self.write(about, event).await {
            let Event { reason, message, .. } = event;
            tracing::warn!(%error, reason, message, "an event could not be written");
        }
    }

    async fn write(&self, about: ObjectReference, event: &Event) -> Result<(), kube::Error> {
        let now = (self.clock)();
        let api: Api<Written> = Api::namespaced(self.client.clone(), about.namespace.as_deref().unwrap_or("default"));
        let key = Key {
            uid: about.uid.clone().unwrap_or_default(),
            type_: word(event.type_),
            reason: event.reason,
            message: shortened(&event.message),
        };
        let again = self.recent.lock().again(&key, now);
        if let Some((name, count)) = again {
            let last_observed_time = MicroTime(now);
            let series = json!({"series": EventSeries { count, last_observed_time }});
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(series)).await {
                Ok(_) => {
                    self.recent.lock().counted(&key, count, now);
                    return Ok(());
                }
                // It has expired, or somebody has deleted it, or it cannot be counted on.
                Err(kube::Error::Api(_)) => self.recent.lock().forget(&key),
                Err(error) => return Err(error),
            }
        }
        let new = self.new_event(about, event, now);
        let name = new.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &new).await?;
        self.recent.lock().first(key, name, now);
        Ok(())
    }

    fn new_event(&self, about: ObjectReference, event: &Event, now: Timestamp) -> Written {
        let named = about.name.as_deref().unwrap_or_default();
        let named = named.get(..LONGEST_NAME).unwrap_or(named).trim_end_matches(['-', '.']);
        Written {
            metadata: ObjectMeta {
                namespace: about.namespace.clone(),
                name: Some(format!("{named}.{:016x}", rand::random::<u64>())),
                ..ObjectMeta::default()
            },
            action: Some("Reconcile".to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(shortened(&event.message)),
            reason: Some(event.reason.to_owned()),
            regarding: Some(about),
            reporting_controller: Some(names::MANAGER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(word(event.type_).to_owned()),
            ..Written::default()
        }
    }
}

fn about(object: &Value) -> ObjectReference {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    ObjectReference {
        api_version: text("/apiVersion"),
        kind: text("/kind"),
        name: text("/metadata/name"),
        namespace: text("/metadata/namespace"),
        uid: text("/metadata/uid"),
        resource_version: text("/metadata/resourceVersion"),
        field_path: None,
    }
}

fn word(type_: EventType) -> &'static str {
    match type_ {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}

/// What makes two events the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// Of the object that it is about.
    uid: String,
    type_: &'static str,
    reason: &'static str,
    message: String,
}

/// An event that was written.
#[derive(Debug)]
struct Series {
    name: String,
    count: i32,
    last: Timestamp,
}

/// The last events that were written.
#[derive(Debug, Default)]
struct Recent {
    by_key: BTreeMap<Key, Series>,
    /// From the first written to the last.
    order: VecDeque<Key>,
}

impl Recent {
    /// The event's name, and how often it is told with this time; nothing where it is told for the first time.
    fn again(&self, key: &Key, now: Timestamp) -> Option<(String, i32)> {
        let series = self.by_key.get(key)?;
        let goes_on = now.duration_since(series.last) <= SERIES_ENDS;
        goes_on.then(|| (series.name.clone(), series.count.saturating_add(1)))
    }

    /// It was told so often by now.
    fn counted(&mut self, key: &Key, count: i32, now: Timestamp) {
        if let Some(series) = self.by_key.get_mut(key) {
            series.count = series.count.max(count);
            series.last = now;
        }
    }

    fn forget(&mut self, key: &Key) {
        if self.by_key.remove(key).is_some() {
            self.order.retain(|known| known != key);
        }
    }

    /// Remembers an event that was written, instead of the oldest where there are too many.
    fn first(&mut self, key: Key, name: String, now: Timestamp) {
        let series = Series {
            name,
            count: 1,
            last: now,
        };
        self.forget(&key);
        self.by_key.insert(key.clone(), series);
        self.order.push_back(key);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
        }
    }
}

/// Kubernetes takes notes of at most 1,024 bytes.
fn shortened(message: &str) -> String {
    let end = message
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= 1000)
        .last();
    message.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(message: &str) -> Key {
        Key {
            uid: "u".to_owned(),
            type_: "Normal",
            reason: "Updated",
            message: message.to_owned(),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn what_is_told_again_is_counted_until_nobody_has_told_it_for_long() {
        let mut recent = Recent::default();
        assert_eq!(recent.again(&key("a"), at(0)), None);
        recent.first(key("a"), "a.1".to_owned(), at(0));
        assert_eq!(recent.again(&key("a"), at(300)), Some(("a.1".to_owned(), 2)));
        recent.counted(&key("a"), 2, at(300));
        assert_eq!(recent.again(&key("a"), at(600)), Some(("a.1".to_owned(), 3)));
        recent.counted(&key("a"), 3, at(600));
        assert_eq!(recent.again(&key("b"), at(600)), None);
        assert_eq!(recent.again(&key("a"), at(961)), None);
        recent.first(key("a"), "a.2".to_owned(), at(961));
        assert_eq!(recent.again(&key("a"), at(962)), Some(("a.2".to_owned(), 2)));
        assert_eq!(recent.order.len(), 1);
    }

    #[test]
    fn the_oldest_is_forgotten_where_too_many_are_remembered() {
        let mut recent = Recent::default();
        for number in 0..=REMEMBERED {
            recent.first(key(&number.to_string()), "name".to_owned(), at(0));
        }
        assert_eq!((recent.by_key.len(), recent.order.len()), (REMEMBERED, REMEMBERED));
        assert_eq!(recent.again(&key("0"), at(0)), None);
        assert!(recent.again(&key("1"), at(0)).is_some());
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(shortened("ok"), "ok");
        let cut = shortened(&"ä".repeat(600));
        assert_eq!(cut, "ä".repeat(500));
    }
}
