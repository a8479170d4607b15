//! Pods and pod templates.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Errors, container::container, indexed, is_set, list, probe, scheduling, text};
use crate::{
    api::{builtin::address::NO_ADDRESS, field_error::FieldError},
    schema::names,
};

/// What may not be changed, as users are told.
const UPDATE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

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
        optional_name(errors, spec, field, path, names::subdomain);
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
        optional_name(errors, spec, field, path, names::label);
    }
    scheduling::tolerations(errors, spec, path);
}

/// A pod's status: where it runs, one address of each family.
pub(super) fn status(errors: &mut Errors, status: &Value) {
    addresses(errors, status, "podIPs");
    if let Some(first) = list(status, "hostIPs").next().map(|host| text(host, "ip"))
        && first != text(status, "hostIP")
    {
        errors.invalid("status.hostIPs[0].ip", first, "must be equal to `hostIP`");
    }
    addresses(errors, status, "hostIPs");
}

fn addresses(errors: &mut Errors, status: &Value, field: &str) {
    let (mut ipv4, mut ipv6) = (0, 0);
    for (path, item) in indexed(status, field, "status") {
        let address = text(item, "ip");
        match address.parse() {
            Ok(IpAddr::V4(_)) => ipv4 += 1,
            Ok(IpAddr::V6(_)) => ipv6 += 1,
            Err(_) => errors.invalid(path, address, NO_ADDRESS),
        }
    }
    if ipv4 > 1 || ipv6 > 1 {
        // The value is shown as Go has it in memory, under the names of its struct.
        let shown: Vec<_> = list(status, field)
            .map(|item| json!({"IP": text(item, "ip")}))
            .collect();
        let why = "may specify no more than one IP for each IP family";
        errors.invalid(format!("status.{field}"), shown, why);
    }
}

/// A field that is empty, or a name in which the rule finds nothing wrong.
fn optional_name(errors: &mut Errors, spec: &Value, field: &str, path: &str, rule: fn(&str) -> Vec<String>) {
    let name = text(spec, field);
    if name.is_empty() {
        return;
    }
    for why in rule(name) {
        errors.invalid(format!("{path}.{field}"), name, why);
    }
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
    deadline(new, old, errors);
    // The scheduler's binding goes through an endpoint of its own, so that a node is not set here either.
    if munged(new, old) != *old {
        errors.push(FieldError::forbidden("spec", UPDATE));
    }
}

/// A deadline may come nearer, and not be put off.
fn deadline(new: &Value, old: &Value, errors: &mut Errors) {
    let seconds = |spec: &Value| spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    let why = match (seconds(old), seconds(new)) {
        (Some(_), None) => "must not update from a positive integer to nil value",
        (Some(old), Some(new)) if new > old => "must be less than or equal to previous value",
        _ => return,
    };
    let value = seconds(new).map_or(Value::Null, Value::from);
    errors.push(FieldError::invalid("spec.activeDeadlineSeconds", value, why));
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
