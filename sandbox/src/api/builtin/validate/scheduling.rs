//! Where a pod may run: node selector, affinity, tolerations.

use serde_json::Value;

use super::{Errors, indexed, is_set, list, text};
use crate::{api::field_error::FieldError, schema::names};

/// The labels that a node must have.
pub(super) fn node_selector(errors: &mut Errors, spec: &Value, path: &str) {
    for (key, value) in spec
        .get("nodeSelector")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        for why in names::qualified(key) {
            errors.invalid(format!("{path}.nodeSelector"), key.as_str(), why);
        }
        let value = value.as_str().unwrap_or_default();
        for why in names::label_value(value) {
            errors.invalid(format!("{path}.nodeSelector"), value, why);
        }
    }
}

/// Affinity, as far as it is required.
pub(super) fn affinity(errors: &mut Errors, spec: &Value, path: &str) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let affinity = spec.get("affinity").unwrap_or(&Value::Null);
    if let Some(required) = affinity.pointer(&format!("/nodeAffinity/{REQUIRED}"))
        && list(required, "nodeSelectorTerms").next().is_none()
    {
        let path = format!("{path}.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
        errors.push(FieldError::required(path, "must have at least one node selector term"));
    }
    for field in ["podAffinity", "podAntiAffinity"] {
        let terms = affinity.get(field).unwrap_or(&Value::Null);
        for (path, term) in indexed(terms, REQUIRED, &format!("{path}.affinity.{field}")) {
            let (key, path) = (text(term, "topologyKey"), format!("{path}.topologyKey"));
            if key.is_empty() {
                errors.push(FieldError::required(path.as_str(), "can not be empty"));
            }
            for why in names::qualified(key) {
                errors.invalid(path.as_str(), key, why);
            }
        }
    }
}

/// The taints that a pod puts up with.
pub(super) fn tolerations(errors: &mut Errors, spec: &Value, path: &str) {
    for (path, toleration) in indexed(spec, "tolerations", path) {
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        for why in Some(key)
            .filter(|key| !key.is_empty())
            .map(names::qualified)
            .unwrap_or_default()
        {
            errors.invalid(format!("{path}.key"), key, why);
        }
        if key.is_empty() && operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(format!("{path}.operator"), operator, why);
        }
        let effect = text(toleration, "effect");
        if is_set(toleration, "tolerationSeconds") && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(format!("{path}.effect"), effect, why);
        }
        let operators = ["Equal", "Exists"];
        errors.one_of(format!("{path}.operator"), toleration.get("operator"), &operators);
        if operator == "Exists" && !text(toleration, "value").is_empty() {
            let why = "value must be empty when `operator` is 'Exists'";
            errors.invalid(format!("{path}.operator"), text(toleration, "value"), why);
        }
    }
}
