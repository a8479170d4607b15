//! Writes a status where it says something new, and nowhere else.

use std::collections::BTreeMap;

use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use skerry_crds::names;
use skerry_workloads::{Applied, Kind, Observed, Plan};

use super::{
    Engine, ResourceKey,
    pass::{Error, at},
    trim,
    watches::api_resource,
};

/// What was last written: it tells a field that another manager owns from one that we own and no longer want.
#[derive(Debug, Default)]
pub(crate) struct Written(Mutex<BTreeMap<ResourceKey, Map<String, Value>>>);

/// Computes the status and writes it if it differs; says whether it did.
pub(crate) async fn write<K: Kind>(
    engine: &Engine,
    key: &ResourceKey,
    resource: &K,
    raw: &Value,
    seen: &Observed,
    plan: &Plan,
    applied: &Applied,
) -> Result<bool, Error> {
    let status = resource.status(seen, plan, applied, engine.now());
    let Ok(Value::Object(mut wanted)) = serde_json::to_value(&status) else {
        return Ok(false);
    };
    wanted.retain(|key, value| !value.is_null() && !K::REPORTED.contains(&key.as_str()));
    if says(
        raw,
        &wanted,
        engine.shared.status_written.0.lock().get(key),
        K::REPORTED,
    ) {
        return Ok(false);
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
            engine.shared.status_written.0.lock().insert(key.clone(), wanted);
            engine.learn(K::KIND, &trim::trim(K::KIND, object), false);
            Ok(true)
        }
        // The resource is gone. (After a conflict the next pass knows whether another one has its name by now.)
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
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
fn says(raw: &Value, wanted: &Map<String, Value>, written: Option<&Map<String, Value>>, reported: &[&str]) -> bool {
    let empty = Map::new();
    let current = raw.get("status").and_then(Value::as_object).unwrap_or(&empty);
    let all_there = wanted.iter().all(|(key, value)| current.get(key) == Some(value));
    let ours = |key: &String| !reported.contains(&key.as_str()) && !wanted.contains_key(key);
    // Before this process has written anything it cannot know whose the extra fields are: it then writes once.
    let nothing_else = match written {
        Some(written) => written == wanted || !current.keys().any(|key| ours(key) && written.contains_key(key)),
        None => !current.keys().any(ours),
    };
    all_there && nothing_else
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
        assert!(says(&raw, &wanted, Some(&wanted), &["metrics"]));
        assert!(says(&raw, &wanted, Some(&map(&json!({"active": 2}))), &["metrics"]));
        assert!(!says(&raw, &map(&json!({"active": 2})), Some(&wanted), &["metrics"]));
    }

    #[test]
    fn a_field_that_we_no_longer_want_is_taken_back() {
        let raw = json!({"status": {"active": 1, "failed": 1}});
        let written = map(&json!({"active": 1, "failed": 1}));
        assert!(!says(&raw, &map(&json!({"active": 1})), Some(&written), &[]));
    }
}
