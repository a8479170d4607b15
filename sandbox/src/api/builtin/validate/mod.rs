//! What built-in objects are held to beyond their types: required fields, ranges, references within the object, and what
//! an update may not change. As much of it as our users' mistakes touch; the rest is taken as it comes.

mod autoscaler;
mod container;
mod event;
mod others;
mod pod;
mod probe;
mod scheduling;
mod service;
mod workload;

use serde_json::Value;

use crate::{
    api::field_error::FieldError,
    schema::{NameRule, validate_definition},
    surface::Resource,
};

/// Why an object is refused; `old` is what it replaces.
pub(super) fn check(names: &Resource, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let old_spec = old.map(|old| old.get("spec").unwrap_or(&Value::Null));
    let kind = names.kind.as_str();
    match kind {
        "Pod" => {
            pod::spec(&mut errors, spec, "spec");
            if let Some(old) = old_spec {
                pod::update(&mut errors, spec, old);
            }
        }
        "Deployment" => workload::deployment(&mut errors, spec, old_spec),
        "ReplicaSet" | "DaemonSet" | "StatefulSet" => workload::replicated(&mut errors, kind, spec, old_spec),
        "Job" => workload::job(&mut errors, spec),
        "Service" => service::service(&mut errors, spec, old_spec),
        "HorizontalPodAutoscaler" => autoscaler::autoscaler(&mut errors, spec, old_spec),
        "PodDisruptionBudget" => others::budget(&mut errors, spec),
        "ConfigMap" | "Secret" => others::data(&mut errors, kind, object, old),
        "Lease" => others::lease(&mut errors, spec),
        "Node" => others::node(&mut errors, spec, old_spec),
        "EndpointSlice" => others::slice(&mut errors, object, old),
        "Event" => {
            event::any(&mut errors, object, &names.group);
            match old {
                _ if names.group.is_empty() => {}
                None => event::new(&mut errors, object),
                Some(old) => event::update(&mut errors, object, old),
            }
        }
        "RoleBinding" | "ClusterRoleBinding" => others::binding(&mut errors, object, old),
        "CustomResourceDefinition" => errors.0 = validate_definition(object, old),
        _ => {}
    }
    errors.0
}

/// Why a status is refused.
pub(super) fn check_status(names: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let status = object.get("status").unwrap_or(&Value::Null);
    match names.kind.as_str() {
        "HorizontalPodAutoscaler" => autoscaler::status(&mut errors, status),
        kind @ ("Deployment" | "ReplicaSet") => workload::status(&mut errors, kind, status),
        "Service" => {
            let balancer = status.get("loadBalancer").unwrap_or(&Value::Null);
            let kind = object.get("spec").map_or("", |spec| text(spec, "type"));
            if list(balancer, "ingress").next().is_some() && kind != "LoadBalancer" {
                let why = "may only be used when `spec.type` is 'LoadBalancer'";
                errors.push(FieldError::forbidden("status.loadBalancer.ingress", why));
            }
        }
        "Pod" => pod::status(&mut errors, status),
        _ => {}
    }
    errors.0
}

/// The finalizers that have no domain and are not Kubernetes' own: built-in objects are not made with such.
pub(super) fn unknown_finalizers(metadata: &Value) -> Vec<FieldError> {
    let known = ["kubernetes", "orphan", "foregroundDeletion"];
    let finalizers = indexed(metadata, "finalizers", "metadata").into_iter();
    let unknown = finalizers.filter_map(|(path, finalizer)| {
        let name = finalizer
            .as_str()
            .filter(|name| !name.contains('/') && !known.contains(name))?;
        let why = "name is neither a standard finalizer name nor is it fully qualified";
        Some(FieldError::invalid(path, name, why))
    });
    unknown.collect()
}

/// The errors found so far.
#[derive(Default)]
struct Errors(Vec<FieldError>);

impl Errors {
    fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    fn required(&mut self, path: impl Into<String>) {
        self.push(FieldError::required(path, ""));
    }

    /// The same, and what is there to be done.
    fn missing(&mut self, path: impl Into<String>, why: &str) {
        self.push(FieldError::required(path, why));
    }

    fn invalid(&mut self, path: impl Into<String>, value: impl Into<Value>, why: impl Into<String>) {
        self.push(FieldError::invalid(path, value, why));
    }

    /// A number that may not be negative.
    fn not_negative(&mut self, map: &Value, field: &str, path: &str) {
        if let Some(number) = map.get(field).and_then(Value::as_i64).filter(|number| *number < 0) {
            self.invalid(format!("{path}.{field}"), number, "must be greater than or equal to 0");
        }
    }

    /// A number of a port.
    fn port(&mut self, path: String, number: Option<i64>) {
        if let Some(number) = number.filter(|number| !(1..=65535).contains(number)) {
            self.invalid(path, number, "must be between 1 and 65535, inclusive");
        }
    }

    /// A field that must have one of a few values.
    fn one_of(&mut self, path: String, value: Option<&Value>, supported: &[&str]) {
        if let Some(value) = value.filter(|value| value.as_str().is_none_or(|text| !supported.contains(&text))) {
            self.push(FieldError::not_supported(path, value.clone(), supported));
        }
    }

    /// A field that stays what it was.
    fn immutable(&mut self, path: &str, new: Option<&Value>, old: Option<&Value>) {
        if new != old {
            self.invalid(path, new.cloned().unwrap_or_default(), "field is immutable");
        }
    }

    /// The name of something within an object, such as a container: there, well-formed, and there once.
    fn name<'a>(&mut self, item: &'a Value, path: &str, seen: &mut Vec<&'a str>) {
        let name = text(item, "name");
        let path = format!("{path}.name");
        if name.is_empty() {
            self.required(path);
            return;
        }
        for why in NameRule::Label.check(name, false) {
            self.invalid(path.as_str(), name, why);
        }
        if seen.contains(&name) {
            self.push(FieldError::duplicate(path, name));
        }
        seen.push(name);
    }
}

fn text<'a>(map: &'a Value, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(map: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    map.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// A list's elements, each with its path.
fn indexed<'a>(map: &'a Value, field: &str, path: &str) -> Vec<(String, &'a Value)> {
    list(map, field)
        .enumerate()
        .map(|(index, item)| (format!("{path}.{field}[{index}]"), item))
        .collect()
}

fn is_set(map: &Value, field: &str) -> bool {
    map.get(field).is_some_and(|value| !value.is_null())
}
