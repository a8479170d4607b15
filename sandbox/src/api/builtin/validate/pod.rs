//! Pods and pod templates.

use serde_json::Value;

use super::{Errors, indexed, is_set, list, probe, scheduling, text};
use crate::{
    api::{
        builtin::quantity,
        field_error::{FieldError, FieldErrorKind},
    },
    schema::names,
};

/// What may not be changed, as users are told.
const UPDATE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Resources that need no prefix.
const RESOURCES: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];

/// A pod's spec, or a template's.
pub(super) fn spec(errors: &mut Errors, spec: &Value, path: &str) {
    let volumes = volumes(errors, spec, path);
    let mut names = Vec::new();
    if list(spec, "containers").next().is_none() {
        errors.required(format!("{path}.containers"));
    }
    for field in ["containers", "initContainers"] {
        for (path, item) in indexed(spec, field, path) {
            errors.name(item, &path, &mut names);
            container(errors, item, &path, &volumes);
            if field == "containers" || text(item, "restartPolicy") == "Always" {
                probe::probes(errors, item, &path);
            } else {
                probe::forbid(errors, item, &path);
            }
        }
    }
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        host_ports(errors, spec, path);
    }
    let restart = ["Always", "OnFailure", "Never"];
    errors.one_of(format!("{path}.restartPolicy"), spec.get("restartPolicy"), &restart);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.one_of(format!("{path}.dnsPolicy"), spec.get("dnsPolicy"), &policies);
    scheduling::node_selector(errors, spec, path);
    scheduling::affinity(errors, spec, path);
    for field in ["serviceAccountName", "nodeName"] {
        let name = text(spec, field);
        for why in Some(name)
            .filter(|name| !name.is_empty())
            .map(names::subdomain)
            .unwrap_or_default()
        {
            errors.invalid(format!("{path}.{field}"), name, why);
        }
    }
    if let Some(seconds) = spec
        .get("activeDeadlineSeconds")
        .and_then(Value::as_i64)
        .filter(|seconds| *seconds < 1)
    {
        errors.invalid(
            format!("{path}.activeDeadlineSeconds"),
            seconds,
            "must be between 1 and 2147483647, inclusive",
        );
    }
    for field in ["hostname", "subdomain"] {
        let name = text(spec, field);
        for why in Some(name)
            .filter(|name| !name.is_empty())
            .map(names::label)
            .unwrap_or_default()
        {
            errors.invalid(format!("{path}.{field}"), name, why);
        }
    }
    scheduling::tolerations(errors, spec, path);
}

/// The sources of volumes that can be told apart here, in the order in which Kubernetes looks at them.
const SOURCES: [&str; 8] = [
    "emptyDir",
    "hostPath",
    "secret",
    "nfs",
    "persistentVolumeClaim",
    "downwardAPI",
    "configMap",
    "projected",
];

/// Checks the volumes, and names those that are in order.
fn volumes<'a>(errors: &mut Errors, spec: &'a Value, path: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (path, volume) in indexed(spec, "volumes", path) {
        let before = errors.0.len();
        for second in SOURCES.into_iter().filter(|source| is_set(volume, source)).skip(1) {
            let why = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("{path}.{second}"), why));
        }
        for (source, field) in [("hostPath", "path"), ("secret", "secretName"), ("configMap", "name")] {
            if volume.get(source).is_some_and(|source| text(source, field).is_empty()) {
                errors.required(format!("{path}.{source}.{field}"));
            }
        }
        let mut seen = names.clone();
        errors.name(volume, &path, &mut seen);
        if errors.0.len() == before {
            names = seen;
        }
    }
    names
}

fn container(errors: &mut Errors, container: &Value, path: &str, volumes: &[&str]) {
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

fn host_ports(errors: &mut Errors, spec: &Value, path: &str) {
    for (path, container) in indexed(spec, "containers", path) {
        for (path, port) in indexed(container, "ports", &path) {
            if is_set(port, "hostPort") && port.get("hostPort") != port.get("containerPort") {
                let host = port.get("hostPort").cloned().unwrap_or_default();
                errors.invalid(
                    format!("{path}.hostPort"),
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

/// A pod's spec stays what it was, but for a few fields.
pub(super) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    for field in ["containers", "initContainers"] {
        if list(new, field).count() != list(old, field).count() {
            let why = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(format!("spec.{field}"), why));
            return;
        }
    }
    let added = |toleration: &&Value| !list(new, "tolerations").any(|kept| same_toleration(kept, toleration));
    if list(old, "tolerations").any(|toleration| added(&toleration)) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", why));
    }
    // The scheduler's binding goes through an endpoint of its own, so that a node is not set here either.
    if munged(new, old) != *old {
        errors.push(FieldError::forbidden("spec", UPDATE));
    }
}

fn same_toleration(a: &Value, b: &Value) -> bool {
    ["key", "operator", "value", "effect"]
        .iter()
        .all(|field| text(a, field) == text(b, field))
}

/// The new spec with all that may be changed put back.
fn munged(new: &Value, old: &Value) -> Value {
    let mut new = new.clone();
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        put_back(&mut new, old, field);
    }
    let period = |spec: &Value| spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    if period(&new) == Some(1) && period(old).is_some_and(|seconds| seconds < 0) {
        put_back(&mut new, old, "terminationGracePeriodSeconds");
    }
    for field in ["containers", "initContainers"] {
        let olds: Vec<&Value> = list(old, field).collect();
        let news = new.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
        for (new, old) in news.zip(olds) {
            put_back(new, old, "image");
        }
    }
    new
}

fn put_back(new: &mut Value, old: &Value, field: &str) {
    if let Some(new) = new.as_object_mut() {
        match old.get(field) {
            Some(value) => new.insert(field.into(), value.clone()),
            None => new.shift_remove(field),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(pod: &Value) -> Vec<String> {
        let mut errors = Errors::default();
        spec(&mut errors, pod, "spec");
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn pods_need_containers_with_names_and_images() {
        assert_eq!(told(&json!({})), ["spec.containers: Required value"]);
        assert_eq!(
            told(&json!({"containers": [{"name": "a", "image": "a"}, {"name": "a"}]})),
            [
                "spec.containers[1].name: Duplicate value: \"a\"",
                "spec.containers[1].image: Required value"
            ]
        );
    }

    #[test]
    fn mounts_need_their_volume_and_requests_their_limit() {
        let container = json!({"name": "a", "image": "a", "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1500m", "gpu": "1"}}});
        assert_eq!(
            told(&json!({"containers": [container]})),
            [
                "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
                "spec.containers[0].resources.requests: Invalid value: \"1500m\": must be less than or equal to cpu limit of 1",
                "spec.containers[0].resources.requests[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
                "spec.containers[0].resources.requests[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
            ]
        );
    }

    #[test]
    fn updates_change_images_and_little_else() {
        let told = |new: &Value, old: &Value| {
            let mut errors = Errors::default();
            update(&mut errors, new, old);
            errors.0.len()
        };
        let old = json!({"containers": [{"name": "a", "image": "a:1"}]});
        assert_eq!(told(&json!({"containers": [{"name": "a", "image": "a:2"}]}), &old), 0);
        assert_eq!(
            told(
                &json!({"containers": [{"name": "a", "image": "a:1", "args": ["x"]}]}),
                &old
            ),
            1
        );
        assert_eq!(
            told(
                &json!({"containers": [{"name": "a", "image": "a:1"}], "nodeName": "n"}),
                &old
            ),
            1
        );
    }
}
