//! Events, as they are stored: with the fields of the core group. Through the newer group they are held to more.

use serde_json::{Value, json};

use super::{Errors, is_set, text};
use crate::{api::object::meta, schema::names::qualified};

/// The longest texts.
const LIMITS: [(&str, usize); 3] = [("reportingInstance", 128), ("action", 128), ("reason", 128)];
const LONGEST_MESSAGE: usize = 1024;

/// How an error shows a value.
type Shown = fn(&Value) -> Value;

/// The fields that stay, what they are called in an error, and how their value is shown there; in the order of the errors.
const LASTING: [(&str, &str, Shown); 14] = [
    ("involvedObject", "involvedObject", reference),
    ("reason", "reason", words),
    ("message", "message", words),
    ("source", "source", source),
    ("firstTimestamp", "firstTimestamp", Value::clone),
    ("lastTimestamp", "lastTimestamp", Value::clone),
    ("count", "count", number),
    // Told twice.
    ("reason", "reason", words),
    ("type", "type", words),
    ("eventTime", "eventTime", Value::clone),
    ("action", "action", words),
    ("related", "related", reference),
    ("reportingComponent", "reportingController", words),
    ("reportingInstance", "reportingInstance", words),
];

/// What any event is held to, whichever group it comes through.
pub(super) fn any(errors: &mut Errors, object: &Value, group: &str) {
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
    if !timed {
        return;
    }
    let told = if group.is_empty() {
        "reportingComponent"
    } else {
        "reportingController"
    };
    let reporter = text(object, "reportingComponent");
    if reporter.is_empty() {
        errors.required(told);
    }
    for why in qualified(reporter) {
        errors.invalid(told, reporter, why);
    }
    for (field, limit) in LIMITS {
        if text(object, field).is_empty() {
            errors.required(field);
        }
        at_most(errors, object, field, limit);
    }
    at_most(errors, object, "message", LONGEST_MESSAGE);
}

fn at_most(errors: &mut Errors, object: &Value, field: &str, limit: usize) {
    if text(object, field).len() > limit {
        errors.invalid(field, "", format!("can have at most {limit} characters"));
    }
}

/// What a new one is held to through the newer group.
pub(super) fn new(errors: &mut Errors, object: &Value) {
    series(errors, object);
    if !is_set(object, "eventTime") {
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
    let source = object.get("source").unwrap_or(&Value::Null);
    if ["component", "host"]
        .iter()
        .any(|field| !text(source, field).is_empty())
    {
        errors.invalid("source", "", "needs to be unset");
    }
}

/// Through the newer group, an event stays what it was, but for its series.
pub(super) fn update(errors: &mut Errors, object: &Value, old: &Value) {
    let told = |object: &Value| object.get("series").cloned().unwrap_or_default();
    if told(object) != told(old) {
        series(errors, object);
    }
    for (field, told, shown) in LASTING {
        let value = |object: &Value| shown(object.get(field).unwrap_or(&Value::Null));
        if value(object) != value(old) {
            errors.invalid(told, value(object), "field is immutable");
        }
    }
}

fn series(errors: &mut Errors, object: &Value) {
    let Some(series) = object.get("series").filter(|series| !series.is_null()) else {
        return;
    };
    if series.get("count").and_then(Value::as_i64).unwrap_or_default() < 2 {
        errors.invalid("series.count", "", "should be at least 2");
    }
    if !is_set(series, "lastObservedTime") {
        errors.required("series.lastObservedTime");
    }
}

fn words(value: &Value) -> Value {
    value.as_str().unwrap_or_default().into()
}

fn number(value: &Value) -> Value {
    value.as_i64().unwrap_or_default().into()
}

/// With the names of the server's own fields.
fn reference(value: &Value) -> Value {
    if value.is_null() {
        return Value::Null;
    }
    json!({"Kind": text(value, "kind"), "Namespace": text(value, "namespace"), "Name": text(value, "name"),
        "UID": text(value, "uid"), "APIVersion": text(value, "apiVersion"),
        "ResourceVersion": text(value, "resourceVersion"), "FieldPath": text(value, "fieldPath")})
}

fn source(value: &Value) -> Value {
    json!({"Component": text(value, "component"), "Host": text(value, "host")})
}
