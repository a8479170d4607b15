//! What the objects of the remaining built-in kinds show, and what all rows begin and end with.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    age::since,
    text::{NONE, at, list, number, selector, text, text_or},
};

pub(super) type Cells = Vec<Value>;

pub(super) fn name(object: &Value) -> Value {
    text(object, "metadata.name").into()
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    since(at(object, "metadata.creationTimestamp"), now).into()
}

pub(super) fn count(object: &Value, path: &str) -> usize {
    at(object, path).map_or(0, |value| {
        value
            .as_object()
            .map_or_else(|| list(object, path).len(), serde_json::Map::len)
    })
}

pub(super) const TEMPLATE: &str = "spec.template.spec.containers";

pub(super) fn other(object: &Value, _: Timestamp) -> Cells {
    vec![name(object), text(object, "metadata.creationTimestamp").into()]
}

pub(super) fn ingress(object: &Value, now: Timestamp) -> Cells {
    let hosts: Vec<_> = list(object, "spec.rules")
        .iter()
        .map(|r| text(r, "host"))
        .filter(|h| !h.is_empty())
        .collect();
    let hosts = if hosts.is_empty() {
        "*".to_owned()
    } else {
        hosts.join(",")
    };
    let balancers = list(object, "status.loadBalancer.ingress").iter();
    let addresses: Vec<_> = balancers.map(|i| text_or(i, "ip", text(i, "hostname"))).collect();
    let ports = if list(object, "spec.tls").is_empty() {
        "80"
    } else {
        "80, 443"
    };
    vec![
        name(object),
        text_or(object, "spec.ingressClassName", NONE).into(),
        hosts.into(),
        addresses.join(",").into(),
        ports.into(),
        age(object, now),
    ]
}

pub(super) fn lease(object: &Value, now: Timestamp) -> Cells {
    vec![
        name(object),
        text(object, "spec.holderIdentity").into(),
        age(object, now),
    ]
}

pub(super) fn network_policy(object: &Value, now: Timestamp) -> Cells {
    vec![
        name(object),
        selector(object, "spec.podSelector").into(),
        age(object, now),
    ]
}

pub(super) fn priority_class(object: &Value, now: Timestamp) -> Cells {
    let default = at(object, "globalDefault") == Some(&Value::Bool(true));
    vec![
        name(object),
        number(object, "value").into(),
        default.into(),
        age(object, now),
        text(object, "preemptionPolicy").into(),
    ]
}

pub(super) fn role_binding(object: &Value, now: Timestamp) -> Cells {
    let role = format!("{}/{}", text(object, "roleRef.kind"), text(object, "roleRef.name"));
    let of = |kind: &str| -> Value {
        let subjects = list(object, "subjects").iter().filter(|s| text(s, "kind") == kind);
        let named = |s: &Value| match text(s, "namespace") {
            "" => text(s, "name").to_owned(),
            namespace => format!("{namespace}/{}", text(s, "name")),
        };
        subjects.map(named).collect::<Vec<_>>().join(", ").into()
    };
    vec![
        name(object),
        role.into(),
        age(object, now),
        of("User"),
        of("Group"),
        of("ServiceAccount"),
    ]
}

pub(super) fn webhooks(object: &Value, now: Timestamp) -> Cells {
    vec![name(object), count(object, "webhooks").into(), age(object, now)]
}
