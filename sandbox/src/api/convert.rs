//! Between the version that a client speaks and the one that is stored. Versions of a custom resource differ in name
//! only; events are told in two shapes.

use serde_json::{Map, Value};

use super::{object::map, resource::Resource};

/// Fields of an event: in `events.k8s.io/v1`, and as stored.
const EVENT: [(&str, &str); 7] = [
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// From the client's version to the stored one.
pub(super) fn to_storage(resource: &Resource, object: &mut Value) {
    if !resource.is_storage_version() {
        convert(resource, object, &resource.storage_version, |(theirs, stored)| {
            (theirs, stored)
        });
    }
}

/// From the stored version to the client's.
pub(super) fn from_storage(resource: &Resource, object: &Value) -> Value {
    let mut object = object.clone();
    convert(resource, &mut object, &resource.api_version(), |(theirs, stored)| {
        (stored, theirs)
    });
    object
}

fn convert(
    resource: &Resource,
    object: &mut Value,
    version: &str,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let fields = map(object);
    if resource.names.kind == "Event" && !resource.custom {
        rename(fields, EVENT.map(direction));
    }
    fields.insert("apiVersion".into(), version.into());
}

fn rename(fields: &mut Map<String, Value>, names: [(&str, &str); 7]) {
    for (from, to) in names {
        if let Some(value) = fields.shift_remove(from) {
            fields.insert(to.into(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::registry::Registry;
    use serde_json::json;

    #[test]
    fn events_are_told_in_two_shapes() {
        let registry = Registry::builtin();
        let resource = registry.get("events.k8s.io", "v1", "events").unwrap();
        let told = json!({"apiVersion": "events.k8s.io/v1", "note": "n", "regarding": {"name": "p"}, "reason": "r"});
        let mut stored = told.clone();
        to_storage(resource, &mut stored);
        assert_eq!(
            stored,
            json!({"apiVersion": "v1", "message": "n", "involvedObject": {"name": "p"}, "reason": "r"})
        );
        assert_eq!(from_storage(resource, &stored), told);
    }
}
