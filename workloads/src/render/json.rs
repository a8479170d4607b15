//! Edits of JSON objects that may lack what is edited.

use serde_json::{Map, Value};

/// Edits the object at `key`, made empty where there is none.
pub(crate) fn edit_object(parent: &mut Map<String, Value>, key: &str, edit: impl FnOnce(&mut Map<String, Value>)) {
    let slot = parent.entry(key).or_insert(Value::Null);
    let mut object = match slot.take() {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    edit(&mut object);
    *slot = Value::Object(object);
}

/// Edits the list at `key`, made empty where there is none; left out where it is empty afterwards.
pub(crate) fn edit_list(parent: &mut Map<String, Value>, key: &str, edit: impl FnOnce(&mut Vec<Value>)) {
    let mut list = match parent.get_mut(key).map(Value::take) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    edit(&mut list);
    if list.is_empty() {
        parent.shift_remove(key);
    } else {
        parent.insert(key.to_owned(), Value::Array(list));
    }
}

/// The `name` of a list's element.
pub(crate) fn name(element: &Value) -> Option<&str> {
    element.get("name")?.as_str()
}
