//! Probes of containers.

use serde_json::Value;

use super::{Errors, is_set, text};
use crate::api::field_error::FieldError;

/// What a probe does, in the order in which Kubernetes looks at it.
const HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];

/// The numbers of a probe.
const NUMBERS: [&str; 5] = [
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
];

/// All probes of a container.
pub(super) fn probes(errors: &mut Errors, container: &Value, path: &str) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get(name) else { continue };
        let path = format!("{path}.{name}");
        handler(errors, probe, &path);
        for field in NUMBERS {
            errors.not_negative(probe, field, &path);
        }
        let successes = probe.get("successThreshold").and_then(Value::as_i64).unwrap_or(1);
        if name != "readinessProbe" && successes != 1 {
            errors.invalid(format!("{path}.successThreshold"), successes, "must be 1");
        }
    }
}

/// Init containers run to their end, so that there is nothing to probe.
pub(super) fn forbid(errors: &mut Errors, container: &Value, path: &str) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if is_set(container, name) {
            let why = "may not be set for init containers without restartPolicy=Always";
            errors.push(FieldError::forbidden(format!("{path}.{name}"), why));
        }
    }
}

fn handler(errors: &mut Errors, probe: &Value, path: &str) {
    let set: Vec<&str> = HANDLERS.into_iter().filter(|handler| is_set(probe, handler)).collect();
    if set.is_empty() {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
    for (index, name) in set.into_iter().enumerate() {
        let path = format!("{path}.{name}");
        if index > 0 {
            errors.push(FieldError::forbidden(path, "may not specify more than 1 handler type"));
            continue;
        }
        let handler = probe.get(name).unwrap_or(&Value::Null);
        match name {
            "exec"
                if handler
                    .get("command")
                    .and_then(Value::as_array)
                    .is_none_or(Vec::is_empty) =>
            {
                errors.required(format!("{path}.command"));
            }
            "httpGet" | "tcpSocket" | "grpc" => port(errors, handler, &path),
            _ => {}
        }
    }
}

fn port(errors: &mut Errors, handler: &Value, path: &str) {
    match handler.get("port") {
        Some(Value::String(name)) => {
            for why in super::service::port_name(name) {
                errors.invalid(format!("{path}.port"), name.as_str(), why);
            }
        }
        number => {
            let number = number.and_then(Value::as_i64).unwrap_or(0);
            errors.port(format!("{path}.port"), Some(number));
        }
    }
    let scheme = text(handler, "scheme");
    if !matches!(scheme, "" | "HTTP" | "HTTPS") {
        let error = FieldError::not_supported(format!("{path}.scheme"), scheme, &["HTTP", "HTTPS"]);
        errors.push(error);
    }
}
