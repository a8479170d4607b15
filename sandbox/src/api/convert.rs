//! Between the version that a client speaks and the one that is stored. Versions of a custom resource differ in name
//! only; events are told in two shapes.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{builtin, object::map, resource::Resource};
use crate::schema;

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
pub(super) fn from_storage<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    if resource.is_storage_version() {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    convert(resource, &mut object, &resource.api_version(), |(theirs, stored)| {
        (stored, theirs)
    });
    Cow::Owned(object)
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
        // What one version writes empty the other leaves out.
        fields.retain(|_, value| value != "" && !value.is_null());
        if let Some((group, version)) = version.split_once('/').or(Some(("", version)))
            && let Some(schema) = schema::builtin(group, version, "Event")
        {
            builtin::fill(schema, object);
        }
    }
    let fields = map(object);
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
        assert_eq!((&stored["apiVersion"], &stored["message"]), (&json!("v1"), &json!("n")));
        assert_eq!(
            (&stored["involvedObject"], &stored["source"]),
            (&json!({"name": "p"}), &json!({}))
        );
        let back = from_storage(resource, &stored);
        assert_eq!(
            (&back["apiVersion"], &back["note"]),
            (&told["apiVersion"], &told["note"])
        );
        assert_eq!((&back["regarding"], back.get("message")), (&told["regarding"], None));
    }
}
