//! The built-in resources: the rules that they obey beyond what their description says.

mod address;
mod always;
mod defaults;
mod node_ports;
mod normal;
mod pod;
mod prepare;
mod quantity;
mod time;
mod validate;

use serde_json::{Value, json};

use super::{
    field_error::FieldError,
    object::{child, map},
    resource::{Generation, Resource, ScalePaths},
};
use crate::{
    schema,
    surface::{self, api_version},
};

pub(super) use address::{Addresses, Refusal};
pub(super) use always::fill;
pub(super) use defaults::label_namespace;
pub(super) use normal::Unreadable;

/// Kinds that a `PUT` of what does not exist creates.
const CREATE_ON_UPDATE: [&str; 8] = [
    "Lease",
    "Event",
    "Service",
    "Endpoints",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
];

/// Kinds that an update must name the `resourceVersion` of.
const CONDITIONAL_UPDATE: [&str; 3] = ["Lease", "PodDisruptionBudget", "CustomResourceDefinition"];

/// Kinds whose deletion is answered with the object.
const RETURNS_DELETED: [&str; 6] = [
    "Pod",
    "Service",
    "Namespace",
    "ServiceAccount",
    "PersistentVolumeClaim",
    "PersistentVolume",
];

/// All built-in resources.
pub(super) fn resources() -> impl Iterator<Item = Resource> {
    surface::builtin_resources().into_iter().map(|names| {
        // Events are one table, whichever group they are asked through.
        let group = if names.kind == "Event" { "" } else { &names.group };
        let kind = names.kind.as_str();
        Resource {
            generation: generation(kind),
            scale: names.has_subresource("scale").then(|| ScalePaths {
                spec: ".spec.replicas".into(),
                status: ".status.replicas".into(),
                selector: Some(".spec.selector".into()),
            }),
            create_on_update: CREATE_ON_UPDATE.contains(&kind),
            unconditional_update: !CONDITIONAL_UPDATE.contains(&kind),
            returns_deleted: RETURNS_DELETED.contains(&kind),
            custom: false,
            definition: None,
            table: format!("{}.{group}", names.plural).into(),
            storage_version: api_version(group, &names.version),
            schema: schema::builtin(&names.group, &names.version, kind).cloned(),
            names,
        }
    })
}

fn generation(kind: &str) -> Generation {
    match kind {
        "Deployment" => Generation::SpecOrAnnotations,
        "EndpointSlice" => Generation::ContentOrLabels,
        "CronJob"
        | "CustomResourceDefinition"
        | "DaemonSet"
        | "Ingress"
        | "Job"
        | "NetworkPolicy"
        | "Pod"
        | "PodDisruptionBudget"
        | "ReplicaSet"
        | "ReplicationController"
        | "StatefulSet" => Generation::Spec,
        _ => Generation::None,
    }
}

/// Brings an object that a client sent into the form that the server keeps, with defaults. The error is a sentence.
pub(super) fn admit(resource: &Resource, object: &mut Value) -> Result<(), Unreadable> {
    if let Some(schema) = &resource.schema {
        normal::normalize(schema, object)?;
        always::fill(schema, object);
    }
    defaults::apply(&resource.names.kind, object);
    Ok(())
}

/// The same for the metadata of any object.
pub(super) fn normalize_metadata(object: &mut Value) -> Result<(), Unreadable> {
    match object.get_mut("metadata") {
        Some(metadata) => normal::normalize(schema::object_meta(), metadata),
        None => Ok(()),
    }
}

/// Makes a new object what Kubernetes makes it.
pub(super) fn prepare_create(resource: &Resource, object: &mut Value) {
    prepare::create(&resource.names.kind, resource.has_status(), object);
    if resource.is_storage_version() {
        shape(resource, object);
    }
}

/// Does to a pod that is changed what is done with each write of one.
pub(super) fn prepare_update(resource: &Resource, object: &mut Value) {
    if resource.names.kind == "Pod" {
        prepare::tolerate(child(map(object), "spec"));
    }
}

/// Adds the fields that are there whether set or not.
pub(super) fn shape(resource: &Resource, object: &mut Value) {
    if let Some(schema) = &resource.schema {
        always::fill(schema, object);
    }
}

/// An object of a kind of which nothing is set.
pub(super) fn empty(resource: &Resource) -> Value {
    let mut object = json!({});
    shape(resource, &mut object);
    object
}

/// Why an object is refused, its metadata apart.
pub(super) fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    validate::check(&resource.names, object, old)
}

/// Why a status is refused.
pub(super) fn validate_status(resource: &Resource, object: &Value) -> Vec<FieldError> {
    validate::check_status(&resource.names, object)
}

/// The finalizers with which an object is not made.
pub(super) fn unknown_finalizers(metadata: &Value) -> Vec<FieldError> {
    validate::unknown_finalizers(metadata)
}

/// What its author should know about an object, though it is taken.
pub(super) fn warnings(resource: &Resource, object: &Value) -> Vec<String> {
    let warning = match resource.names.kind.as_str() {
        "Endpoints" => Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        "Service" => without_effect(object),
        _ => None,
    };
    warning.into_iter().map(str::to_owned).collect()
}

/// A headless service leads nobody anywhere, so it cannot lead anybody to where it was led before.
fn without_effect(service: &Value) -> Option<&'static str> {
    let says = |field: &str, value: &str| service.pointer(field).is_some_and(|said| said == value);
    let headless = says("/spec/type", "ClusterIP") && says("/spec/clusterIP", "None");
    let sticky = service.pointer("/spec/sessionAffinity").is_some() && !says("/spec/sessionAffinity", "None");
    (headless && sticky).then_some("spec.SessionAffinity is ignored for headless services")
}
