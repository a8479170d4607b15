//! A value against its schema: shape, types and limits, in the API server's words.
//!
//! An update is held only to what it changes: a fault in a part that equals its old value is let be, so that a schema
//! may become stricter without locking objects up. CEL rules are in [`super::cel`], uniqueness in [`super::lists`].

use serde_json::{Map, Value};

use super::{
    node::{Additional, Limits, ListKind, Schema, Type},
    path::Path,
};
use crate::api::FieldError;

/// One walk over a value.
pub(crate) struct Checker<'p> {
    /// The field of the object at which the walk begins; empty for the object itself.
    prefix: &'p str,
    pub(crate) errors: Vec<FieldError>,
    /// How much was in order: of several alternatives that all fail, the closest one is reported.
    pub(super) matched: u32,
}

impl<'p> Checker<'p> {
    pub(crate) fn new(prefix: &'p str) -> Self {
        Self {
            prefix,
            errors: Vec::new(),
            matched: 0,
        }
    }

    pub(super) fn at(&self, path: &Path<'_>) -> String {
        let path = path.to_string();
        match (self.prefix, path.as_str()) {
            (prefix, "") => prefix.to_owned(),
            ("", _) => path,
            (prefix, _) => format!("{prefix}.{path}"),
        }
    }

    pub(super) fn invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, what: &str) {
        let detail = format!("{path} in body {what}");
        self.errors.push(FieldError::invalid(self.at(path), value, detail));
    }

    /// A fault that the API server reports without naming a field.
    pub(super) fn nameless(&mut self, message: &str) {
        self.errors.push(FieldError::invalid(self.prefix, "", message));
    }

    pub(crate) fn check(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, path: &Path<'_>) {
        if old == Some(value) {
            return;
        }
        self.matched += 1;
        self.check_type(schema, value, path);
        if let Some(limits) = &schema.limits {
            self.check_enum(limits, value, path);
            if !value.is_null() {
                self.check_alternatives(limits, value, old, path);
                self.check_limits(limits, value, path);
            }
        }
        match value {
            Value::Object(map) => self.check_object(schema, map, old, path),
            Value::Array(list) => {
                if let Some(items) = &schema.items {
                    for (index, element) in list.iter().enumerate() {
                        let old = old_element(schema, old, element);
                        self.check(items, element, old, &path.index(index));
                    }
                }
            }
            _ => {}
        }
    }

    fn check_type(&mut self, schema: &Schema, value: &Value, path: &Path<'_>) {
        let format = schema
            .limits
            .as_ref()
            .and_then(|l| l.format.as_deref())
            .unwrap_or_default();
        if schema.types.is_empty() {
            return;
        }
        let (found, found_format) = match value {
            Value::Null if schema.nullable => return,
            Value::Null => ("null", ""),
            Value::Bool(_) => ("boolean", ""),
            Value::String(_) => ("string", ""),
            Value::Array(_) => ("array", ""),
            Value::Object(_) => ("object", ""),
            Value::Number(n) if n.is_f64() => ("number", "float64"),
            Value::Number(_) => ("integer", "int64"),
        };
        let asked = |t: Type| schema.types.contains(&t);
        let whole = value.as_f64().is_some_and(|n| n.fract() == 0.0);
        let fits = Type::parse(found).is_some_and(asked)
            || (found == "number" && whole && asked(Type::Integer))
            || (found == "integer" && asked(Type::Number));
        if fits {
            self.matched += 1;
            return;
        }
        // A number or an object where a format is asked for is told the format, all else the type.
        let scalar_format = !format.is_empty() && !matches!(value, Value::Null | Value::String(_) | Value::Array(_));
        let (wanted, found) = if scalar_format {
            (format.to_owned(), found_format)
        } else {
            let names: Vec<_> = schema.types.iter().map(|t| t.as_str()).collect();
            (names.join(","), found)
        };
        let detail = format!("{path} in body must be of type {wanted}: {found:?}");
        self.errors
            .push(FieldError::type_invalid(self.at(path), found, &detail));
    }

    fn check_enum(&mut self, limits: &Limits, value: &Value, path: &Path<'_>) {
        let Some(allowed) = &limits.one_of_values else { return };
        let same = |a: &Value| a == value || a.as_f64().is_some_and(|a| value.as_f64() == Some(a));
        if !allowed.is_empty() && !allowed.iter().any(same) {
            let texts: Vec<String> = allowed
                .iter()
                .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
                .collect();
            self.errors
                .push(FieldError::not_supported(self.at(path), value.clone(), &texts));
        }
    }

    fn check_object(&mut self, schema: &Schema, map: &Map<String, Value>, old: Option<&Value>, path: &Path<'_>) {
        for (name, value) in map {
            if schema.properties.contains_key(name) {
                continue;
            }
            match &schema.additional {
                Some(Additional::Of(schema)) => {
                    let old = old.and_then(|o| o.get(name));
                    self.check(schema, value, old, &path.field(name));
                }
                Some(Additional::None) => {
                    let detail = format!("{path}.{name} in body is a forbidden property");
                    self.errors
                        .push(FieldError::invalid(self.at(path), name.as_str(), &detail));
                }
                Some(Additional::Any) | None => {}
            }
        }
        for (name, schema) in &schema.properties {
            if let Some(value) = map.get(name) {
                self.check(schema, value, old.and_then(|o| o.get(name)), &path.field(name));
            }
        }
        for name in &schema.required {
            if !map.contains_key(name) {
                self.errors.push(FieldError::required(self.at(&path.field(name)), ""));
            }
        }
    }

    fn check_alternatives(&mut self, limits: &Limits, value: &Value, old: Option<&Value>, path: &Path<'_>) {
        if !limits.any_of.is_empty() {
            let closest = self.closest(&limits.any_of, value, old, path);
            if closest.0 == 0 {
                self.nameless(&format!(
                    "{:?} must validate at least one schema (anyOf)",
                    path.to_string()
                ));
                self.errors.extend(closest.1);
            }
        }
        if !limits.one_of.is_empty() {
            let (valid, closest) = self.closest(&limits.one_of, value, old, path);
            if valid != 1 {
                let found = if valid == 0 {
                    "Found none valid".into()
                } else {
                    format!("Found {valid} valid alternatives")
                };
                let path = path.to_string();
                self.nameless(&format!(
                    "{path:?} must validate one and only one schema (oneOf). {found}"
                ));
                self.errors.extend(closest);
            }
        }
        let mut valid = 0;
        for schema in &limits.all_of {
            let branch = self.branch(schema, value, old, path);
            valid += usize::from(branch.errors.is_empty());
            self.errors.extend(branch.errors);
        }
        if valid != limits.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            self.nameless(&format!(
                "{:?} must validate all the schemas (allOf){none}",
                path.to_string()
            ));
        }
        if let Some(schema) = &limits.not
            && self.branch(schema, value, old, path).errors.is_empty()
        {
            self.nameless(&format!("{:?} must not validate the schema (not)", path.to_string()));
        }
    }

    fn branch(&self, schema: &Schema, value: &Value, old: Option<&Value>, path: &Path<'_>) -> Self {
        let mut branch = Self::new(self.prefix);
        // The branches share the value: were equality to excuse them, `oneOf` would count all of them as valid.
        let same = old == Some(value);
        branch.check(schema, value, old.filter(|_| !same), path);
        branch
    }

    /// How many branches hold, and the faults of the one that came closest where none does.
    fn closest(
        &self,
        branches: &[Schema],
        value: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
    ) -> (usize, Vec<FieldError>) {
        let mut valid = 0;
        let mut best: Option<Self> = None;
        for schema in branches {
            let branch = self.branch(schema, value, old, path);
            if branch.errors.is_empty() {
                valid += 1;
            } else if best.as_ref().is_none_or(|b| branch.matched > b.matched) {
                best = Some(branch);
            }
        }
        let faults = if valid == 0 {
            best.map(|b| b.errors).unwrap_or_default()
        } else {
            Vec::new()
        };
        (valid, faults)
    }
}

/// The old value of a list's element: found by its keys in a list of type `map`, unknown in any other.
pub(crate) fn old_element<'v>(list: &Schema, old: Option<&'v Value>, element: &Value) -> Option<&'v Value> {
    let ListKind::Map(keys) = &list.list else { return None };
    let same = |candidate: &&Value| keys.iter().all(|key| candidate.get(key) == element.get(key));
    old?.as_array()?.iter().find(same)
}
