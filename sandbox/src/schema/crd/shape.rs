//! Words of a schema that contradict each other or are not taken.

use serde_json::{Map, Value};

use crate::{
    api::FieldError,
    schema::{parse::strings, path::Path},
};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const UNSUPPORTED: [&str; 6] = [
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
];
const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

pub(super) fn check(schema: &Value, root: &str, errors: &mut Vec<FieldError>) {
    node(schema, &Path::Root.field(root), None, errors);
}

/// `atomic`: where above this node old values cease to be told apart.
fn node(schema: &Value, path: &Path<'_>, atomic: Option<&Path<'_>>, errors: &mut Vec<FieldError>) {
    let Some(map) = schema.as_object() else { return };
    words(map, path, errors);
    lists(map, path, errors);
    rules(map, path, atomic, errors);
    children(map, path, atomic, errors);
}

fn children(map: &Map<String, Value>, path: &Path<'_>, atomic: Option<&Path<'_>>, errors: &mut Vec<FieldError>) {
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    let properties = path.field("properties");
    let in_map = if text("x-kubernetes-map-type") == "atomic" {
        Some(path)
    } else {
        atomic
    };
    for (name, schema) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        node(schema, &properties.key(name), in_map, errors);
    }
    if let Some(schema) = map.get("additionalProperties") {
        node(schema, &path.field("additionalProperties"), in_map, errors);
    }
    if let Some(items) = map.get("items") {
        let in_list = if text("x-kubernetes-list-type") == "map" {
            atomic
        } else {
            Some(path)
        };
        node(items, &path.field("items"), in_list, errors);
    }
    for word in ["allOf", "oneOf", "anyOf"] {
        let list = path.field(word);
        for (index, schema) in map
            .get(word)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            node(schema, &list.index(index), atomic, errors);
        }
    }
    if let Some(schema) = map.get("not") {
        node(schema, &path.field("not"), atomic, errors);
    }
}

fn words(map: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let at = |word: &str| path.field(word).to_string();
    if let Some(kind) = map
        .get("type")
        .and_then(Value::as_str)
        .filter(|t| !t.is_empty() && !TYPES.contains(t))
    {
        errors.push(FieldError::not_supported(at("type"), kind, &TYPES));
    }
    for word in UNSUPPORTED {
        if map.get(word).is_some_and(|value| !value.is_null()) {
            errors.push(FieldError::forbidden(at(word), format!("{word} is not supported")));
        }
    }
    if map.get("items").is_some_and(Value::is_array) {
        errors.push(FieldError::forbidden(
            at("items"),
            "items must be a schema object and not an array",
        ));
    }
    if map.get("uniqueItems") == Some(&Value::Bool(true)) {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(at("uniqueItems"), why));
    }
    let fields = map
        .get("properties")
        .and_then(Value::as_object)
        .is_some_and(|p| !p.is_empty());
    if fields && map.get("additionalProperties").is_some_and(|a| *a != Value::Bool(true)) {
        let why = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(at("additionalProperties"), why));
    }
    if map.get(PRESERVE) == Some(&Value::Bool(false)) {
        errors.push(FieldError::invalid(at(PRESERVE), false, "must be true or undefined"));
    }
}

/// A word that needs a certain type beside it.
fn needs_type(map: &Map<String, Value>, wanted: &str, word: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let why = format!("must be {wanted} if {word} is specified");
    let at = path.field("type").to_string();
    match map.get("type").and_then(Value::as_str).unwrap_or_default() {
        "" => errors.push(FieldError::required(at, why)),
        kind if kind != wanted => errors.push(FieldError::invalid(at, kind, why)),
        _ => {}
    }
}

fn lists(map: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    const LIST: &str = "x-kubernetes-list-type";
    const MAP: &str = "x-kubernetes-map-type";
    const KEYS: &str = "x-kubernetes-list-map-keys";
    let at = |word: &str| path.field(word).to_string();
    if let Some(kind) = map.get(MAP).and_then(Value::as_str) {
        needs_type(map, "object", MAP, path, errors);
        if !matches!(kind, "atomic" | "granular") {
            errors.push(FieldError::not_supported(at(MAP), kind, &["atomic", "granular"]));
        }
    }
    let keys = strings(map, KEYS);
    let list = map.get(LIST).and_then(Value::as_str);
    if let Some(kind) = list {
        needs_type(map, "array", LIST, path, errors);
        if !matches!(kind, "atomic" | "set" | "map") {
            errors.push(FieldError::not_supported(at(LIST), kind, &["atomic", "set", "map"]));
        }
    }
    if !keys.is_empty() && list != Some("map") {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list {
            None => FieldError::required(at(LIST), why),
            Some(kind) => FieldError::invalid(at(LIST), kind, why),
        });
    }
    if list == Some("map") {
        if keys.is_empty() {
            let why = "must not be empty if x-kubernetes-list-type is map";
            errors.push(FieldError::required(at(KEYS), why));
        }
        match map.get("items").and_then(Value::as_object) {
            None => {
                let why = "must have a schema if x-kubernetes-list-type is map";
                errors.push(FieldError::required(at("items"), why));
            }
            Some(items) => map_items(items, &keys, path, errors),
        }
    }
}

fn map_items(items: &Map<String, Value>, keys: &[String], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let at = path.field("items");
    let kind = items.get("type").and_then(Value::as_str).unwrap_or_default();
    if kind != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(at.field("type").to_string(), kind, why));
        return;
    }
    if items.get("nullable") == Some(&Value::Bool(true)) {
        let why = "cannot be nullable when x-kubernetes-list-type is map";
        errors.push(FieldError::forbidden(at.field("nullable").to_string(), why));
    }
    let required = strings(items, "required");
    let properties = at.field("properties");
    for key in keys {
        let field = properties.key(key);
        let Some(schema) = items.get("properties").and_then(|p| p.get(key)) else {
            let why = "entries must all be names of item properties";
            errors.push(FieldError::invalid(
                path.field("x-kubernetes-list-map-keys").to_string(),
                keys.to_vec(),
                why,
            ));
            continue;
        };
        if matches!(schema.get("type").and_then(Value::as_str), Some("object" | "array")) {
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(field.field("type").to_string(), kind, why));
        }
        if !required.contains(key) && schema.get("default").is_none() {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                       property";
            errors.push(FieldError::required(field.field("default").to_string(), why));
        }
    }
}

fn rules(map: &Map<String, Value>, path: &Path<'_>, atomic: Option<&Path<'_>>, errors: &mut Vec<FieldError>) {
    let list = path.field("x-kubernetes-validations");
    for (index, rule) in map
        .get("x-kubernetes-validations")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        let this = list.index(index);
        let at = |word: &str| this.field(word).to_string();
        let (source, message) = (text("rule").trim(), text("message"));
        if source.is_empty() {
            errors.push(FieldError::required(at("rule"), "rule is not specified"));
            continue;
        }
        if !message.is_empty() && message.trim().is_empty() {
            errors.push(FieldError::invalid(
                at("message"),
                message,
                "must be non-empty if specified",
            ));
        } else if message.trim().contains('\n') {
            errors.push(FieldError::invalid(
                at("message"),
                message,
                "must not contain line breaks",
            ));
        } else if source.contains('\n') && message.is_empty() {
            let why = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(at("message"), why));
        }
        if rule.get("messageExpression").is_some() && text("messageExpression").trim().is_empty() {
            let why = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(at("messageExpression"), why));
        }
        let reason = text("reason");
        if !reason.is_empty() && !REASONS.contains(&reason) {
            errors.push(FieldError::not_supported(at("reason"), reason, &REASONS));
        }
        let field = text("fieldPath");
        if !field.is_empty() && !leads_somewhere(map, field) {
            errors.push(FieldError::invalid(at("fieldPath"), field, "must be a valid path"));
        }
        if let Some(atomic) = atomic.filter(|_| source.contains("oldSelf")) {
            let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {atomic}");
            errors.push(FieldError::invalid(at("rule"), source, why));
        }
    }
}

/// A path such as `.a.b` below a schema.
fn leads_somewhere(schema: &Map<String, Value>, path: &str) -> bool {
    let mut names = path.split('.');
    if names.next() != Some("") {
        return false;
    }
    let start = schema.get("properties");
    let found = names.try_fold(start, |properties, name| {
        // A bracketed name is taken on trust.
        let name = name.split('[').next().unwrap_or_default();
        properties
            .and_then(|p| p.get(name))
            .map(|schema| schema.get("properties"))
    });
    found.is_some()
}
