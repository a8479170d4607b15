//! Uniqueness in lists of type `set` and `map`.

use serde_json::{Map, Value};

use super::{
    node::{Additional, ListKind, Schema},
    path::Path,
};
use crate::api::FieldError;

/// Every second occurrence in a list whose elements must differ.
pub(crate) fn duplicates(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(schema) = schema.properties.get(name) {
                    duplicates(schema, value, &path.field(name), errors);
                } else if let Some(Additional::Of(schema)) = &schema.additional {
                    duplicates(schema, value, &path.key(name), errors);
                }
            }
        }
        Value::Array(list) => {
            match &schema.list {
                ListKind::Set => repeated(list, path, errors),
                ListKind::Map(keys) => map_list(keys, list, path, errors),
                ListKind::Atomic => {}
            }
            if let Some(items) = &schema.items {
                for (index, element) in list.iter().enumerate() {
                    duplicates(items, element, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn map_list(keys: &[String], list: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let odd = list.iter().enumerate().find(|(_, v)| !v.is_object() && !v.is_null());
    if let Some((index, value)) = odd {
        errors.push(FieldError::invalid(
            path.index(index).to_string(),
            value.clone(),
            "must be an object for an array of list-type map",
        ));
        return;
    }
    let key_of = |element: &Value| -> Value {
        let fields = keys
            .iter()
            .filter_map(|key| Some((key.clone(), element.get(key)?.clone())));
        Value::Object(fields.collect::<Map<_, _>>())
    };
    repeated(&list.iter().map(key_of).collect::<Vec<_>>(), path, errors);
}

fn repeated(values: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (index, value) in values.iter().enumerate() {
        // The second occurrence is named, and no further one.
        if values.iter().take(index).filter(|v| *v == value).count() == 1 {
            errors.push(FieldError::duplicate(path.index(index).to_string(), value.clone()));
        }
    }
}
