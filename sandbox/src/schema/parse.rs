//! JSON (OpenAPI v3, as in a `CustomResourceDefinition` or made from `k8s-openapi`'s types) into a [`Schema`].
//!
//! Lenient: what it cannot read counts as absent. Whether a schema is acceptable is decided in [`super::crd`].

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

use super::{
    cel::Rules,
    node::{Additional, Bound, Limits, ListKind, PatchStrategy, Schema, Type},
    pattern::Pattern,
};

/// How the types that a schema refers to are found by name; `None` leaves the field open.
pub(crate) type Resolve<'a> = &'a dyn Fn(&str) -> Option<Arc<Schema>>;

impl Schema {
    /// The schema of a custom resource: `openAPIV3Schema` of a version, or `null` where there is none.
    /// `apiVersion`, `kind` and `metadata` are known whether it names them or not.
    pub fn of_resource(schema: &Value) -> Self {
        let mut root = parse(schema, &|_| None);
        root.embedded_resource = true;
        root
    }
}

pub(crate) fn parse(json: &Value, resolve: Resolve<'_>) -> Schema {
    let Some(map) = json.as_object() else {
        return Schema {
            preserve_unknown: true,
            ..Schema::default()
        };
    };
    let mut schema = Schema {
        types: types(map),
        nullable: flag(map, "nullable"),
        preserve_unknown: flag(map, "x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag(map, "x-kubernetes-embedded-resource"),
        properties: properties(map, resolve),
        additional: additional(map, resolve),
        items: map.get("items").map(|s| child(s, resolve)),
        required: strings(map, "required"),
        default: map.get("default").filter(|v| !v.is_null()).cloned(),
        list: list_kind(map),
        atomic: is_atomic(map),
        patch: patch_strategy(map),
        limits: limits(map, resolve),
        rules: Rules::compile(json).map(Arc::new),
        any_rules: false,
        type_path: None,
        width: map
            .get("format")
            .and_then(Value::as_str)
            .filter(|f| f.starts_with("int"))
            .map(Arc::from),
    };
    let additional = match &schema.additional {
        Some(Additional::Of(below)) => Some(below),
        _ => None,
    };
    let mut below = schema.properties.values().chain(&schema.items).chain(additional);
    schema.any_rules = schema.rules.is_some() || below.any(|schema| schema.any_rules);
    schema
}

/// A schema below another. One that refers to a type is that type, with what is said of merging at this place.
fn child(json: &Value, resolve: Resolve<'_>) -> Arc<Schema> {
    let reference = json
        .get("$ref")
        .or_else(|| json.pointer("/allOf/0/$ref"))
        .and_then(Value::as_str);
    let target = reference.and_then(|r| resolve(r.rsplit('/').next()?));
    let Some(target) = target else {
        return Arc::new(parse(json, resolve));
    };
    let Some(map) = json.as_object() else { return target };
    let (patch, atomic) = (patch_strategy(map), is_atomic(map));
    if patch == PatchStrategy::default() && !atomic {
        return target;
    }
    Arc::new(Schema {
        patch,
        atomic: atomic || target.atomic,
        ..Schema::clone(&target)
    })
}

fn patch_strategy(map: &Map<String, Value>) -> PatchStrategy {
    let word = |key: &str| map.get(key).and_then(Value::as_str);
    let strategies = word("x-kubernetes-patch-strategy").unwrap_or_default();
    PatchStrategy {
        merge: strategies.split(',').any(|s| s == "merge"),
        replace: strategies.split(',').any(|s| s == "replace"),
        retain_keys: strategies.split(',').any(|s| s == "retainKeys"),
        merge_key: word("x-kubernetes-patch-merge-key").map(str::to_owned),
    }
}

fn is_atomic(map: &Map<String, Value>) -> bool {
    map.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic")
}

fn properties(map: &Map<String, Value>, resolve: Resolve<'_>) -> BTreeMap<String, Arc<Schema>> {
    let properties = map.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .map(|(name, s)| (name.clone(), child(s, resolve)))
        .collect()
}

fn additional(map: &Map<String, Value>, resolve: Resolve<'_>) -> Option<Additional> {
    match map.get("additionalProperties")? {
        Value::Bool(true) => Some(Additional::Any),
        Value::Bool(false) => Some(Additional::None),
        schema => Some(Additional::Of(child(schema, resolve))),
    }
}

fn types(map: &Map<String, Value>) -> Vec<Type> {
    if flag(map, "x-kubernetes-int-or-string") {
        return vec![Type::Integer, Type::String];
    }
    match map.get("type") {
        Some(Value::String(one)) => Type::parse(one).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn list_kind(map: &Map<String, Value>) -> ListKind {
    match map.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("map") => ListKind::Map(strings(map, "x-kubernetes-list-map-keys")),
        Some("set") => ListKind::Set,
        _ => ListKind::Atomic,
    }
}

fn limits(map: &Map<String, Value>, resolve: Resolve<'_>) -> Option<Arc<Limits>> {
    const WORDS: [&str; 18] = [
        "maximum",
        "minimum",
        "multipleOf",
        "maxLength",
        "minLength",
        "pattern",
        "format",
        "maxItems",
        "minItems",
        "uniqueItems",
        "maxProperties",
        "minProperties",
        "enum",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "exclusiveMaximum",
    ];
    if !map.keys().any(|word| WORDS.contains(&word.as_str())) {
        return None;
    }
    let number = |key: &str| map.get(key).and_then(Value::as_f64);
    let count = |key: &str| map.get(key).and_then(Value::as_u64).and_then(|n| n.try_into().ok());
    let text = |key: &str| map.get(key).and_then(Value::as_str).filter(|s| !s.is_empty());
    let bound = |key: &str, exclusive: &str| {
        number(key).map(|value| Bound {
            value,
            exclusive: flag(map, exclusive),
        })
    };
    let branches = |key: &str| -> Vec<Schema> {
        let list = map.get(key).and_then(Value::as_array);
        list.into_iter().flatten().map(|s| parse(s, resolve)).collect()
    };
    Some(Arc::new(Limits {
        maximum: bound("maximum", "exclusiveMaximum"),
        minimum: bound("minimum", "exclusiveMinimum"),
        multiple_of: number("multipleOf"),
        max_length: count("maxLength"),
        min_length: count("minLength"),
        pattern: text("pattern").map(Pattern::new),
        format: text("format").filter(|f| super::format::is_known(f)).map(str::to_owned),
        max_items: count("maxItems"),
        min_items: count("minItems"),
        unique_items: flag(map, "uniqueItems"),
        max_properties: count("maxProperties"),
        min_properties: count("minProperties"),
        one_of_values: map.get("enum").and_then(Value::as_array).cloned(),
        all_of: branches("allOf"),
        any_of: branches("anyOf"),
        one_of: branches("oneOf"),
        not: map.get("not").map(|s| Box::new(parse(s, resolve))),
    }))
}

pub(crate) fn flag(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).and_then(Value::as_bool).unwrap_or_default()
}

pub(crate) fn strings(map: &Map<String, Value>, key: &str) -> Vec<String> {
    let list = map.get(key).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|v| v.as_str().map(str::to_owned))
        .collect()
}
