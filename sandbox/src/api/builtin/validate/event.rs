//! Events. Those of the newer group are held to more.

use serde_json::Value;

use super::{Errors, is_set, text};
use crate::api::object::meta;

/// The longest texts.
const LIMITS: [(&str, usize); 4] = [
    ("reportingInstance", 128),
    ("action", 128),
    ("reason", 128),
    ("message", 1024),
];

/// An event of the newer group stays what it was, but for its series.
pub(super) fn update(errors: &mut Errors, object: &Value, old: &Value) {
    if !is_set(object, "eventTime") {
        return;
    }
    for (field, told) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        errors.immutable(told, object.get(field), old.get(field));
    }
}

/// An event as it is stored. `lenient`: it came through the core group, or is only changed.
pub(super) fn event(errors: &mut Errors, object: &Value, lenient: bool) {
    let involved = object.get("involvedObject").unwrap_or(&Value::Null);
    let (namespace, own) = (text(involved, "namespace"), meta(object, "namespace"));
    let timed = is_set(object, "eventTime");
    let fits = match (namespace, timed) {
        ("", false) => matches!(own, "" | "default"),
        ("", true) => matches!(own, "default" | "kube-system"),
        (_, false) => namespace == own,
        (_, true) => true,
    };
    if !fits {
        errors.invalid("involvedObject.namespace", namespace, "does not match event.namespace");
    }
    if timed {
        let reporter = if lenient {
            "reportingComponent"
        } else {
            "reportingController"
        };
        for (field, told) in [
            ("reportingComponent", reporter),
            ("reportingInstance", "reportingInstance"),
            ("action", "action"),
            ("reason", "reason"),
        ] {
            if text(object, field).is_empty() {
                errors.required(told);
            }
        }
        for (field, limit) in LIMITS {
            if text(object, field).len() > limit {
                errors.invalid(field, "", format!("can have at most {limit} characters"));
            }
        }
    }
    if lenient {
        return;
    }
    if !timed {
        errors.required("eventTime");
    }
    let kind = text(object, "type");
    if kind != "Normal" && kind != "Warning" {
        errors.invalid("type", "", format!("has invalid value: {kind}"));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count"] {
        if is_set(object, field) {
            errors.invalid(field, "", "needs to be unset");
        }
    }
}
