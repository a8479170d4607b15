//! The smaller kinds.

use serde_json::{Value, json};

use super::{Errors, is_set, list, text};
use crate::api::field_error::FieldError;

pub(super) fn budget(errors: &mut Errors, spec: &Value) {
    let value = |field: &str| spec.get(field).cloned().unwrap_or_default();
    if is_set(spec, "minAvailable") && is_set(spec, "maxUnavailable") {
        // Shown with the names of the server's own fields.
        let shown = json!({"MinAvailable": value("minAvailable"), "Selector": value("selector"),
            "MaxUnavailable": value("maxUnavailable"),
            "UnhealthyPodEvictionPolicy": value("unhealthyPodEvictionPolicy")});
        errors.invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for field in ["minAvailable", "maxUnavailable"] {
        errors.not_negative(spec, field, "spec");
        let path = format!("spec.{field}");
        if let Value::String(percent) = value(field) {
            let digits = percent.strip_suffix('%').filter(|digits| !digits.is_empty());
            match digits.and_then(|digits| digits.parse::<u64>().ok()) {
                None => {
                    let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  \
                               or '93%', regex used for validation is '[0-9]+%')";
                    errors.invalid(path, percent, why);
                }
                Some(101..) => errors.invalid(path, percent, "must not be greater than 100%"),
                Some(_) => {}
            }
        }
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
            if field == "data" && object.get("binaryData").is_some_and(|data| data.get(key).is_some()) {
                errors.invalid(
                    format!("data[{key}]"),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                );
            }
        }
    }
    if kind == "Secret" {
        secret(errors, object);
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

/// What secrets of certain types must hold.
fn secret(errors: &mut Errors, object: &Value) {
    let has = |key: &str| object.get("data").is_some_and(|data| data.get(key).is_some());
    let mut require = |keys: &[&str]| {
        for key in keys.iter().filter(|key| !has(key)) {
            errors.required(format!("data[{key}]"));
        }
    };
    match text(object, "type") {
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
        "kubernetes.io/dockerconfigjson" => require(&[".dockerconfigjson"]),
        "kubernetes.io/dockercfg" => require(&[".dockercfg"]),
        "kubernetes.io/ssh-auth" => require(&["ssh-privatekey"]),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => require(&["username", "password"]),
        "kubernetes.io/service-account-token" => {
            let account = "kubernetes.io/service-account.name";
            let named = object
                .pointer("/metadata/annotations")
                .map_or("", |annotations| text(annotations, account));
            if named.is_empty() {
                errors.required(format!("metadata.annotations[{account}]"));
            }
        }
        _ => {}
    }
}

pub(super) fn node(errors: &mut Errors, spec: &Value, old: Option<&Value>) {
    // Changed nodes are looked at twice.
    for _ in 0..=usize::from(old.is_some()) {
        for (index, taint) in list(spec, "taints").enumerate() {
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            let path = format!("metadata.taints[{index}].effect");
            errors.one_of(path, taint.get("effect"), &effects);
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
    if text(object, "addressType").is_empty() {
        errors.required("addressType");
    } else {
        let types = ["FQDN", "IPv4", "IPv6"];
        errors.one_of("addressType".into(), object.get("addressType"), &types);
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

pub(super) fn binding(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    let role = object.get("roleRef").unwrap_or(&Value::Null);
    if text(role, "name").is_empty() {
        errors.required("roleRef.name");
    }
    if let Some(old) = old
        && object.get("roleRef") != old.get("roleRef")
    {
        // Shown with the names of the server's own fields.
        let shown = json!({"APIGroup": text(role, "apiGroup"), "Kind": text(role, "kind"), "Name": text(role, "name")});
        errors.invalid("roleRef", shown, "cannot change roleRef");
    }
}
