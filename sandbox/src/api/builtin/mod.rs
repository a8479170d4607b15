//! The built-in resources: which there are, and their names.

use super::resource::{Generation, Resource, ScalePaths, api_version};

/// A built-in resource in short.
struct Builtin {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    status: bool,
    scale: bool,
    generation: Generation,
}

const BASE: Builtin = Builtin {
    group: "",
    version: "v1",
    plural: "",
    kind: "",
    namespaced: true,
    short: &[],
    categories: &[],
    status: false,
    scale: false,
    generation: Generation::None,
};

const BUILTINS: &[Builtin] = &[
    Builtin {
        plural: "namespaces",
        kind: "Namespace",
        namespaced: false,
        short: &["ns"],
        status: true,
        ..BASE
    },
    Builtin {
        plural: "nodes",
        kind: "Node",
        namespaced: false,
        short: &["no"],
        status: true,
        ..BASE
    },
    Builtin {
        plural: "pods",
        kind: "Pod",
        short: &["po"],
        categories: &["all"],
        status: true,
        generation: Generation::Spec,
        ..BASE
    },
    Builtin {
        plural: "services",
        kind: "Service",
        short: &["svc"],
        categories: &["all"],
        status: true,
        ..BASE
    },
    Builtin {
        plural: "endpoints",
        kind: "Endpoints",
        short: &["ep"],
        ..BASE
    },
    Builtin {
        plural: "secrets",
        kind: "Secret",
        ..BASE
    },
    Builtin {
        plural: "configmaps",
        kind: "ConfigMap",
        short: &["cm"],
        ..BASE
    },
    Builtin {
        plural: "events",
        kind: "Event",
        short: &["ev"],
        ..BASE
    },
    Builtin {
        plural: "serviceaccounts",
        kind: "ServiceAccount",
        short: &["sa"],
        ..BASE
    },
    Builtin {
        group: "events.k8s.io",
        plural: "events",
        kind: "Event",
        short: &["ev"],
        ..BASE
    },
    Builtin {
        group: "apps",
        plural: "deployments",
        kind: "Deployment",
        short: &["deploy"],
        categories: &["all"],
        status: true,
        scale: true,
        generation: Generation::SpecOrAnnotations,
        ..BASE
    },
    Builtin {
        group: "apps",
        plural: "replicasets",
        kind: "ReplicaSet",
        short: &["rs"],
        categories: &["all"],
        status: true,
        scale: true,
        generation: Generation::Spec,
        ..BASE
    },
    Builtin {
        group: "apps",
        plural: "controllerrevisions",
        kind: "ControllerRevision",
        ..BASE
    },
    Builtin {
        group: "apps",
        plural: "daemonsets",
        kind: "DaemonSet",
        short: &["ds"],
        categories: &["all"],
        status: true,
        generation: Generation::Spec,
        ..BASE
    },
    Builtin {
        group: "apps",
        plural: "statefulsets",
        kind: "StatefulSet",
        short: &["sts"],
        categories: &["all"],
        status: true,
        scale: true,
        generation: Generation::Spec,
        ..BASE
    },
    Builtin {
        group: "batch",
        plural: "jobs",
        kind: "Job",
        categories: &["all"],
        status: true,
        generation: Generation::Spec,
        ..BASE
    },
    Builtin {
        group: "autoscaling",
        version: "v2",
        plural: "horizontalpodautoscalers",
        kind: "HorizontalPodAutoscaler",
        short: &["hpa"],
        categories: &["all"],
        status: true,
        ..BASE
    },
    Builtin {
        group: "coordination.k8s.io",
        plural: "leases",
        kind: "Lease",
        ..BASE
    },
    Builtin {
        group: "discovery.k8s.io",
        plural: "endpointslices",
        kind: "EndpointSlice",
        generation: Generation::Content,
        ..BASE
    },
    Builtin {
        group: "policy",
        plural: "poddisruptionbudgets",
        kind: "PodDisruptionBudget",
        short: &["pdb"],
        status: true,
        generation: Generation::Spec,
        ..BASE
    },
    Builtin {
        group: "networking.k8s.io",
        plural: "networkpolicies",
        kind: "NetworkPolicy",
        short: &["netpol"],
        generation: Generation::Spec,
        ..BASE
    },
    Builtin {
        group: "rbac.authorization.k8s.io",
        plural: "roles",
        kind: "Role",
        ..BASE
    },
    Builtin {
        group: "rbac.authorization.k8s.io",
        plural: "rolebindings",
        kind: "RoleBinding",
        ..BASE
    },
    Builtin {
        group: "rbac.authorization.k8s.io",
        plural: "clusterroles",
        kind: "ClusterRole",
        namespaced: false,
        ..BASE
    },
    Builtin {
        group: "rbac.authorization.k8s.io",
        plural: "clusterrolebindings",
        kind: "ClusterRoleBinding",
        namespaced: false,
        ..BASE
    },
    Builtin {
        group: "apiextensions.k8s.io",
        plural: "customresourcedefinitions",
        kind: "CustomResourceDefinition",
        namespaced: false,
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        status: true,
        generation: Generation::Spec,
        ..BASE
    },
];

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

/// All built-in resources.
pub(super) fn resources() -> impl Iterator<Item = Resource> {
    BUILTINS.iter().map(|builtin| {
        // Events are one table, whichever group they are asked through.
        let events = builtin.kind == "Event";
        let storage_group = if events { "" } else { builtin.group };
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Resource {
            group: builtin.group.into(),
            version: builtin.version.into(),
            plural: builtin.plural.into(),
            singular: builtin.kind.to_lowercase(),
            kind: builtin.kind.into(),
            list_kind: format!("{}List", builtin.kind),
            namespaced: builtin.namespaced,
            short_names: owned(builtin.short),
            categories: owned(builtin.categories),
            status: builtin.status,
            scale: builtin.scale.then(|| ScalePaths {
                spec: ".spec.replicas".into(),
                status: ".status.replicas".into(),
                selector: Some(".spec.selector".into()),
            }),
            generation: builtin.generation,
            create_on_update: CREATE_ON_UPDATE.contains(&builtin.kind),
            unconditional_update: !matches!(builtin.kind, "Lease" | "PodDisruptionBudget"),
            returns_deleted: matches!(builtin.kind, "Pod" | "Service" | "Namespace" | "ServiceAccount"),
            custom: false,
            table: format!("{}.{storage_group}", builtin.plural).into(),
            storage_version: api_version(storage_group, builtin.version),
        }
    })
}
