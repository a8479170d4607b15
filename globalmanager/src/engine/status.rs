//! Writes a status where it says something new, and nowhere else; of one resource at most once a second: what its children
//! go through on their way up is told as it is by then.

use std::{collections::BTreeMap, time::Duration};

use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use skerry_crds::names;
use skerry_workloads::{Applied, Kind, Observed, Plan};
use tokio::time::Instant;

use super::{
    Engine, ResourceKey,
    pass::{Error, at},
    trim,
    watches::api_resource,
};

/// The least time between two writes of one status. A Deployment changes half a dozen times within the second in which its
/// pods come up, and a thousand of them would have the API server write as many statuses that nobody has time to read.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// The least time between two writes of one status, in [`PAUSE`]s, where the later one says no more than that a newer
/// generation was seen: of a resource that a program edits again and again, nobody waits for each.
const GENERATION_PAUSES: u32 = 5;

/// How many such statuses are written within one [`PAUSE`], of all resources together. Where a thousand are edited at once,
/// telling of each would take half of what an API server takes in writes from those who edit; so it takes a twentieth.
const GENERATIONS_IN_A_PAUSE: u32 = 50;

/// What was written.
#[derive(Debug, Default)]
pub(crate) struct Written(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    last: BTreeMap<ResourceKey, Last>,
    /// When whose turn is to tell that a newer generation was seen.
    turns: BTreeMap<ResourceKey, Instant>,
    /// The next turn that nobody has.
    free: Option<Instant>,
}

/// Which fields were last written, and when: it tells a field that another manager owns from one that we own and no longer
/// want.
#[derive(Clone, Debug)]
struct Last {
    /// The names of its fields.
    fields: Vec<String>,
    at: Instant,
}

/// What became of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It said so already.
    Known,
    /// It is written.
    Now,
    /// It is to be written after this time.
    Later(Duration),
}

/// Computes the status and writes it if it differs.
pub(crate) async fn write<K: Kind>(
    engine: &Engine,
    key: &ResourceKey,
    resource: &K,
    raw: &Value,
    seen: &Observed,
    plan: &Plan,
    applied: &Applied,
) -> Result<Told, Error> {
    let status = resource.status(seen, plan, applied, engine.now());
    let Ok(Value::Object(mut wanted)) = serde_json::to_value(&status) else {
        return Ok(Told::Known);
    };
    wanted.retain(|key, value| !value.is_null() && !K::REPORTED.contains(&key.as_str()));
    let written = &engine.shared.status_written;
    let last = written.last(key);
    let says = |raw: &Value, wanted: &Map<String, Value>| {
        let fields = last.as_ref().map(|last| last.fields.as_slice());
        says(raw, wanted, fields, K::REPORTED)
    };
    if says(raw, &wanted) {
        return Ok(Told::Known);
    }
    let pause = engine.shared.parts.pace.status;
    let since_last = |pauses: u32| {
        last.as_ref().map_or(Duration::ZERO, |last| {
            (pause * pauses).saturating_sub(last.at.elapsed())
        })
    };
    let left = if says(&raw_without_generations(raw), &without_generations(&wanted)) {
        match since_last(GENERATION_PAUSES) {
            Duration::ZERO => written.turn(key, pause / GENERATIONS_IN_A_PAUSE),
            left => left,
        }
    } else {
        since_last(1)
    };
    if !left.is_zero() {
        return Ok(Told::Later(left));
    }
    let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
    let api: Api<DynamicObject> =
        Api::namespaced_with(engine.shared.parts.client.clone(), namespace, &api_resource(K::KIND));
    let body = json!({
        "apiVersion": K::KIND.api_version(),
        "kind": K::KIND.kind,
        // The uid keeps this status off a resource that was deleted and made anew under the name, the version off one that
        // has moved on: a status tells of what was seen, and what was recorded meanwhile must not be undone.
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": resource.meta().uid,
            "resourceVersion": resource.meta().resource_version,
        },
        "status": wanted,
    });
    let how = PatchParams::apply(names::MANAGER_STATUS).force();
    match api.patch_status(name, &how, &Patch::Apply(&body)).await {
        Ok(object) => {
            written.record(key, wanted.into_iter().map(|(field, _)| field).collect());
            engine.learn(K::KIND, &trim::trim(K::KIND, object), false);
            Ok(Told::Now)
        }
        // The resource is gone. (After a conflict the next pass knows whether another one has its name by now.)
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Told::Known),
        Err(error) => Err(at("writing the status")(error)),
    }
}

impl Written {
    /// Forgets a resource that is gone.
    pub(crate) fn forget(&self, key: &ResourceKey) {
        let mut books = self.0.lock();
        books.last.remove(key);
        books.turns.remove(key);
    }

    fn last(&self, key: &ResourceKey) -> Option<Last> {
        self.0.lock().last.get(key).cloned()
    }

    /// These fields are written now.
    fn record(&self, key: &ResourceKey, fields: Vec<String>) {
        let mut books = self.0.lock();
        books.turns.remove(key);
        let at = Instant::now();
        books.last.insert(key.clone(), Last { fields, at });
    }

    /// How long it is to a resource's turn, which is `apart` from that of any other.
    fn turn(&self, key: &ResourceKey, apart: Duration) -> Duration {
        let now = Instant::now();
        let Books { turns, free, .. } = &mut *self.0.lock();
        let turn = *turns.entry(key.clone()).or_insert_with(|| {
            let turn = free.map_or(now, |free| free.max(now));
            *free = Some(turn + apart);
            turn
        });
        turn.saturating_duration_since(now)
    }
}

/// Whether the resource's status already says `wanted`: all of it, and nothing of ours beyond it.
fn says(raw: &Value, wanted: &Map<String, Value>, written: Option<&[String]>, reported: &[&str]) -> bool {
    let empty = Map::new();
    let current = raw.get("status").and_then(Value::as_object).unwrap_or(&empty);
    let all_there = wanted.iter().all(|(key, value)| current.get(key) == Some(value));
    let ours = |key: &String| !reported.contains(&key.as_str()) && !wanted.contains_key(key);
    // Before this process has written anything it cannot know whose the extra fields are: it then writes once.
    let nothing_else = match written {
        Some(written) => !current.keys().any(|key| ours(key) && written.contains(key)),
        None => !current.keys().any(ours),
    };
    all_there && nothing_else
}

/// The field of a status, and of a condition, that names the generation that it is about.
const GENERATION: &str = "observedGeneration";

/// A resource's status, as much of it as is compared, without the generations that it is about.
fn raw_without_generations(raw: &Value) -> Value {
    let status = raw.get("status").and_then(Value::as_object).map(without_generations);
    json!({"status": status.unwrap_or_default()})
}

fn without_generations(status: &Map<String, Value>) -> Map<String, Value> {
    let mut status = status.clone();
    status.remove(GENERATION);
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.remove(GENERATION);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ObjectKind;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_nodes_report_and_what_others_own_is_left_alone() {
        let raw = json!({"status": {"active": 1, "metrics": [{"key": "a"}], "theirs": true}});
        let wanted = map(&json!({"active": 1}));
        assert!(
            !says(&raw, &wanted, None, &["metrics"]),
            "the extra field may be ours of an earlier process"
        );
        let written = ["active".to_owned()];
        assert!(says(&raw, &wanted, Some(&written), &["metrics"]));
        assert!(!says(&raw, &map(&json!({"active": 2})), Some(&written), &["metrics"]));
    }

    #[test]
    fn a_field_that_we_no_longer_want_is_taken_back() {
        let raw = json!({"status": {"active": 1, "failed": 1}});
        let written = ["active".to_owned(), "failed".to_owned()];
        assert!(!says(&raw, &map(&json!({"active": 1})), Some(&written), &[]));
    }

    #[tokio::test(start_paused = true)]
    async fn turns_follow_each_other_and_each_resource_has_one() {
        const APART: Duration = Duration::from_millis(20);
        let written = Written::default();
        let key = |name: &str| ResourceKey {
            kind: ObjectKind::DATASET,
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        let turn = |name| written.turn(&key(name), APART).as_millis();
        assert_eq!([turn("a"), turn("b"), turn("c"), turn("b")], [0, 20, 40, 20]);
        written.record(&key("b"), vec![]);
        assert_eq!(turn("b"), 60, "what was told may be told again");
        written.forget(&key("c"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!([turn("c"), turn("d"), turn("b")], [0, 20, 0]);
    }
}
