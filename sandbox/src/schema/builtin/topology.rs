//! What the types' own descriptions do not say: how lists and objects are merged, by server-side apply and by strategic
//! merge patch. A table of those fields that are not replaced as a whole.

/// How server-side apply merges a field.
#[derive(Clone, Copy)]
pub(super) enum Merge {
    /// As its type has it.
    Plain,
    /// A list of unlike scalars.
    Set,
    /// A list of objects told apart by these fields.
    Map(&'static [&'static str]),
    /// An object that is replaced as a whole.
    Object,
}

use Merge::{Map, Object, Plain, Set};

/// Type (below `io.k8s.`), field, merge by apply, strategies of strategic merge patch, its merge key.
#[rustfmt::skip]
pub(super) const FIELDS: &[(&str, &str, Merge, &str, &str)] = &[
    ("api.admissionregistration.v1.MutatingWebhook", "matchConditions", Map(&["name"]), "merge", "name"),
    ("api.admissionregistration.v1.MutatingWebhookConfiguration", "webhooks", Map(&["name"]), "merge", "name"),
    ("api.admissionregistration.v1.ValidatingWebhook", "matchConditions", Map(&["name"]), "merge", "name"),
    ("api.admissionregistration.v1.ValidatingWebhookConfiguration", "webhooks", Map(&["name"]), "merge", "name"),
    ("api.apps.v1.DaemonSetStatus", "conditions", Map(&["type"]), "merge", "type"),
    ("api.apps.v1.DeploymentSpec", "strategy", Plain, "retainKeys", ""),
    ("api.apps.v1.DeploymentStatus", "conditions", Map(&["type"]), "merge", "type"),
    ("api.apps.v1.ReplicaSetStatus", "conditions", Map(&["type"]), "merge", "type"),
    ("api.apps.v1.StatefulSetStatus", "conditions", Map(&["type"]), "merge", "type"),
    ("api.autoscaling.v2.HorizontalPodAutoscalerStatus", "conditions", Map(&["type"]), "merge", "type"),
    ("api.batch.v1.JobStatus", "conditions", Plain, "merge", "type"),
    ("api.batch.v1.PodFailurePolicyOnExitCodesRequirement", "values", Set, "", ""),
    ("api.batch.v1.UncountedTerminatedPods", "failed", Set, "", ""),
    ("api.batch.v1.UncountedTerminatedPods", "succeeded", Set, "", ""),
    ("api.core.v1.Container", "env", Map(&["name"]), "merge", "name"),
    ("api.core.v1.Container", "ports", Map(&["containerPort", "protocol"]), "merge", "containerPort"),
    ("api.core.v1.Container", "volumeDevices", Map(&["devicePath"]), "merge", "devicePath"),
    ("api.core.v1.Container", "volumeMounts", Map(&["mountPath"]), "merge", "mountPath"),
    ("api.core.v1.ContainerStatus", "allocatedResourcesStatus", Map(&["name"]), "merge", "name"),
    ("api.core.v1.ContainerStatus", "volumeMounts", Map(&["mountPath"]), "merge", "mountPath"),
    ("api.core.v1.EphemeralContainer", "env", Map(&["name"]), "merge", "name"),
    ("api.core.v1.EphemeralContainer", "ports", Map(&["containerPort", "protocol"]), "merge", "containerPort"),
    ("api.core.v1.EphemeralContainer", "volumeDevices", Map(&["devicePath"]), "merge", "devicePath"),
    ("api.core.v1.EphemeralContainer", "volumeMounts", Map(&["mountPath"]), "merge", "mountPath"),
    ("api.core.v1.NamespaceStatus", "conditions", Map(&["type"]), "merge", "type"),
    ("api.core.v1.NodeSpec", "podCIDRs", Set, "merge", ""),
    ("api.core.v1.NodeStatus", "addresses", Map(&["type"]), "merge", "type"),
    ("api.core.v1.NodeStatus", "conditions", Map(&["type"]), "merge", "type"),
    ("api.core.v1.PersistentVolumeClaimStatus", "conditions", Map(&["type"]), "merge", "type"),
    ("api.core.v1.PodSpec", "containers", Map(&["name"]), "merge", "name"),
    ("api.core.v1.PodSpec", "ephemeralContainers", Map(&["name"]), "merge", "name"),
    ("api.core.v1.PodSpec", "hostAliases", Map(&["ip"]), "merge", "ip"),
    ("api.core.v1.PodSpec", "imagePullSecrets", Map(&["name"]), "merge", "name"),
    ("api.core.v1.PodSpec", "initContainers", Map(&["name"]), "merge", "name"),
    ("api.core.v1.PodSpec", "nodeSelector", Object, "", ""),
    ("api.core.v1.PodSpec", "resourceClaims", Map(&["name"]), "merge,retainKeys", "name"),
    ("api.core.v1.PodSpec", "schedulingGates", Map(&["name"]), "merge", "name"),
    ("api.core.v1.PodSpec", "topologySpreadConstraints", Map(&["topologyKey", "whenUnsatisfiable"]), "merge", "topologyKey"),
    ("api.core.v1.PodSpec", "volumes", Map(&["name"]), "merge,retainKeys", "name"),
    ("api.core.v1.PodStatus", "conditions", Map(&["type"]), "merge", "type"),
    ("api.core.v1.PodStatus", "hostIPs", Plain, "merge", "ip"),
    ("api.core.v1.PodStatus", "podIPs", Map(&["ip"]), "merge", "ip"),
    ("api.core.v1.PodStatus", "resourceClaimStatuses", Map(&["name"]), "merge,retainKeys", "name"),
    ("api.core.v1.ReplicationControllerSpec", "selector", Object, "", ""),
    ("api.core.v1.ReplicationControllerStatus", "conditions", Map(&["type"]), "merge", "type"),
    ("api.core.v1.ResourceRequirements", "claims", Map(&["name"]), "", ""),
    ("api.core.v1.ResourceStatus", "resources", Map(&["resourceID"]), "", ""),
    ("api.core.v1.ServiceAccount", "secrets", Map(&["name"]), "merge", "name"),
    ("api.core.v1.ServiceSpec", "ports", Map(&["port", "protocol"]), "merge", "port"),
    ("api.core.v1.ServiceSpec", "selector", Object, "", ""),
    ("api.core.v1.ServiceStatus", "conditions", Map(&["type"]), "merge", "type"),
    ("api.discovery.v1.Endpoint", "addresses", Set, "", ""),
    ("api.policy.v1.PodDisruptionBudgetSpec", "selector", Plain, "replace", ""),
    ("api.policy.v1.PodDisruptionBudgetStatus", "conditions", Map(&["type"]), "merge", "type"),
    ("apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus", "conditions", Map(&["type"]), "", ""),
    ("apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps", "x-kubernetes-validations", Map(&["rule"]), "merge", "rule"),
    ("apimachinery.pkg.apis.meta.v1.ObjectMeta", "finalizers", Set, "merge", ""),
    ("apimachinery.pkg.apis.meta.v1.ObjectMeta", "ownerReferences", Map(&["uid"]), "merge", "uid"),
];

/// Types (below `io.k8s.`) whose objects are replaced as a whole.
#[rustfmt::skip]
pub(super) const ATOMIC: &[&str] = &[
    "api.core.v1.ConfigMapKeySelector",
    "api.core.v1.EndpointAddress",
    "api.core.v1.EndpointPort",
    "api.core.v1.LocalObjectReference",
    "api.core.v1.NodeSelector",
    "api.core.v1.NodeSelectorTerm",
    "api.core.v1.ObjectFieldSelector",
    "api.core.v1.ObjectReference",
    "api.core.v1.ResourceFieldSelector",
    "api.core.v1.SecretKeySelector",
    "api.core.v1.SecretReference",
    "api.core.v1.TypedLocalObjectReference",
    "api.discovery.v1.EndpointPort",
    "api.networking.v1.ServiceBackendPort",
    "api.rbac.v1.RoleRef",
    "api.rbac.v1.Subject",
    "apimachinery.pkg.apis.meta.v1.LabelSelector",
    "apimachinery.pkg.apis.meta.v1.OwnerReference",
];

/// Types (below `io.k8s.`) that hold anything.
pub(super) const OPEN: &[&str] = &[
    "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
    "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
    "apimachinery.pkg.apis.meta.v1.FieldsV1",
    "apimachinery.pkg.runtime.RawExtension",
];

/// Types (below `io.k8s.`) that may do without the name of what they refer to, which `k8s-openapi` always has.
pub(super) const OPTIONAL_NAME: &[&str] = &[
    "api.core.v1.ConfigMapEnvSource",
    "api.core.v1.ConfigMapKeySelector",
    "api.core.v1.ConfigMapProjection",
    "api.core.v1.ConfigMapVolumeSource",
    "api.core.v1.LocalObjectReference",
    "api.core.v1.SecretEnvSource",
    "api.core.v1.SecretKeySelector",
    "api.core.v1.SecretProjection",
];

/// Type (below `io.k8s.`), field, and what it is where it is absent. Only those that tell elements of a list apart.
pub(super) const DEFAULTS: &[(&str, &str, &str)] = &[
    ("api.core.v1.ContainerPort", "protocol", "TCP"),
    ("api.core.v1.ServicePort", "protocol", "TCP"),
];
