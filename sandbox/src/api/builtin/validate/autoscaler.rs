//! Autoscalers: what they scale, by which figures, and how fast.

use std::cmp::Ordering;

use serde_json::Value;

use super::{Errors, indexed, is_set, list, text};
use crate::{
    api::{builtin::quantity, field_error::FieldError},
    schema::NameRule,
};

/// What an autoscaler may go by, and where that is described, in the order in which it is looked for.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

/// The longest times, in seconds.
const LONGEST_WINDOW: i64 = 3600;
const LONGEST_PERIOD: i64 = 1800;

pub(super) fn autoscaler(errors: &mut Errors, spec: &Value, old: Option<&Value>) {
    let number = |field: &str| spec.get(field).and_then(Value::as_i64);
    let (least, most) = (number("minReplicas").unwrap_or(1), number("maxReplicas").unwrap_or(0));
    if least < 1 {
        errors.invalid("spec.minReplicas", least, "must be greater than or equal to 1");
    }
    if most < 1 {
        errors.invalid("spec.maxReplicas", most, "must be greater than 0");
    }
    if most < least {
        let why = "must be greater than or equal to `minReplicas`";
        errors.invalid("spec.maxReplicas", most, why);
    }
    target(errors, spec, old);
    for (path, metric) in indexed(spec, "metrics", "spec") {
        self::metric(errors, metric, &path);
    }
    let has = |kind: &str| list(spec, "metrics").any(|metric| text(metric, "type") == kind);
    if least == 0 && !has("Object") && !has("External") {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden("spec.metrics", why));
    }
    let behavior = spec.get("behavior").unwrap_or(&Value::Null);
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = behavior.get(direction).filter(|rules| !rules.is_null()) {
            scaling(errors, rules, &format!("spec.behavior.{direction}"));
        }
    }
}

pub(super) fn status(errors: &mut Errors, status: &Value) {
    for count in ["currentReplicas", "desiredReplicas"] {
        errors.not_negative(status, count, "status");
    }
}

/// What is scaled. A version that was taken once is not looked at again.
fn target(errors: &mut Errors, spec: &Value, old: Option<&Value>) {
    let target = spec.get("scaleTargetRef").unwrap_or(&Value::Null);
    reference(errors, target, "spec.scaleTargetRef");
    let same = old.and_then(|old| old.get("scaleTargetRef")).is_some_and(|old| {
        let same = |field| text(old, field) == text(target, field);
        same("apiVersion") && same("kind")
    });
    if same {
        return;
    }
    let path = "spec.scaleTargetRef.apiVersion";
    let version = text(target, "apiVersion");
    match version.split('/').collect::<Vec<_>>().as_slice() {
        [_] | ["", _] if text(target, "kind") != "ReplicationController" => {
            errors.invalid(path, version, "apiVersion must specify API group");
        }
        [_] | [_, _] => {}
        _ => errors.invalid(path, version, format!("unexpected GroupVersion string: {version}")),
    }
}

fn reference(errors: &mut Errors, object: &Value, path: &str) {
    for field in ["kind", "name"] {
        segment(errors, text(object, field), format!("{path}.{field}"), "");
    }
}

/// A text that stands in a path; `missing` is what is said where there is none.
fn segment(errors: &mut Errors, text: &str, path: String, missing: &str) {
    if text.is_empty() {
        errors.missing(path, missing);
        return;
    }
    for why in NameRule::PathSegment.check(text, false) {
        errors.invalid(path.as_str(), text, why);
    }
}

fn metric(errors: &mut Errors, metric: &Value, path: &str) {
    let kind = text(metric, "type");
    let unknown = || {
        let mut known = SOURCES.map(|(known, _)| known);
        known.sort_unstable();
        FieldError::not_supported(format!("{path}.type"), kind, &known)
    };
    let expected = SOURCES
        .iter()
        .find(|(known, _)| *known == kind)
        .map(|(_, field)| *field);
    if kind.is_empty() {
        let why = "must specify a metric source type";
        errors.missing(format!("{path}.type"), why);
    }
    if expected.is_none() {
        errors.push(unknown());
    }
    let present: Vec<_> = SOURCES
        .iter()
        .map(|(_, field)| *field)
        .filter(|field| is_set(metric, field))
        .collect();
    if let Some((field, source)) = present.first().and_then(|field| Some((field, metric.get(field)?))) {
        self::source(errors, field, source, &format!("{path}.{field}"));
    }
    match expected {
        Some(field) if is_set(metric, field) => {}
        Some(field) => {
            let why = "must populate information for the given metric source";
            errors.missing(format!("{path}.{field}"), why);
        }
        // It is found twice, and told twice.
        None => errors.push(unknown()),
    }
    if present.len() > 1 {
        for field in present.iter().filter(|field| Some(**field) != expected) {
            let why = "must populate the given metric source only";
            errors.push(FieldError::forbidden(format!("{path}.{field}"), why));
        }
    }
}

/// Where a figure comes from, and what it should be.
fn source(errors: &mut Errors, kind: &str, source: &Value, path: &str) {
    let goal = source.get("target").unwrap_or(&Value::Null);
    let of_resource = matches!(kind, "resource" | "containerResource");
    if of_resource {
        if text(source, "name").is_empty() {
            errors.missing(format!("{path}.name"), "must specify a resource name");
        }
        if kind == "containerResource" && text(source, "container").is_empty() {
            errors.missing(format!("{path}.container"), "must specify a container");
        }
    } else {
        if kind == "object" {
            let described = source.get("describedObject").unwrap_or(&Value::Null);
            reference(errors, described, &format!("{path}.describedObject"));
        }
        let name = source.get("metric").map_or("", |metric| text(metric, "name"));
        segment(
            errors,
            name,
            format!("{path}.metric.name"),
            "must specify a metric name",
        );
    }
    self::goal(errors, goal, &format!("{path}.target"));
    // One of these has to be there, the first is told as missing, and with some both are too much.
    let (one, other, missing, both) = match kind {
        "object" => (
            "averageValue",
            "value",
            "must set either a target value or averageValue",
            None,
        ),
        "external" => (
            "averageValue",
            "value",
            "must set either a target value for metric or a per-pod target",
            Some("may not set both a target value for metric and a per-pod target"),
        ),
        "pods" => (
            "averageValue",
            "averageValue",
            "must specify a positive target averageValue",
            None,
        ),
        _ => (
            "averageUtilization",
            "averageValue",
            "must set either a target raw value or a target utilization",
            Some("may not set both a target raw value and a target utilization"),
        ),
    };
    match (is_set(goal, one), is_set(goal, other), both) {
        (false, false, _) => errors.missing(format!("{path}.target.{one}"), missing),
        (true, true, Some(why)) => errors.push(FieldError::forbidden(format!("{path}.target.{other}"), why)),
        _ => {}
    }
}

fn goal(errors: &mut Errors, goal: &Value, path: &str) {
    let kind = text(goal, "type");
    if kind.is_empty() {
        let why = "must specify a metric target type";
        errors.missing(format!("{path}.type"), why);
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let why = "must be either Utilization, Value, or AverageValue";
        errors.invalid(format!("{path}.type"), kind, why);
    }
    for field in ["value", "averageValue"] {
        if is_set(goal, field) && quantity::compare(text(goal, field), "0") != Ordering::Greater {
            errors.invalid(format!("{path}.{field}"), text(goal, field), "must be positive");
        }
    }
    if let Some(percent) = goal
        .get("averageUtilization")
        .and_then(Value::as_i64)
        .filter(|percent| *percent < 1)
    {
        errors.invalid(format!("{path}.averageUtilization"), percent, "must be greater than 0");
    }
}

/// How fast, in one direction.
fn scaling(errors: &mut Errors, rules: &Value, path: &str) {
    if let Some(window) = rules.get("stabilizationWindowSeconds").and_then(Value::as_i64) {
        let path = format!("{path}.stabilizationWindowSeconds");
        if window < 0 {
            errors.invalid(path, window, "must be greater than or equal to zero");
        } else if window > LONGEST_WINDOW {
            errors.invalid(path, window, format!("must be less than or equal to {LONGEST_WINDOW}"));
        }
    }
    let selections = ["Disabled", "Max", "Min"];
    errors.one_of(format!("{path}.selectPolicy"), rules.get("selectPolicy"), &selections);
    let policies = indexed(rules, "policies", path);
    if policies.is_empty() {
        let why = "must specify at least one Policy";
        errors.missing(format!("{path}.policies"), why);
    }
    for (path, policy) in policies {
        let number = |field: &str| policy.get(field).and_then(Value::as_i64).unwrap_or_default();
        errors.one_of(
            format!("{path}.type"),
            Some(&text(policy, "type").into()),
            &["Percent", "Pods"],
        );
        for field in ["value", "periodSeconds"] {
            if number(field) <= 0 {
                errors.invalid(format!("{path}.{field}"), number(field), "must be greater than zero");
            }
        }
        let period = number("periodSeconds");
        if period > LONGEST_PERIOD {
            let why = format!("must be less than or equal to {LONGEST_PERIOD}");
            errors.invalid(format!("{path}.periodSeconds"), period, why);
        }
    }
}
