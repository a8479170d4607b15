//! The built-in resources: a table. Discovery, `OpenAPI` and tables are made from it.

use super::resource::{Resource, STORED, Subresource, owned};

/// Group, version, kind, plural, short names, categories, namespaced, subresources, verbs.
struct Row(
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    bool,
    &'static [Sub],
    &'static [&'static str],
);

/// Name, group, version, kind, verbs; an empty kind is that of the resource.
type Sub = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

const CHANGE: &[&str] = &["get", "patch", "update"];
const STATUS: Sub = ("status", "", "", "", CHANGE);
const SCALE: Sub = ("scale", "autoscaling", "v1", "Scale", CHANGE);
const CREATE: &[&str] = &["create"];
/// What is streamed over, in either direction.
const CONNECT: &[&str] = &["create", "get"];
const NONE: &[&str] = &[];
const ALL: &[&str] = &["all"];
const EXTENSIONS: &[&str] = &["api-extensions"];
/// A namespace is deleted one at a time.
const NAMESPACES: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row("", "v1", "ConfigMap", "configmaps", &["cm"], NONE, true, &[], STORED),
    Row("", "v1", "Endpoints", "endpoints", &["ep"], NONE, true, &[], STORED),
    Row("", "v1", "Event", "events", &["ev"], NONE, true, &[], STORED),
    Row("", "v1", "Namespace", "namespaces", &["ns"], NONE, false, &[("finalize", "", "", "", &["update"]), STATUS], NAMESPACES),
    Row("", "v1", "Node", "nodes", &["no"], NONE, false, &[STATUS], STORED),
    Row("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"], NONE, true, &[STATUS], STORED),
    Row("", "v1", "PersistentVolume", "persistentvolumes", &["pv"], NONE, false, &[STATUS], STORED),
    Row("", "v1", "Pod", "pods", &["po"], ALL, true, &[
        ("attach", "", "v1", "PodAttachOptions", CONNECT),
        ("binding", "", "v1", "Binding", CREATE),
        ("eviction", "policy", "v1", "Eviction", CREATE),
        ("exec", "", "v1", "PodExecOptions", CONNECT),
        ("log", "", "", "", &["get"]),
        ("portforward", "", "v1", "PodPortForwardOptions", CONNECT),
        STATUS,
    ], STORED),
    Row("", "v1", "ReplicationController", "replicationcontrollers", &["rc"], ALL, true, &[SCALE, STATUS], STORED),
    Row("", "v1", "Secret", "secrets", &[], NONE, true, &[], STORED),
    Row("", "v1", "ServiceAccount", "serviceaccounts", &["sa"], NONE, true, &[], STORED),
    Row("", "v1", "Service", "services", &["svc"], ALL, true, &[STATUS], STORED),
    Row("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", &[], EXTENSIONS, false, &[], STORED),
    Row("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", &[], EXTENSIONS, false, &[], STORED),
    Row("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", &["crd", "crds"], EXTENSIONS, false, &[STATUS], STORED),
    Row("apps", "v1", "ControllerRevision", "controllerrevisions", &[], NONE, true, &[], STORED),
    Row("apps", "v1", "DaemonSet", "daemonsets", &["ds"], ALL, true, &[STATUS], STORED),
    Row("apps", "v1", "Deployment", "deployments", &["deploy"], ALL, true, &[SCALE, STATUS], STORED),
    Row("apps", "v1", "ReplicaSet", "replicasets", &["rs"], ALL, true, &[SCALE, STATUS], STORED),
    Row("apps", "v1", "StatefulSet", "statefulsets", &["sts"], ALL, true, &[SCALE, STATUS], STORED),
    Row("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", &[], NONE, false, &[], CREATE),
    Row("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", &["hpa"], ALL, true, &[STATUS], STORED),
    Row("batch", "v1", "CronJob", "cronjobs", &["cj"], ALL, true, &[STATUS], STORED),
    Row("batch", "v1", "Job", "jobs", &[], ALL, true, &[STATUS], STORED),
    Row("coordination.k8s.io", "v1", "Lease", "leases", &[], NONE, true, &[], STORED),
    Row("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", &[], NONE, true, &[], STORED),
    Row("events.k8s.io", "v1", "Event", "events", &["ev"], NONE, true, &[], STORED),
    Row("networking.k8s.io", "v1", "Ingress", "ingresses", &["ing"], NONE, true, &[STATUS], STORED),
    Row("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", &["netpol"], NONE, true, &[], STORED),
    Row("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"], NONE, true, &[STATUS], STORED),
    Row("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", &[], NONE, false, &[], STORED),
    Row("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", &[], NONE, false, &[], STORED),
    Row("rbac.authorization.k8s.io", "v1", "Role", "roles", &[], NONE, true, &[], STORED),
    Row("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", &[], NONE, true, &[], STORED),
    Row("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", &["pc"], NONE, false, &[], STORED),
];

/// Every built-in resource that can be served, sorted by group, then by plural.
pub fn builtin_resources() -> Vec<Resource> {
    ROWS.iter().map(resource).collect()
}

fn resource(row: &Row) -> Resource {
    let Row(group, version, kind, plural, short, categories, namespaced, subs, verbs) = row;
    let or = |s: &str, default: &str| if s.is_empty() { default.to_owned() } else { s.to_owned() };
    let sub = |(name, sub_group, sub_version, sub_kind, verbs): &Sub| {
        let own = sub_kind.is_empty();
        Subresource {
            name: (*name).to_owned(),
            group: if own {
                (*group).to_owned()
            } else {
                (*sub_group).to_owned()
            },
            version: or(sub_version, version),
            kind: or(sub_kind, kind),
            verbs: owned(verbs),
        }
    };
    Resource {
        group: (*group).to_owned(),
        version: (*version).to_owned(),
        kind: (*kind).to_owned(),
        plural: (*plural).to_owned(),
        singular: kind.to_lowercase(),
        list_kind: if verbs.contains(&"list") {
            format!("{kind}List")
        } else {
            String::new()
        },
        short_names: owned(short),
        categories: owned(categories),
        namespaced: *namespaced,
        verbs: owned(verbs),
        subresources: subs.iter().map(sub).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_names_each_resource_once() {
        let keys: Vec<_> = ROWS.iter().map(|r| (r.0, r.3)).collect();
        assert!(keys.is_sorted_by_key(|k| k.0), "sorted by group");
        let mut unique = keys.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), keys.len());
    }

    #[test]
    fn a_subresource_answers_its_own_kind() {
        let all = builtin_resources();
        let deployments = all.iter().find(|r| r.plural == "deployments").unwrap();
        let [scale, status] = deployments.subresources.as_slice() else {
            panic!("{deployments:?}")
        };
        assert_eq!((scale.kind.as_str(), scale.group.as_str()), ("Scale", "autoscaling"));
        assert_eq!((status.kind.as_str(), status.group.as_str()), ("Deployment", "apps"));
    }
}
