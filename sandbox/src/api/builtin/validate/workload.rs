//! What runs pods: Deployments, ReplicaSets and their like.

use serde_json::{Value, json};

use super::{Errors, indexed, is_set, list, pod, text};
use crate::{
    api::{field_error::FieldError, selector::LabelSelector},
    schema::names,
};

pub(super) fn deployment(errors: &mut Errors, spec: &Value, old: Option<&Value>) {
    errors.not_negative(spec, "replicas", "spec");
    selector_and_template(errors, "deployment", spec);
    strategy(errors, spec.get("strategy").unwrap_or(&Value::Null));
    errors.not_negative(spec, "minReadySeconds", "spec");
    errors.not_negative(spec, "revisionHistoryLimit", "spec");
    errors.not_negative(spec, "progressDeadlineSeconds", "spec");
    let number = |field: &str| spec.get(field).and_then(Value::as_i64);
    if let Some(deadline) = number("progressDeadlineSeconds")
        && deadline <= number("minReadySeconds").unwrap_or(0)
    {
        errors.invalid(
            "spec.progressDeadlineSeconds",
            deadline,
            "must be greater than minReadySeconds",
        );
    }
    if let Some(old) = old {
        errors.immutable("spec.selector", spec.get("selector"), old.get("selector"));
    }
}

pub(super) fn replicated(errors: &mut Errors, kind: &str, spec: &Value, old: Option<&Value>) {
    errors.not_negative(spec, "replicas", "spec");
    errors.not_negative(spec, "minReadySeconds", "spec");
    let called = match kind {
        "ReplicaSet" => "deployment",
        "DaemonSet" => "daemonset",
        _ => "statefulset",
    };
    selector_and_template(errors, called, spec);
    if let Some(old) = old {
        errors.immutable("spec.selector", spec.get("selector"), old.get("selector"));
    }
}

pub(super) fn job(errors: &mut Errors, spec: &Value) {
    let template = spec
        .get("template")
        .and_then(|template| template.get("spec"))
        .unwrap_or(&Value::Null);
    pod::spec(errors, template, "spec.template.spec");
    let policy = text(template, "restartPolicy");
    if policy == "Always" {
        let error = FieldError::required(
            "spec.template.spec.restartPolicy",
            "valid values: \"OnFailure\", \"Never\"",
        );
        errors.push(error);
    }
}

/// Whether the expressions of a selector make sense.
fn expressions(errors: &mut Errors, selector: &Value) -> bool {
    let before = errors.0.len();
    for (path, expression) in indexed(selector, "matchExpressions", "spec.selector") {
        let values = list(expression, "values").next().is_some();
        match text(expression, "operator") {
            "In" | "NotIn" if !values => errors.push(FieldError::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if values => errors.push(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(format!("{path}.operator"), other, "not a valid selector operator"),
        }
        let key = text(expression, "key");
        for why in names::qualified(key) {
            errors.invalid(format!("{path}.key"), key, why);
        }
    }
    errors.0.len() == before
}

fn selector_and_template(errors: &mut Errors, called: &str, spec: &Value) {
    let selector = spec.get("selector").filter(|selector| !selector.is_null());
    let size = |field: &str| {
        let part = selector.and_then(|selector| selector.get(field));
        part.map_or(0, |part| {
            part.as_object().map_or(0, serde_json::Map::len) + part.as_array().map_or(0, Vec::len)
        })
    };
    let empty = size("matchLabels") + size("matchExpressions") == 0;
    match selector {
        None => errors.required("spec.selector"),
        Some(selector) if empty => {
            let why = format!("empty selector is invalid for {called}");
            errors.invalid("spec.selector", selector.clone(), why);
        }
        Some(_) => {}
    }
    let readable = selector.is_none_or(|selector| expressions(errors, selector));
    if let Some(selector) = selector.filter(|_| !readable) {
        errors.invalid("spec.selector", selector.clone(), "invalid label selector");
    }
    let template = spec.get("template").unwrap_or(&Value::Null);
    // What selects nothing fits no template, what selects all fits any.
    let fits = selector.is_some_and(|selector| LabelSelector::from_object(selector).matches(template));
    if readable && !fits {
        let labels = template
            .get("metadata")
            .and_then(|metadata| metadata.get("labels"))
            .cloned();
        let why = "`selector` does not match template `labels`";
        errors.invalid("spec.template.metadata.labels", labels.unwrap_or(Value::Null), why);
    }
    let pod = template.get("spec").unwrap_or(&Value::Null);
    pod::spec(errors, pod, "spec.template.spec");
    if text(pod, "restartPolicy") != "Always" {
        let value = pod.get("restartPolicy").cloned().unwrap_or_else(|| "".into());
        errors.push(FieldError::not_supported(
            "spec.template.spec.restartPolicy",
            value,
            &["Always"],
        ));
    }
    if is_set(pod, "activeDeadlineSeconds") {
        let why = "activeDeadlineSeconds in ReplicaSet is not Supported";
        errors.push(FieldError::forbidden("spec.template.spec.activeDeadlineSeconds", why));
    }
}

/// What is said of a share that is none.
const NO_PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                          '93%', regex used for validation is '[0-9]+%')";

/// What a controller writes of replicas: all are numbers, and none is more than those of which it is a part.
pub(super) fn status(errors: &mut Errors, kind: &str, status: &Value) {
    let parts: &[&str] = match kind {
        "Deployment" => &["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"],
        _ => &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    };
    for field in parts.iter().chain(&["unavailableReplicas"]) {
        errors.not_negative(status, field, "status");
    }
    errors.not_negative(status, "observedGeneration", "status");
    let number = |field: &str| status.get(field).and_then(Value::as_i64).unwrap_or(0);
    for field in parts.iter().skip(1).filter(|field| number(field) > number("replicas")) {
        let why = "cannot be greater than status.replicas";
        errors.invalid(format!("status.{field}"), number(field), why);
    }
    if number("availableReplicas") > number("readyReplicas") {
        let available = number("availableReplicas");
        errors.invalid(
            "status.availableReplicas",
            available,
            "cannot be greater than readyReplicas",
        );
    }
}

fn strategy(errors: &mut Errors, strategy: &Value) {
    let path = "spec.strategy.rollingUpdate";
    match text(strategy, "type") {
        "Recreate" if is_set(strategy, "rollingUpdate") => {
            errors.push(FieldError::forbidden(
                path,
                "may not be specified when strategy `type` is 'Recreate'",
            ));
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let rolling = strategy.get("rollingUpdate").unwrap_or(&Value::Null);
            for field in ["maxUnavailable", "maxSurge"] {
                if let Some(Value::String(percent)) = rolling.get(field) {
                    let digits = percent.strip_suffix('%').unwrap_or_default();
                    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                        errors.invalid(format!("{path}.{field}"), percent.as_str(), NO_PERCENT);
                    }
                }
                errors.not_negative(rolling, field, path);
            }
            let zero = |field: &str| matches!(rolling.get(field), Some(v) if *v == 0 || *v == "0%");
            if zero("maxUnavailable") && zero("maxSurge") {
                let value = rolling.get("maxUnavailable").cloned().unwrap_or(json!(0));
                errors.invalid(
                    format!("{path}.maxUnavailable"),
                    value,
                    "may not be 0 when `maxSurge` is 0",
                );
            }
        }
        _ => {
            let supported = ["Recreate", "RollingUpdate"];
            // The one value that is shown with the names of the server's own fields.
            let rolling = strategy.get("rollingUpdate").cloned().unwrap_or_default();
            let shown = json!({"Type": text(strategy, "type"), "RollingUpdate": rolling});
            errors.push(FieldError::not_supported("spec.strategy", shown, &supported));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_select_the_template_and_stay() {
        let spec = |selected: &str, labelled: &str| {
            json!({"selector": {"matchLabels": {"a": selected}}, "strategy": {"type": "Recreate"},
                "template": {"metadata": {"labels": {"a": labelled}},
                    "spec": {"restartPolicy": "Always", "containers": [{"name": "c", "image": "c"}]}}})
        };
        let told = |new: &Value, old: Option<&Value>| -> Vec<String> {
            let mut errors = Errors::default();
            deployment(&mut errors, new, old);
            errors.0.iter().map(ToString::to_string).collect()
        };
        assert_eq!(told(&spec("1", "1"), None), Vec::<String>::new());
        assert_eq!(
            told(&spec("1", "2"), None),
            [
                "spec.template.metadata.labels: Invalid value: {\"a\":\"2\"}: `selector` does not match template `labels`"
            ]
        );
        assert_eq!(
            told(&spec("2", "2"), Some(&spec("1", "1"))),
            ["spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"2\"}}: field is immutable"]
        );
    }
}
