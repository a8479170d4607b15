//! Values within a schema: defaults hold to it, rules compile.

use serde_json::Value;

use super::parsed;
use crate::{
    api::FieldError,
    schema::{cel::Rules, path::Path, validate::Checker},
};

pub(super) fn check(schema: &Value, root: &str, errors: &mut Vec<FieldError>) {
    node(schema, &Path::Root.field(root), errors);
}

fn node(schema: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(map) = schema.as_object() else { return };
    if let Some(default) = map.get("default").filter(|default| !default.is_null()) {
        self::default(&parsed(schema), default, &path.field("default").to_string(), errors);
    }
    if let Some((index, why)) = Rules::compile(schema).and_then(|rules| rules.error()) {
        let list = path.field("x-kubernetes-validations");
        let rule = map
            .get("x-kubernetes-validations")
            .and_then(|rules| rules.get(index))
            .cloned();
        let at = list.index(index);
        let why = format!("compilation failed: {why}");
        errors.push(FieldError::invalid(
            at.field("rule").to_string(),
            rule.unwrap_or_default(),
            why,
        ));
    }
    let properties = path.field("properties");
    for (name, schema) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        node(schema, &properties.key(name), errors);
    }
    for word in ["items", "additionalProperties"] {
        if let Some(schema) = map.get(word) {
            node(schema, &path.field(word), errors);
        }
    }
}

fn default(schema: &crate::schema::Schema, default: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let mut pruned = default.clone();
    if !schema.prune_part(&mut pruned).is_empty() {
        errors.push(FieldError::invalid(at, default.clone(), "must not have unknown fields"));
        return;
    }
    let mut checker = Checker::new(at);
    checker.check(schema, default, None, &Path::Root);
    errors.append(&mut checker.errors);
}
