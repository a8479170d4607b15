//! Services.

use serde_json::{Value, json};

use super::{Errors, indexed, is_set, list, text};
use crate::{
    api::{builtin::address::NO_ADDRESS, field_error::FieldError},
    schema::{NameRule, names},
};

pub(super) fn service(errors: &mut Errors, spec: &Value, old: Option<&Value>) {
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    let ports = list(spec, "ports").count();
    if ports == 0 && !headless && kind != "ExternalName" {
        errors.required("spec.ports");
    }
    for (key, value) in spec.get("selector").and_then(Value::as_object).into_iter().flatten() {
        for why in names::qualified(key) {
            errors.invalid("spec.selector", key.as_str(), why);
        }
        for why in names::label_value(value.as_str().unwrap_or_default()) {
            errors.invalid("spec.selector", value.clone(), why);
        }
    }
    errors.one_of(
        "spec.sessionAffinity".into(),
        spec.get("sessionAffinity"),
        &["ClientIP", "None"],
    );
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    errors.one_of("spec.type".into(), spec.get("type"), &types);
    if headless && matches!(kind, "NodePort" | "LoadBalancer") {
        let why = format!("may not be set to 'None' for {kind} services");
        errors.invalid("spec.clusterIPs[0]", "None", why);
    }
    if kind == "ExternalName" {
        let name = text(spec, "externalName");
        if name.is_empty() {
            errors.required("spec.externalName");
        }
        if is_set(spec, "clusterIP") {
            errors.push(FieldError::forbidden(
                "spec.clusterIPs",
                "may not be set for ExternalName services",
            ));
        }
    }
    let (mut names, mut seen) = (Vec::new(), Vec::new());
    for (path, port) in indexed(spec, "ports", "spec") {
        self::port(errors, port, &path, ports > 1, &mut names);
        let key = (text(port, "protocol"), port.get("port").and_then(Value::as_i64));
        if seen.contains(&key) {
            // Shown with the names of the server's own fields.
            let value = json!({"Name": "", "Protocol": key.0, "AppProtocol": null, "Port": key.1, "TargetPort": 0,
                "NodePort": 0});
            errors.push(FieldError::duplicate(path, value));
        }
        seen.push(key);
    }
    for (path, address) in indexed(spec, "externalIPs", "spec") {
        if address
            .as_str()
            .is_none_or(|address| address.parse::<std::net::IpAddr>().is_err())
        {
            errors.invalid(path, address.clone(), NO_ADDRESS);
        }
    }
    errors.one_of(
        "spec.internalTrafficPolicy".into(),
        spec.get("internalTrafficPolicy"),
        &["Cluster", "Local"],
    );
    if kind == "ClusterIP" {
        for (path, port) in indexed(spec, "ports", "spec") {
            if port.get("nodePort").is_some_and(|port| *port != 0) {
                let why = "may not be used when `type` is 'ClusterIP'";
                errors.push(FieldError::forbidden(format!("{path}.nodePort"), why));
            }
        }
    }
    if let Some(old) = old {
        address_stays(errors, spec, old);
    }
}

fn port<'a>(errors: &mut Errors, port: &'a Value, path: &str, needs_name: bool, names: &mut Vec<&'a str>) {
    let name = text(port, "name");
    if name.is_empty() && needs_name {
        errors.required(format!("{path}.name"));
    } else if !name.is_empty() {
        for why in NameRule::Label.check(name, false) {
            errors.invalid(format!("{path}.name"), name, why);
        }
        if names.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
        names.push(name);
    }
    let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
    errors.port(format!("{path}.port"), Some(number));
    errors.one_of(
        format!("{path}.protocol"),
        port.get("protocol"),
        &["SCTP", "TCP", "UDP"],
    );
    match port.get("targetPort") {
        Some(Value::String(name)) => {
            for why in port_name(name) {
                errors.invalid(format!("{path}.targetPort"), name.as_str(), why);
            }
        }
        target => errors.port(format!("{path}.targetPort"), target.and_then(Value::as_i64)),
    }
}

/// What is wrong with the name of a port.
pub(super) fn port_name(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > 15 {
        wrong.push("must be no more than 15 characters".to_owned());
    }
    if !name
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !name.contains(|c: char| c.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".into());
    }
    if name.contains("--") {
        wrong.push("must not contain consecutive hyphens".into());
    }
    if name.starts_with('-') || name.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".into());
    }
    wrong
}

/// An address, once given, is kept for as long as the type has one.
fn address_stays(errors: &mut Errors, new: &Value, old: &Value) {
    if text(new, "type") == "ExternalName" || text(old, "type") == "ExternalName" {
        return;
    }
    let address = text(old, "clusterIP");
    if !address.is_empty() && text(new, "clusterIP") != address {
        let addresses = new
            .get("clusterIPs")
            .cloned()
            .unwrap_or_else(|| json!([text(new, "clusterIP")]));
        errors.invalid("spec.clusterIPs[0]", addresses, "may not change once set");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(spec: &Value, old: Option<&Value>) -> Vec<String> {
        let mut errors = Errors::default();
        service(&mut errors, spec, old);
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ports_are_needed_named_and_told_apart() {
        assert_eq!(
            told(&json!({"type": "ClusterIP"}), None),
            ["spec.ports: Required value"]
        );
        assert_eq!(
            told(&json!({"type": "ClusterIP", "clusterIP": "None"}), None),
            Vec::<String>::new()
        );
        let ports = json!([{"port": 80, "protocol": "TCP"}, {"name": "b", "port": 80, "protocol": "TCP"}]);
        assert_eq!(
            told(&json!({"type": "ClusterIP", "ports": ports}), None),
            [
                "spec.ports[0].name: Required value",
                "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\"TargetPort\":0,\"NodePort\":0}",
            ]
        );
    }

    #[test]
    fn addresses_stay() {
        let spec = |ip: &str| json!({"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 1}]});
        assert_eq!(
            told(&spec("127.96.0.2"), Some(&spec("127.96.0.1"))),
            ["spec.clusterIPs[0]: Invalid value: [\"127.96.0.2\"]: may not change once set"]
        );
    }
}
