//! The smaller kinds.

use serde_json::Value;

use super::{Errors, is_set, list, text};
use crate::api::{field_error::FieldError, object::meta};

pub(super) fn autoscaler(errors: &mut Errors, spec: &Value) {
    let number = |field: &str| spec.get(field).and_then(Value::as_i64);
    let (least, most) = (number("minReplicas").unwrap_or(1), number("maxReplicas").unwrap_or(0));
    if least < 1 {
        errors.invalid("spec.minReplicas", least, "must be greater than or equal to 1");
    }
    if most < 1 {
        errors.invalid("spec.maxReplicas", most, "must be greater than 0");
    }
    if most < least {
        errors.invalid(
            "spec.maxReplicas",
            most,
            "must be greater than or equal to `minReplicas`",
        );
    }
    let target = spec.get("scaleTargetRef").unwrap_or(&Value::Null);
    for field in ["kind", "name"] {
        if text(target, field).is_empty() {
            errors.required(format!("spec.scaleTargetRef.{field}"));
        }
    }
    for (index, metric) in list(spec, "metrics").enumerate() {
        if text(metric, "type").is_empty() {
            let why = "must specify a metric source type";
            errors.push(FieldError::required(format!("spec.metrics[{index}].type"), why));
        }
    }
}

pub(super) fn budget(errors: &mut Errors, spec: &Value) {
    if is_set(spec, "minAvailable") && is_set(spec, "maxUnavailable") {
        let why = "minAvailable and maxUnavailable cannot be both set";
        errors.invalid("spec", spec.clone(), why);
    }
}

/// Config maps and secrets.
pub(super) fn data(errors: &mut Errors, kind: &str, object: &Value, old: Option<&Value>) {
    for field in ["data", "binaryData"] {
        for key in object
            .get(field)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
        {
            if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
                let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
                           'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
                           '[-._a-zA-Z0-9]+')";
                errors.invalid(format!("{field}[{key}]"), key.as_str(), why);
            }
        }
    }
    let Some(old) = old else { return };
    if kind == "Secret" {
        errors.immutable("type", object.get("type"), old.get("type"));
    }
    if old.get("immutable") == Some(&Value::Bool(true)) {
        if object.get("immutable") != Some(&Value::Bool(true)) {
            errors.push(FieldError::forbidden(
                "immutable",
                "field is immutable when `immutable` is set",
            ));
        }
        for field in ["data", "binaryData"] {
            if object.get(field) != old.get(field) {
                errors.push(FieldError::forbidden(
                    field,
                    "field is immutable when `immutable` is set",
                ));
            }
        }
    }
}

pub(super) fn lease(errors: &mut Errors, spec: &Value) {
    if let Some(seconds) = spec
        .get("leaseDurationSeconds")
        .and_then(Value::as_i64)
        .filter(|seconds| *seconds <= 0)
    {
        errors.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0");
    }
    if let Some(count) = spec
        .get("leaseTransitions")
        .and_then(Value::as_i64)
        .filter(|count| *count < 0)
    {
        errors.invalid("spec.leaseTransitions", count, "must be greater than or equal to 0");
    }
}

pub(super) fn slice(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    if is_set(object, "addressType") {
        let types = ["FQDN", "IPv4", "IPv6"];
        errors.one_of("addressType".into(), object.get("addressType"), &types);
    } else {
        errors.required("addressType");
    }
    for (index, endpoint) in list(object, "endpoints").enumerate() {
        if list(endpoint, "addresses").next().is_none() {
            let why = "must contain at least 1 address";
            errors.push(FieldError::required(format!("endpoints[{index}].addresses"), why));
        }
    }
    if let Some(old) = old {
        errors.immutable("addressType", object.get("addressType"), old.get("addressType"));
    }
}

pub(super) fn event(errors: &mut Errors, object: &Value) {
    let involved = object.get("involvedObject").unwrap_or(&Value::Null);
    let (namespace, own) = (text(involved, "namespace"), meta(object, "namespace"));
    let fits = if namespace.is_empty() {
        matches!(own, "" | "default" | "kube-system")
    } else {
        namespace == own
    };
    if !fits {
        errors.invalid("involvedObject.namespace", namespace, "does not match event.namespace");
    }
}

pub(super) fn binding(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    let role = object.get("roleRef").unwrap_or(&Value::Null);
    if text(role, "name").is_empty() {
        errors.required("roleRef.name");
    }
    if let Some(old) = old
        && object.get("roleRef") != old.get("roleRef")
    {
        errors.invalid("roleRef", role.clone(), "cannot change roleRef");
    }
}
