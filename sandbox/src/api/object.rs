//! Short ways into an object's metadata.

use serde_json::{Map, Value};

/// `metadata.<field>` as text; empty if it is not there.
pub(super) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// `metadata.<field>`, whatever it is.
pub(super) fn meta_value<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field).filter(|value| !value.is_null())
}

/// The metadata, made if missing. An object that is none becomes one.
pub(super) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    child(map(object), "metadata")
}

/// The value as a map; anything else is replaced by an empty one.
pub(super) fn map(value: &mut Value) -> &mut Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => {
            *other = Value::Object(Map::new());
            map(other)
        }
    }
}

/// A field that is a map, made if missing.
pub(super) fn child<'a>(parent: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    map(parent.entry(field).or_insert(Value::Null))
}

/// A field that is a list, made if missing.
pub(super) fn array<'a>(parent: &'a mut Map<String, Value>, field: &str) -> &'a mut Vec<Value> {
    list(parent.entry(field).or_insert(Value::Null))
}

/// The value as a list; anything else is replaced by an empty one.
fn list(value: &mut Value) -> &mut Vec<Value> {
    match value {
        Value::Array(list) => list,
        other => {
            *other = Value::Array(Vec::new());
            list(other)
        }
    }
}

/// Sets `metadata.<field>`, or removes it.
pub(super) fn set_meta(object: &mut Value, field: &str, value: Option<Value>) {
    let metadata = metadata(object);
    match value {
        Some(value) => {
            metadata.insert(field.to_owned(), value);
        }
        None => {
            metadata.shift_remove(field);
        }
    }
}

/// True if the object is on its way out.
pub(super) fn is_terminating(object: &Value) -> bool {
    meta_value(object, "deletionTimestamp").is_some()
}

/// The finalizers.
pub(super) fn finalizers(object: &Value) -> Vec<String> {
    let list = meta_value(object, "finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    list.filter_map(|finalizer| finalizer.as_str().map(str::to_owned))
        .collect()
}
