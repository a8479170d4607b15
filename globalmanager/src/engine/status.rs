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

/// Which fields were last written, and when: it tells a field that another manager owns from one that we own and no longer
/// want.
#[derive(Debug, Default)]
pub(crate) struct Written(Mutex<BTreeMap<ResourceKey, Last>>);

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
    let last = engine.shared.status_written.0.lock().get(key).cloned();
    let says = |raw: &Value, wanted: &Map<String, Value>| {
        let written = last.as_ref().map(|last| last.fields.as_slice());
        says(raw, wanted, written, K::REPORTED)
    };
    if says(raw, &wanted) {
        return Ok(Told::Known);
    }
    let pauses = if says(&raw_without_generations(raw), &without_generations(&wanted)) {
        GENERATION_PAUSES
    } else {
        1
    };
    let left = last.as_ref().map_or(Duration::ZERO, |last| {
        (engine.shared.parts.pace.status * pauses).saturating_sub(last.at.elapsed())
    });
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
            let last = Last {
                fields: wanted.into_iter().map(|(field, _)| field).collect(),
                at: Instant::now(),
            };
            engine.shared.status_written.0.lock().insert(key.clone(), last);
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
        self.0.lock().remove(key);
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
}
