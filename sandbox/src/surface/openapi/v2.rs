//! The one document of version 2, for clients that know no other.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{META, SCHEMAS, Served, add_referred, add_types, paths};

/// `/openapi/v2`, as JSON.
pub fn v2<'a>(served: impl IntoIterator<Item = Served<'a>>) -> Value {
    let (mut schemas, mut paths, mut wanted) = (Map::new(), Map::new(), BTreeSet::new());
    wanted.extend(["DeleteOptions", "Status"].map(|name| format!("{META}{name}")));
    for one in served {
        let name = add_types(one, &mut schemas, &mut wanted);
        paths::add(&mut paths, one, &name);
    }
    add_referred(&mut schemas, wanted);
    schemas.values_mut().for_each(older_schema);
    for item in paths.values_mut() {
        item.as_object_mut()
            .into_iter()
            .flat_map(Map::values_mut)
            .for_each(older_operation);
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.34.0"},
        "paths": paths,
        "definitions": schemas,
    })
}

/// Version 2 has neither alternatives nor nulls, and refers to types plainly.
fn older_schema(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            let target = map
                .get("$ref")
                .or_else(|| map.get("allOf").and_then(|all| all.pointer("/0/$ref")));
            if let Some(name) = target.and_then(Value::as_str).and_then(|r| r.strip_prefix(SCHEMAS)) {
                let reference = format!("#/definitions/{name}");
                map.insert("$ref".into(), reference.into());
            }
            for word in ["allOf", "anyOf", "oneOf", "not", "nullable"] {
                // A field may be called so too; then it is described by an object with a type.
                if map.get(word).is_none_or(|value| value.get("type").is_none()) {
                    map.remove(word);
                }
            }
            map.values_mut().for_each(older_schema);
        }
        Value::Array(list) => list.iter_mut().for_each(older_schema),
        _ => {}
    }
}

fn older_operation(operation: &mut Value) {
    let Some(operation) = operation.as_object_mut() else {
        return;
    };
    if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
        for parameter in parameters {
            if let Some(Value::Object(schema)) = parameter.as_object_mut().and_then(|p| p.remove("schema")) {
                parameter
                    .as_object_mut()
                    .into_iter()
                    .for_each(|p| p.extend(schema.clone()));
            }
        }
    }
    if operation.remove("requestBody").is_some() {
        let body = json!({"name": "body", "in": "body", "required": true, "schema": {"type": "object"}});
        if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
            parameters.push(body);
        }
    }
    if let Some(answer) = operation
        .get_mut("responses")
        .and_then(|r| r.get_mut("200"))
        .and_then(Value::as_object_mut)
        && let Some(mut content) = answer.remove("content")
        && let Some(schema) = content.pointer_mut("/application~1json/schema")
    {
        older_schema(schema);
        answer.insert("schema".into(), schema.take());
    }
}
