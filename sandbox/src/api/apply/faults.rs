//! What is wrong with an object that is to be applied, in the words in which Kubernetes says it.

use serde_json::{Value, json};

use super::{
    path::Step,
    typed::{field, items, step_to},
};
use crate::{
    go,
    schema::{ListKind, Schema},
};

/// The faults: fields that the schema does not know, elements that are there
/// twice. Each with its path.
pub(in crate::api) fn faults(schema: Option<&Schema>, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect_faults(schema, value, &mut String::new(), &mut found);
    found
}

fn collect_faults(schema: Option<&Schema>, value: &Value, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    if let Some(wanted) = schema
        .filter(|_| !value.is_null())
        .and_then(|schema| mistyped(schema, value))
    {
        found.push(format!("{path}: {wanted}"));
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                path.push_str(&Step::field(name.as_str()).to_string());
                if schema.is_some_and(|schema| !admits(schema, name)) {
                    found.push(format!("{path}: field not declared in schema"));
                } else {
                    collect_faults(field(schema, name), value, path, found);
                }
                path.truncate(length);
            }
        }
        Value::Array(list) => {
            let kind = schema.map_or(&ListKind::Atomic, Schema::list_kind);
            let mut seen = Vec::new();
            for (index, item) in list.iter().enumerate() {
                if *kind == ListKind::Atomic {
                    path.extend(["[", &index.to_string(), "]"]);
                    collect_faults(items(schema), item, path, found);
                    path.truncate(length);
                    continue;
                }
                let Some(step) = step_to(schema, kind, item) else {
                    if let ListKind::Map(keys) = kind {
                        found.push(format!(
                            "{path}: element {index}: associative list with keys has an element that omits all key \
                             fields {keys:?} (and doesn't have default values for any key fields)"
                        ));
                    }
                    continue;
                };
                if seen.contains(&step) {
                    found.push(format!("{path}: duplicate entries for key {step}"));
                    continue;
                }
                path.push_str(&step.to_string());
                collect_faults(items(schema), item, path, found);
                path.truncate(length);
                seen.push(step);
            }
        }
        _ => {}
    }
}

/// Whether a field may be there at all.
fn admits(schema: &Schema, name: &str) -> bool {
    schema.field(name).is_some() || schema.preserve_unknown || schema.properties.is_empty()
}

/// What is said of a scalar of the wrong type.
fn mistyped(schema: &Schema, value: &Value) -> Option<String> {
    // What has a name of its own and is told as text or number may be anything here.
    if matches!(schema.type_name(), Some("Quantity" | "IntOrString")) || schema.allows_type(value) {
        return None;
    }
    // What a text stands for is asked later.
    if schema.is_int_or_string() || schema.is_formatted_text() {
        return (value.is_object() || value.is_array())
            .then(|| format!("expected any scalar, got {}", go_words(value)));
    }
    match schema.go_type().as_str() {
        // Whether it has to be whole is asked later.
        "int32" | "int64" | "float64" if value.is_number() => None,
        "int32" | "int64" | "float64" => Some(format!("expected numeric (int or float), got {}", go_kind(value))),
        "string" => Some(format!("expected string, got {}", go_value(value))),
        "bool" => Some(format!("expected boolean, got {}", go_words(value))),
        _ if schema.allows_type(&json!({})) => Some(format!("expected map, got {}", go_words(value))),
        _ if schema.allows_type(&json!([])) => Some(format!("expected list, got {}", go_words(value))),
        _ => None,
    }
}

/// A value as it is told where a text is wanted.
fn go_value(value: &Value) -> String {
    format!("&value.valueUnstructured{{Value:{}}}", go::source(value))
}

/// A value as it is told where a boolean, a list or a map is wanted.
fn go_words(value: &Value) -> String {
    format!("&{{{}}}", go::printed(value))
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
