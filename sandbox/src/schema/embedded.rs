//! Resources within a resource (`x-kubernetes-embedded-resource`): what they must say of themselves.

use serde_json::{Map, Value};

use super::{
    metadata::validate_metadata,
    names::{self, NameRule},
    node::{Additional, Schema},
    path::Path,
};
use crate::api::FieldError;

/// Walks an object and checks every resource within it. The object itself is not one of them.
pub(crate) fn check(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if schema.embedded_resource && !matches!(path, Path::Root) {
                resource(map, path, errors);
            }
            for (name, value) in map {
                if let Some(schema) = schema.properties.get(name) {
                    check(schema, value, &path.field(name), errors);
                } else if let Some(Additional::Of(schema)) = &schema.additional {
                    check(schema, value, &path.key(name), errors);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (index, element) in list.iter().enumerate() {
                    check(items, element, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn resource(map: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for field in ["apiVersion", "kind"] {
        let at = path.field(field).to_string();
        match map.get(field) {
            None => errors.push(FieldError::required(at, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(at, "", "must not be empty"));
            }
            Some(Value::String(text)) if field == "kind" => {
                let wrong = names::label_1035(&text.to_lowercase());
                if !wrong.is_empty() {
                    let why = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
                    errors.push(FieldError::invalid(at, text.as_str(), why));
                }
            }
            Some(Value::String(text)) if text.matches('/').count() > 1 => {
                let why = format!("unexpected GroupVersion string: {text}");
                errors.push(FieldError::invalid(at, text.as_str(), why));
            }
            Some(Value::String(_)) => {}
            Some(other) => errors.push(FieldError::invalid(at, other.clone(), "must be a string")),
        }
    }
    if let Some(metadata) = map.get("metadata") {
        let mut metadata = metadata.clone();
        // It need not have a name.
        if let Some(meta) = metadata.as_object_mut() {
            meta.entry("name").or_insert_with(|| "fakename".into());
        }
        let namespaced = metadata.get("namespace").is_some();
        let at = path.field("metadata").to_string();
        errors.extend(validate_metadata(&metadata, namespaced, NameRule::PathSegment, &at));
    }
}
