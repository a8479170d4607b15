//! What the objects of the core group and their kin show, in the order of their columns.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    age::since,
    cells::{Cells, age, count, name},
    text::{NONE, at, condition, labels, list, map, number, plain, some_of, text, text_or},
};

pub(super) fn config_map(object: &Value, now: Timestamp) -> Cells {
    vec![
        name(object),
        (count(object, "data") + count(object, "binaryData")).into(),
        age(object, now),
    ]
}

pub(super) fn endpoints(object: &Value, now: Timestamp) -> Cells {
    let mut all = Vec::new();
    for subset in list(object, "subsets") {
        let addresses: Vec<_> = list(subset, "addresses").iter().map(|a| text(a, "ip")).collect();
        let ports = list(subset, "ports");
        if ports.is_empty() {
            all.extend(addresses.iter().map(|&a| a.to_owned()));
        }
        let with = |port: &Value| -> Vec<String> {
            let port = number(port, "port");
            let host = |a: &&str| {
                if a.contains(':') {
                    format!("[{a}]:{port}")
                } else {
                    format!("{a}:{port}")
                }
            };
            addresses.iter().map(host).collect()
        };
        all.extend(ports.iter().flat_map(with));
    }
    vec![name(object), some_of(&all, 3, ",").into(), age(object, now)]
}

pub(super) fn endpoint_slice(object: &Value, now: Timestamp) -> Cells {
    let port = |port: &Value| match at(port, "port") {
        Some(number) => plain(number),
        None => text_or(port, "name", "*").to_owned(),
    };
    let ports: Vec<_> = list(object, "ports").iter().map(port).collect();
    let addresses = list(object, "endpoints")
        .iter()
        .flat_map(|endpoint| list(endpoint, "addresses"));
    let addresses: Vec<_> = addresses.map(plain).collect();
    let shown = |all: &[String]| {
        if all.is_empty() {
            "<unset>".to_owned()
        } else {
            some_of(all, 3, ",")
        }
    };
    vec![
        name(object),
        text(object, "addressType").into(),
        shown(&ports).into(),
        shown(&addresses).into(),
        age(object, now),
    ]
}

/// Events of both groups, whose fields are named differently.
pub(super) fn event(object: &Value, now: Timestamp) -> Cells {
    let either = |new: &'static str, old: &'static str| at(object, new).or_else(|| at(object, old));
    let first = either("firstTimestamp", "deprecatedFirstTimestamp").or_else(|| at(object, "eventTime"));
    let first_seen = since(first, now);
    let mut last_seen = either("lastTimestamp", "deprecatedLastTimestamp")
        .map_or_else(|| first_seen.clone(), |time| since(Some(time), now));
    let mut count = either("count", "deprecatedCount")
        .and_then(Value::as_i64)
        .unwrap_or(1)
        .max(1);
    if let Some(series) = at(object, "series") {
        last_seen = since(at(series, "lastObservedTime"), now);
        count = number(series, "count");
    }
    let about = at(object, "involvedObject")
        .or_else(|| at(object, "regarding"))
        .unwrap_or(&Value::Null);
    let target = match (text(about, "kind").to_lowercase(), text(about, "name")) {
        (kind, "") => kind,
        (kind, name) => format!("{kind}/{name}"),
    };
    let source = at(object, "source")
        .or_else(|| at(object, "deprecatedSource"))
        .unwrap_or(&Value::Null);
    let component = text_or(
        source,
        "component",
        text_or(object, "reportingComponent", text(object, "reportingController")),
    );
    let host = text_or(source, "host", text(object, "reportingInstance"));
    let source = if host.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {host}")
    };
    let message = text_or(object, "message", text(object, "note")).trim();
    vec![
        last_seen.into(),
        text(object, "type").into(),
        text(object, "reason").into(),
        target.into(),
        text(about, "fieldPath").into(),
        source.into(),
        message.into(),
        first_seen.into(),
        count.into(),
        name(object),
    ]
}

pub(super) fn namespace(object: &Value, now: Timestamp) -> Cells {
    vec![name(object), text(object, "status.phase").into(), age(object, now)]
}

pub(super) fn node(object: &Value, now: Timestamp) -> Cells {
    let mut status = vec![match condition(object, "Ready") {
        Some(ready) if text(ready, "status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if at(object, "spec.unschedulable") == Some(&Value::Bool(true)) {
        status.push("SchedulingDisabled");
    }
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some("") => None,
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().filter(|r| !r.is_empty()).map(str::to_owned),
        None => None,
    };
    let mut roles: Vec<_> = map(object, "metadata.labels")
        .into_iter()
        .flatten()
        .filter_map(role)
        .collect();
    roles.sort_unstable();
    roles.dedup();
    let address = |kind: &str| -> Value {
        let found = list(object, "status.addresses")
            .iter()
            .find(|a| text(a, "type") == kind);
        found.map_or(NONE, |a| text(a, "address")).into()
    };
    let info = |field: &str| text_or(object, &format!("status.nodeInfo.{field}"), "<unknown>").into();
    vec![
        name(object),
        status.join(",").into(),
        if roles.is_empty() {
            NONE.into()
        } else {
            roles.join(",").into()
        },
        age(object, now),
        text(object, "status.nodeInfo.kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

pub(super) fn secret(object: &Value, now: Timestamp) -> Cells {
    vec![
        name(object),
        text(object, "type").into(),
        count(object, "data").into(),
        age(object, now),
    ]
}

pub(super) fn service_account(object: &Value, now: Timestamp) -> Cells {
    vec![name(object), count(object, "secrets").into(), age(object, now)]
}

pub(super) fn service(object: &Value, now: Timestamp) -> Cells {
    let external: Vec<_> = list(object, "spec.externalIPs").iter().map(plain).collect();
    let balancers = list(object, "status.loadBalancer.ingress").iter();
    let mut balancers: Vec<_> = balancers
        .map(|i| text_or(i, "ip", text(i, "hostname")).to_owned())
        .collect();
    balancers.sort_unstable();
    let kind = text(object, "spec.type");
    let outside = match kind {
        "LoadBalancer" if external.is_empty() && balancers.is_empty() => "<pending>".to_owned(),
        "LoadBalancer" => [balancers, external].concat().join(","),
        "ExternalName" => text(object, "spec.externalName").to_owned(),
        "ClusterIP" | "NodePort" if external.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        _ => "<unknown>".to_owned(),
    };
    let port = |p: &Value| match (number(p, "port"), number(p, "nodePort"), text(p, "protocol")) {
        (port, 0, protocol) => format!("{port}/{protocol}"),
        (port, node, protocol) => format!("{port}:{node}/{protocol}"),
    };
    let ports: Vec<_> = list(object, "spec.ports").iter().map(port).collect();
    vec![
        name(object),
        kind.into(),
        list(object, "spec.clusterIPs")
            .first()
            .map_or(NONE.to_owned(), plain)
            .into(),
        outside.into(),
        if ports.is_empty() {
            NONE.into()
        } else {
            ports.join(",").into()
        },
        age(object, now),
        labels(object, "spec.selector").into(),
    ]
}

pub(super) fn volume_claim(object: &Value, now: Timestamp) -> Cells {
    let gone = at(object, "metadata.deletionTimestamp").is_some();
    let volume = text(object, "spec.volumeName");
    let bound = !volume.is_empty();
    let modes: Vec<_> = list(object, "status.accessModes")
        .iter()
        .map(|m| short_mode(m.as_str().unwrap_or_default()))
        .collect();
    vec![
        name(object),
        if gone {
            "Terminating"
        } else {
            text(object, "status.phase")
        }
        .into(),
        volume.into(),
        if bound {
            text(object, "status.capacity.storage")
        } else {
            ""
        }
        .into(),
        if bound { modes.join(",") } else { String::new() }.into(),
        text(object, "spec.storageClassName").into(),
        text_or(object, "spec.volumeAttributesClassName", "<unset>").into(),
        age(object, now),
        text_or(object, "spec.volumeMode", "<unset>").into(),
    ]
}

fn short_mode(mode: &str) -> &str {
    match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        other => other,
    }
}
