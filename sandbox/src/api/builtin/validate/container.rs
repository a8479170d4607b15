//! The containers of pods and pod templates.

use serde_json::Value;

use super::{Errors, indexed, text};
use crate::api::{
    builtin::quantity,
    field_error::{FieldError, FieldErrorKind},
};

/// Resources that need no prefix.
const RESOURCES: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];

/// A container, which may mount these volumes.
pub(super) fn container(errors: &mut Errors, container: &Value, path: &str, volumes: &[&str]) {
    if text(container, "image").is_empty() {
        errors.required(format!("{path}.image"));
    } else if text(container, "image").trim() != text(container, "image") {
        let image = text(container, "image");
        errors.invalid(
            format!("{path}.image"),
            image,
            "must not have leading or trailing whitespace",
        );
    }
    errors.one_of(
        format!("{path}.terminationMessagePolicy"),
        container.get("terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    ports(errors, container, path);
    for (path, variable) in indexed(container, "env", path) {
        environment(errors, variable, &path);
    }
    let mut mounted = Vec::new();
    for (path, mount) in indexed(container, "volumeMounts", path) {
        let (name, at) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.required(format!("{path}.name"));
        }
        if !volumes.contains(&name) {
            errors.push(FieldError::new(
                FieldErrorKind::NotFound,
                format!("{path}.name"),
                name.into(),
                "",
            ));
        }
        if at.is_empty() {
            errors.required(format!("{path}.mountPath"));
        } else if mounted.contains(&at) {
            errors.invalid(format!("{path}.mountPath"), at, "must be unique");
        }
        mounted.push(at);
    }
    let pull = ["Always", "IfNotPresent", "Never"];
    errors.one_of(
        format!("{path}.imagePullPolicy"),
        container.get("imagePullPolicy"),
        &pull,
    );
    resources(errors, container, &format!("{path}.resources"));
}

fn ports(errors: &mut Errors, container: &Value, path: &str) {
    let mut names = Vec::new();
    for (path, port) in indexed(container, "ports", path) {
        let name = text(port, "name");
        if !name.is_empty() {
            for why in super::service::port_name(name) {
                errors.invalid(format!("{path}.name"), name, why);
            }
            if names.contains(&name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), name));
            }
            names.push(name);
        }
        match port.get("containerPort").and_then(Value::as_i64).unwrap_or(0) {
            0 => errors.required(format!("{path}.containerPort")),
            number => errors.port(format!("{path}.containerPort"), Some(number)),
        }
        let host = port.get("hostPort").and_then(Value::as_i64).filter(|port| *port != 0);
        errors.port(format!("{path}.hostPort"), host);
        errors.one_of(
            format!("{path}.protocol"),
            port.get("protocol"),
            &["SCTP", "TCP", "UDP"],
        );
    }
}

fn environment(errors: &mut Errors, variable: &Value, path: &str) {
    let name = text(variable, "name");
    if name.is_empty() {
        errors.required(format!("{path}.name"));
    } else if name.chars().any(|c| c == '=' || !(' '..='~').contains(&c)) {
        let why = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        errors.invalid(format!("{path}.name"), name, why);
    }
    let Some(from) = variable.get("valueFrom") else { return };
    let path = format!("{path}.valueFrom");
    let sources = from.as_object().map_or(0, serde_json::Map::len);
    if sources == 0 {
        let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`";
        errors.invalid(path.as_str(), "", why);
    } else if !text(variable, "value").is_empty() {
        errors.invalid(path.as_str(), "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(
            path.as_str(),
            "",
            "may not have more than one field specified at a time",
        );
    }
    if let Some(field) = from.get("fieldRef").map(|reference| text(reference, "fieldPath")) {
        let path = format!("{path}.fieldRef.fieldPath");
        if field.is_empty() {
            errors.required(path);
        } else if !is_field(field) {
            let why = format!("error converting fieldPath: field label not supported: {field}");
            errors.invalid(path, field, why);
        }
    }
    for source in ["secretKeyRef", "configMapKeyRef"] {
        if let Some(reference) = from.get(source) {
            if text(reference, "name").is_empty() {
                errors.required(format!("{path}.{source}.name"));
            }
            if text(reference, "key").is_empty() {
                errors.required(format!("{path}.{source}.key"));
            }
        }
    }
}

/// What a variable can be told of its pod.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

fn is_field(path: &str) -> bool {
    FIELDS.contains(&path) || path.starts_with("metadata.labels[") || path.starts_with("metadata.annotations[")
}

fn resources(errors: &mut Errors, container: &Value, path: &str) {
    let resources = container.get("resources").unwrap_or(&Value::Null);
    let amounts = |field: &str| resources.get(field).and_then(Value::as_object).into_iter().flatten();
    for (name, amount) in amounts("limits") {
        amount_of(errors, &format!("{path}.limits[{name}]"), name, amount);
    }
    let mut unlimited = false;
    for (name, request) in amounts("requests") {
        amount_of(errors, &format!("{path}.requests[{name}]"), name, request);
        let limit = resources.get("limits").and_then(|limits| limits.get(name));
        unlimited |= limit.is_none() && name.contains('/');
        let (Some(limit), Some(request)) = (limit.and_then(Value::as_str), request.as_str()) else {
            continue;
        };
        if quantity::compare(request, limit).is_gt() {
            let why = format!("must be less than or equal to {name} limit of {limit}");
            errors.invalid(format!("{path}.requests"), request, why);
        }
    }
    if unlimited {
        let why = "Limit must be set for non overcommitable resources";
        errors.push(FieldError::required(format!("{path}.limits"), why));
    }
}

/// One amount of one resource.
fn amount_of(errors: &mut Errors, at: &str, name: &str, amount: &Value) {
    if !name.contains('/') && !RESOURCES.contains(&name) && !name.starts_with("hugepages-") {
        let why = "must be a standard resource type or fully qualified";
        errors.invalid(at, name, why);
        errors.invalid(at, name, "must be a standard resource for containers");
    }
    let text = amount.as_str().unwrap_or_default();
    if text.starts_with('-') {
        errors.invalid(at, amount.clone(), "must be greater than or equal to 0");
    }
    // Of what Kubernetes does not know it cannot give out a part.
    if name.contains('/') && text.ends_with('m') {
        errors.invalid(at, amount.clone(), "must be an integer");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mounts_need_their_volume_and_requests_their_limit() {
        let container = json!({"name": "a", "image": "a", "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1500m", "gpu": "1"}}});
        let mut errors = Errors::default();
        super::container(&mut errors, &container, "container", &[]);
        let told: Vec<_> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "container.volumeMounts[0].name: Not found: \"v\"",
                "container.resources.requests: Invalid value: \"1500m\": must be less than or equal to cpu limit of 1",
                "container.resources.requests[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
                "container.resources.requests[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
            ]
        );
    }
}
