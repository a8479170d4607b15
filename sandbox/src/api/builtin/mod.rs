//! The built-in resources: the rules that they obey beyond what their description says.

use super::resource::{Generation, Resource, ScalePaths};
use crate::{
    schema,
    surface::{self, api_version},
};

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
        "EndpointSlice" => Generation::Content,
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
