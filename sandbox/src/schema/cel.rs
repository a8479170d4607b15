//! The CEL rules of a schema (`x-kubernetes-validations`): which of them are to run on which part of an object, against
//! which old value, and how a failure reads. Evaluation itself is kube's.

use std::sync::{LazyLock, OnceLock};

use kube::core::cel::{CompiledSchema, ErrorKind, ValidationError, ValidationErrors, Validator, compile_schema};
use regex::Regex;
use serde_json::{Map, Value, json};

use super::{
    mentioned::Part,
    node::{Additional, Schema},
    parse::flag,
    path::Path,
    validate::old_element,
};
use crate::api::FieldError;

thread_local! {
    /// Holds the function library, which is costly to set up, and cannot be shared between threads.
    static VALIDATOR: Validator = Validator::new();
}

static OLD_SELF: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\boldSelf\b").ok());

/// The rules of one node.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The rules alone: whether they compile, and which are about change.
    alone: CompiledSchema,
    source: Vec<Value>,
    /// What the rules, and the expressions of their messages, look at.
    mentioned: Part,
    /// The node, for the types of what is below it.
    schema: Value,
    /// Rules with types, for values that have no old one and for those that have. Made when first needed.
    create: OnceLock<CompiledSchema>,
    update: OnceLock<CompiledSchema>,
    /// The schema's type, which messages show in place of the value.
    type_name: String,
}

impl Rules {
    /// The rules of a schema's own node; `None` where it has none.
    pub(crate) fn compile(schema: &Value) -> Option<Self> {
        let rules = schema
            .get("x-kubernetes-validations")?
            .as_array()
            .filter(|r| !r.is_empty())?;
        let texts =
            ["rule", "messageExpression"].map(|field| rules.iter().filter_map(move |rule| rule.get(field)?.as_str()));
        let prepared: Vec<_> = rules.iter().map(|rule| prepared(rule, true)).collect();
        Some(Self {
            alone: compile_schema(&json!({"x-kubernetes-validations": prepared})),
            source: rules.clone(),
            mentioned: Part::mentioned(texts.into_iter().flatten()),
            schema: schema.clone(),
            create: OnceLock::new(),
            update: OnceLock::new(),
            type_name: schema
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
        })
    }

    /// The first rule that does not compile: its place, and why.
    pub(crate) fn error(&self) -> Option<(usize, String)> {
        let mut rules = self.alone.validations.iter().enumerate();
        rules.find_map(|(index, rule)| Some((index, rule.as_ref().err()?.to_string())))
    }

    fn with_types(&self, old: bool) -> CompiledSchema {
        let mut shape = self.schema.clone();
        strip(&mut shape);
        if let Some(shape) = shape.as_object_mut() {
            let rules = self.source.iter().map(|rule| prepared(rule, old)).collect();
            shape.insert("x-kubernetes-validations".into(), Value::Array(rules));
        }
        compile_schema(&shape)
    }

    fn run(&self, value: &Value, old: Option<&Value>) -> Vec<ValidationError> {
        let compiled = match old {
            Some(_) => self.update.get_or_init(|| self.with_types(true)),
            None => self.create.get_or_init(|| self.with_types(false)),
        };
        let (value, old) = (self.mentioned.of(value), old.map(|old| self.mentioned.of(old)));
        let failed = VALIDATOR
            .with(|v| v.validate_compiled(compiled, &value, old.as_ref()))
            .err();
        failed.map(ValidationErrors::into_vec).unwrap_or_default()
    }

    fn is_transition(&self, rule: &str) -> bool {
        let mut compiled = self.alone.validations.iter().filter_map(|r| r.as_ref().ok());
        compiled.any(|r| r.is_transition_rule && r.rule.rule == rule)
    }
}

/// Rules below are run at their own place, where their old value is known.
fn strip(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.remove("x-kubernetes-validations");
            map.remove("description");
            for (key, value) in map {
                match key.as_str() {
                    "properties" => {
                        value
                            .as_object_mut()
                            .into_iter()
                            .flat_map(Map::values_mut)
                            .for_each(strip);
                    }
                    "items" | "additionalProperties" | "allOf" | "anyOf" | "oneOf" | "not" => strip(value),
                    _ => {}
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

/// With `optionalOldSelf`, `oldSelf` is an optional value: empty on creation. The evaluator knows only plain ones.
fn prepared(rule: &Value, old: bool) -> Value {
    let mut rule = rule.clone();
    let Some(map) = rule.as_object_mut() else { return rule };
    let source = map
        .get("rule")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .trim()
        .to_owned();
    if !map.contains_key("message") {
        map.insert("message".into(), format!("failed rule: {source}").into());
    }
    if let Some(message) = map.get("message").and_then(Value::as_str) {
        let message = message.trim().to_owned();
        map.insert("message".into(), message.into());
    }
    if flag(map, "optionalOldSelf") {
        map.remove("optionalOldSelf");
        let plain = if old { "optional.of(oldSelf)" } else { "optional.none()" };
        if let Some(regex) = &*OLD_SELF {
            map.insert("rule".into(), regex.replace_all(&source, plain).into_owned().into());
        }
    }
    rule
}

/// A walk that runs every rule of a schema. `ancestor`: an ancestor of `value` equals its old value.
pub(crate) fn check(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    ancestor: bool,
    errors: &mut Vec<FieldError>,
) {
    if value.is_null() || !schema.any_rules {
        return;
    }
    let unchanged = ancestor || old == Some(value);
    if let Some(rules) = &schema.rules {
        for error in rules.run(value, old) {
            // What has not changed is excused, except from rules about change.
            if error.kind != ErrorKind::ValidationFailure || !unchanged || rules.is_transition(&error.rule) {
                errors.push(cause(rules, &error, path));
            }
        }
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let old = old.filter(|_| !schema.atomic).and_then(|o| o.get(name));
                if let Some(schema) = schema.properties.get(name) {
                    check(
                        schema,
                        value,
                        old,
                        &path.field(name),
                        unchanged && old.is_none(),
                        errors,
                    );
                } else if let Some(Additional::Of(schema)) = &schema.additional {
                    check(schema, value, old, &path.key(name), unchanged && old.is_none(), errors);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (index, element) in list.iter().enumerate() {
                    let old = old_element(schema, old, element);
                    check(
                        items,
                        element,
                        old,
                        &path.index(index),
                        unchanged && old.is_none(),
                        errors,
                    );
                }
            }
        }
        _ => {}
    }
}

fn cause(rules: &Rules, error: &ValidationError, path: &Path<'_>) -> FieldError {
    let path = path.to_string();
    // The path is relative to the rule's node; it is there only with the rule's `fieldPath`.
    let below = error.field_path.trim_start_matches('.');
    let field = match (path.as_str(), below) {
        (_, "") => path,
        ("", below) => below.to_owned(),
        (path, below) => format!("{path}.{below}"),
    };
    let shown = Value::String(rules.type_name.clone());
    match error.kind {
        ErrorKind::ValidationFailure => match error.reason.as_deref() {
            Some("FieldValueForbidden") => FieldError::forbidden(field, &error.message),
            Some("FieldValueRequired") => FieldError::required(field, &error.message),
            Some("FieldValueDuplicate") => FieldError::duplicate(field, shown),
            _ => FieldError::invalid(field, shown, &error.message),
        },
        ErrorKind::CompilationFailure | ErrorKind::InvalidRule => {
            FieldError::invalid(field, shown, format!("rule compile error: {}", error.message))
        }
        _ => {
            let why = error
                .message
                .strip_prefix("rule evaluation error: ")
                .unwrap_or(&error.message);
            FieldError::invalid(field, shown, format!("{why} evaluating rule: {}", error.rule))
        }
    }
}
