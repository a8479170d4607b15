//! The columns of the built-in kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{cells, core, pod, workloads};

/// What the name column says of itself.
const NAME: &str = "Name must be unique within a namespace.";
/// What an age column says of itself.
pub(super) const CREATED: &str = "When this object was created, in UTC.";

/// How an object's cells are made.
type MakeCells = fn(&Value, Timestamp) -> Vec<Value>;

/// Columns: `name:type`, the type being `string` where it is left out; from `|` on they are shown in wide output only.
#[rustfmt::skip]
const KINDS: &[(&str, &str, &str, MakeCells)] = &[
    ("", "ConfigMap", "Name,Data,Age", core::config_map),
    ("", "Endpoints", "Name,Endpoints,Age", core::endpoints),
    ("", "Event", "Last Seen,Type,Reason,Object,|Subobject,|Source,Message,|First Seen,|Count,|Name", core::event),
    ("events.k8s.io", "Event", "Last Seen,Type,Reason,Object,|Subobject,|Source,Message,|First Seen,|Count,|Name", core::event),
    ("", "Namespace", "Name,Status,Age", core::namespace),
    ("", "Node", "Name,Status,Roles,Age,Version,|Internal-IP,|External-IP,|OS-Image,|Kernel-Version,|Container-Runtime", core::node),
    ("", "PersistentVolumeClaim", "Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,|VolumeMode", core::volume_claim),
    ("", "Pod", "Name,Ready,Status,Restarts,Age,|IP,|Node,|Nominated Node,|Readiness Gates", pod::cells),
    ("", "ReplicationController", "Name,Desired:integer,Current:integer,Ready:integer,Age,|Containers,|Images,|Selector", workloads::replication_controller),
    ("", "Secret", "Name,Type,Data,Age", core::secret),
    ("", "Service", "Name,Type,Cluster-IP,External-IP,Port(s),Age,|Selector", core::service),
    ("", "ServiceAccount", "Name,Secrets,Age", core::service_account),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "Name,Webhooks:integer,Age", cells::webhooks),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "Name,Webhooks:integer,Age", cells::webhooks),
    ("apps", "ControllerRevision", "Name,Controller,Revision,Age", workloads::controller_revision),
    ("apps", "DaemonSet", "Name,Desired:integer,Current:integer,Ready:integer,Up-to-date:integer,Available:integer,Node Selector,Age,|Containers,|Images,|Selector", workloads::daemon_set),
    ("apps", "Deployment", "Name,Ready,Up-to-date,Available,Age,|Containers,|Images,|Selector", workloads::deployment),
    ("apps", "ReplicaSet", "Name,Desired:integer,Current:integer,Ready:integer,Age,|Containers,|Images,|Selector", workloads::replica_set),
    ("apps", "StatefulSet", "Name,Ready,Age,|Containers,|Images", workloads::stateful_set),
    ("autoscaling", "HorizontalPodAutoscaler", "Name,Reference,Targets,MinPods,MaxPods,Replicas,Age", workloads::autoscaler),
    ("batch", "CronJob", "Name,Schedule,Timezone,Suspend:boolean,Active:integer,Last Schedule,Age,|Containers,|Images,|Selector", workloads::cron_job),
    ("batch", "Job", "Name,Status,Completions,Duration,Age,|Containers,|Images,|Selector", workloads::job),
    ("coordination.k8s.io", "Lease", "Name,Holder,Age", cells::lease),
    ("discovery.k8s.io", "EndpointSlice", "Name,AddressType,Ports,Endpoints,Age", core::endpoint_slice),
    ("networking.k8s.io", "Ingress", "Name,Class,Hosts,Address,Ports,Age", cells::ingress),
    ("networking.k8s.io", "NetworkPolicy", "Name,Pod-Selector,Age", cells::network_policy),
    ("policy", "PodDisruptionBudget", "Name,Min Available,Max Unavailable,Allowed Disruptions:integer,Age", workloads::disruption_budget),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "Name,Role,Age,|Users,|Groups,|ServiceAccounts", cells::role_binding),
    ("rbac.authorization.k8s.io", "RoleBinding", "Name,Role,Age,|Users,|Groups,|ServiceAccounts", cells::role_binding),
    ("scheduling.k8s.io", "PriorityClass", "Name,Value:integer,Global-Default:boolean,Age,PreemptionPolicy", cells::priority_class),
];

/// Columns and cells of a kind. One without columns of its own shows its name and when it was created.
pub(super) fn builtin(group: &str, kind: &str) -> (Vec<Value>, MakeCells) {
    match KINDS.iter().find(|k| k.0 == group && k.1 == kind) {
        Some((_, _, columns, cells)) => (columns.split(',').map(column).collect(), *cells),
        None => (vec![name(), definition("Created At", "date", CREATED, 0)], cells::other),
    }
}

/// The column of names.
pub(super) fn name() -> Value {
    column("Name")
}

fn column(text: &str) -> Value {
    let (text, priority) = text.strip_prefix('|').map_or((text, 0), |text| (text, 1));
    let (name, kind) = text.split_once(':').unwrap_or((text, "string"));
    let told = match name {
        "Name" => NAME,
        "Age" => CREATED,
        _ => "",
    };
    definition(name, kind, told, priority)
}

fn definition(name: &str, kind: &str, told: &str, priority: u8) -> Value {
    let format = if name == "Name" { "name" } else { "" };
    json!({"name": name, "type": kind, "format": format, "description": told, "priority": priority})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_as_many_cells_as_columns() {
        let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}});
        for resource in crate::surface::builtin_resources() {
            let (columns, cells) = builtin(&resource.group, &resource.kind);
            let cells = cells(&object, Timestamp::UNIX_EPOCH);
            assert_eq!(columns.len(), cells.len(), "{}", resource.kind);
        }
    }

    #[test]
    fn the_table_names_kinds_that_are_served() {
        let served = crate::surface::builtin_resources();
        for (group, kind, ..) in KINDS {
            assert!(
                served.iter().any(|r| r.group == *group && r.kind == *kind),
                "{group} {kind}"
            );
        }
    }
}
