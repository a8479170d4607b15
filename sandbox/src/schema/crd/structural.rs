//! That a schema is structural: every field has a type, and nothing hides in alternatives.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    api::FieldError,
    schema::{parse::flag, path::Path, pattern::Pattern},
};

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

pub(super) fn check(schema: &Value, root: &str, errors: &mut Vec<FieldError>) {
    node(schema, Level::Root, &Path::Root.field(root), errors);
}

fn node(schema: &Value, level: Level, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(map) = schema.as_object() else { return };
    own_type(map, level, path, errors);
    extensions(map, path, errors);
    resource(map, level, path, errors);
    if let Some(items) = map.get("items") {
        node(items, Level::Item, &path.field("items"), errors);
    }
    let properties = path.field("properties");
    let fields: BTreeMap<_, _> = map
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .collect();
    for (name, schema) in fields {
        node(schema, Level::Field, &properties.key(name), errors);
    }
    if let Some(schema) = map.get("additionalProperties") {
        let at = path.field("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(at.to_string(), "must not be used at the root"));
        }
        node(schema, Level::Field, &at, errors);
    }
    values(map, path, is_int_or_string(map.get("anyOf")), errors);
}

fn own_type(map: &Map<String, Value>, level: Level, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
    let at = || path.field("type").to_string();
    let embedded = flag(map, "x-kubernetes-embedded-resource");
    let open = flag(map, "x-kubernetes-int-or-string") || flag(map, "x-kubernetes-preserve-unknown-fields");
    if embedded && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(at(), why)
        } else {
            FieldError::invalid(at(), kind, why)
        });
    } else if kind.is_empty() && !open {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(at(), why));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(at(), kind, "must be object at the root"));
    }
    if kind == "array" && map.get("items").is_none() {
        errors.push(FieldError::required(
            path.field("items").to_string(),
            "must be specified",
        ));
    }
}

fn extensions(map: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for word in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if flag(map, "x-kubernetes-int-or-string") && flag(map, word) {
            let why = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(path.field(word).to_string(), true, why));
        }
    }
}

/// What a resource has without saying so.
fn resource(map: &Map<String, Value>, level: Level, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let embedded = flag(map, "x-kubernetes-embedded-resource");
    let properties = map.get("properties").and_then(Value::as_object);
    let of = |name: &str| properties.and_then(|p| p.get(name));
    let at = path.field("properties");
    if embedded && map.get("additionalProperties").is_some() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(
            path.field("additionalProperties").to_string(),
            why,
        ));
    }
    if embedded && !flag(map, "x-kubernetes-preserve-unknown-fields") && properties.is_none_or(Map::is_empty) {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(at.to_string(), why));
    }
    if level != Level::Root && !embedded {
        return;
    }
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let kind = of(name).map(|schema| schema.get("type").and_then(Value::as_str).unwrap_or_default());
        if let Some(kind) = kind.filter(|kind| *kind != wanted) {
            let field = at.key(name);
            errors.push(FieldError::invalid(
                field.field("type").to_string(),
                kind,
                format!("must be {wanted}"),
            ));
        }
    }
    let names_only = |metadata: &Value| {
        let Some(metadata) = metadata.as_object() else {
            return true;
        };
        let known = |name: &String| name == "name" || name == "generateName";
        let fields = metadata.get("properties").and_then(Value::as_object);
        fields.is_none_or(|fields| fields.keys().all(known))
            && metadata
                .keys()
                .all(|word| word == "type" || word == "properties" || word == "description")
    };
    if level == Level::Root && of("metadata").is_some_and(|m| m["type"] == "object" && !names_only(m)) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(at.key("metadata").to_string(), why));
    }
}

/// An integer or a string, as it is written for clients that know no other way.
fn is_int_or_string(any_of: Option<&Value>) -> bool {
    any_of == Some(&json!([{"type": "integer"}, {"type": "string"}]))
}

/// Validations of values: patterns and alternatives. `known`: `anyOf` says integer or string, which is let be.
fn values(map: &Map<String, Value>, path: &Path<'_>, known: bool, errors: &mut Vec<FieldError>) {
    for word in ["anyOf", "allOf", "oneOf"] {
        let list = path.field(word);
        let branches = map.get(word).and_then(Value::as_array).into_iter().flatten();
        for (index, branch) in branches.enumerate() {
            let first = word == "allOf" && index == 0 && is_int_or_string(branch.get("anyOf"));
            if !(word == "anyOf" && known) {
                nested(branch, &list.index(index), first, errors);
            }
        }
    }
    if let Some(schema) = map.get("not") {
        nested(schema, &path.field("not"), false, errors);
    }
    if let Some(pattern) = map.get("pattern").and_then(Value::as_str)
        && let Err(error) = Pattern::new(pattern).regex
    {
        let why = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(path.field("pattern").to_string(), pattern, why));
    }
}

/// A branch may narrow what is declared beside it, and declare nothing itself.
fn nested(schema: &Value, path: &Path<'_>, known: bool, errors: &mut Vec<FieldError>) {
    let Some(map) = schema.as_object() else { return };
    let forbidden = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (word, why) in forbidden {
        if map
            .get(word)
            .is_some_and(|value| !value.is_null() && *value != Value::Bool(false))
        {
            errors.push(FieldError::forbidden(path.field(word).to_string(), why));
        }
    }
    let properties = path.field("properties");
    for (name, schema) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let field = properties.key(name);
        if name == "metadata" {
            errors.push(FieldError::forbidden(
                field.to_string(),
                "must not be specified in a nested context",
            ));
        }
        nested(schema, &field, false, errors);
    }
    if let Some(items) = map.get("items") {
        nested(items, &path.field("items"), false, errors);
    }
    let mut narrowed = map.clone();
    if known {
        narrowed.shift_remove("anyOf");
    }
    values(&narrowed, path, false, errors);
}
