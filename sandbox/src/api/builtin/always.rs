//! Fields that a built-in object has whether they were set or not: Kubernetes keeps typed objects, and writes what is no
//! pointer and not marked as optional even where it is empty.

use std::{collections::HashMap, sync::LazyLock};

use serde_json::{Value, json};

use crate::schema::Schema;

/// What an empty field is written as.
#[derive(Clone, Copy)]
enum Empty {
    False,
    Null,
    Object,
    Text,
    Zero,
}

use Empty::{False, Null, Object, Text, Zero};

impl Empty {
    fn value(self) -> Value {
        match self {
            False => Value::Bool(false),
            Null => Value::Null,
            Object => json!({}),
            Text => "".into(),
            Zero => json!(0),
        }
    }
}

type Fields = &'static [(&'static str, Empty)];

/// Type, and its fields that are always there.
#[rustfmt::skip]
const TYPES: &[(&str, Fields)] = &[
    ("apiextensions.v1.CustomResourceDefinition", &[("spec", Object), ("status", Object)]),
    ("apiextensions.v1.CustomResourceDefinitionCondition", &[("type", Text), ("status", Text), ("lastTransitionTime", Null)]),
    ("apiextensions.v1.CustomResourceDefinitionNames", &[("plural", Text), ("kind", Text)]),
    ("apiextensions.v1.CustomResourceDefinitionSpec", &[("group", Text), ("names", Object), ("scope", Text), ("versions", Null)]),
    ("apiextensions.v1.CustomResourceDefinitionStatus", &[("conditions", Null), ("acceptedNames", Object), ("storedVersions", Null)]),
    ("apiextensions.v1.CustomResourceDefinitionVersion", &[("name", Text), ("served", False), ("storage", False)]),
    ("apps.v1.DaemonSet", &[("spec", Object), ("status", Object)]),
    ("apps.v1.DaemonSetCondition", &[("type", Text), ("status", Text), ("lastTransitionTime", Null)]),
    ("apps.v1.DaemonSetSpec", &[("template", Object), ("updateStrategy", Object)]),
    ("apps.v1.DaemonSetStatus", &[("currentNumberScheduled", Zero), ("numberMisscheduled", Zero), ("desiredNumberScheduled", Zero), ("numberReady", Zero)]),
    ("apps.v1.Deployment", &[("spec", Object), ("status", Object)]),
    ("apps.v1.DeploymentCondition", &[("type", Text), ("status", Text), ("lastUpdateTime", Null), ("lastTransitionTime", Null)]),
    ("apps.v1.DeploymentSpec", &[("template", Object), ("strategy", Object)]),
    ("apps.v1.ReplicaSet", &[("spec", Object), ("status", Object)]),
    ("apps.v1.ReplicaSetCondition", &[("type", Text), ("status", Text), ("lastTransitionTime", Null)]),
    ("apps.v1.ReplicaSetSpec", &[("template", Object)]),
    ("apps.v1.ReplicaSetStatus", &[("replicas", Zero)]),
    ("apps.v1.StatefulSet", &[("spec", Object), ("status", Object)]),
    ("apps.v1.StatefulSetCondition", &[("type", Text), ("status", Text), ("lastTransitionTime", Null)]),
    ("apps.v1.StatefulSetSpec", &[("template", Object), ("serviceName", Text), ("updateStrategy", Object)]),
    ("apps.v1.StatefulSetStatus", &[("replicas", Zero), ("availableReplicas", Zero)]),
    ("authorization.v1.SelfSubjectAccessReview", &[("spec", Object), ("status", Object)]),
    ("autoscaling.v2.ContainerResourceMetricSource", &[("name", Text), ("target", Object), ("container", Text)]),
    ("autoscaling.v2.ContainerResourceMetricStatus", &[("name", Text), ("current", Object), ("container", Text)]),
    ("autoscaling.v2.CrossVersionObjectReference", &[("kind", Text), ("name", Text)]),
    ("autoscaling.v2.ExternalMetricSource", &[("metric", Object), ("target", Object)]),
    ("autoscaling.v2.ExternalMetricStatus", &[("metric", Object), ("current", Object)]),
    ("autoscaling.v2.HPAScalingPolicy", &[("type", Text), ("value", Zero), ("periodSeconds", Zero)]),
    ("autoscaling.v2.HorizontalPodAutoscaler", &[("spec", Object), ("status", Object)]),
    ("autoscaling.v2.HorizontalPodAutoscalerCondition", &[("type", Text), ("status", Text), ("lastTransitionTime", Null)]),
    ("autoscaling.v2.HorizontalPodAutoscalerSpec", &[("scaleTargetRef", Object), ("maxReplicas", Zero)]),
    ("autoscaling.v2.HorizontalPodAutoscalerStatus", &[("desiredReplicas", Zero), ("currentMetrics", Null)]),
    ("autoscaling.v2.MetricIdentifier", &[("name", Text)]),
    ("autoscaling.v2.MetricSpec", &[("type", Text)]),
    ("autoscaling.v2.MetricStatus", &[("type", Text)]),
    ("autoscaling.v2.MetricTarget", &[("type", Text)]),
    ("autoscaling.v2.ObjectMetricSource", &[("describedObject", Object), ("target", Object), ("metric", Object)]),
    ("autoscaling.v2.ObjectMetricStatus", &[("metric", Object), ("current", Object), ("describedObject", Object)]),
    ("autoscaling.v2.PodsMetricSource", &[("metric", Object), ("target", Object)]),
    ("autoscaling.v2.PodsMetricStatus", &[("metric", Object), ("current", Object)]),
    ("autoscaling.v2.ResourceMetricSource", &[("name", Text), ("target", Object)]),
    ("autoscaling.v2.ResourceMetricStatus", &[("name", Text), ("current", Object)]),
    ("batch.v1.Job", &[("spec", Object), ("status", Object)]),
    ("batch.v1.JobCondition", &[("type", Text), ("status", Text), ("lastProbeTime", Null), ("lastTransitionTime", Null)]),
    ("batch.v1.JobSpec", &[("template", Object)]),
    ("batch.v1.PodFailurePolicy", &[("rules", Null)]),
    ("batch.v1.PodFailurePolicyOnExitCodesRequirement", &[("operator", Text), ("values", Null)]),
    ("batch.v1.PodFailurePolicyOnPodConditionsPattern", &[("type", Text), ("status", Text)]),
    ("batch.v1.PodFailurePolicyRule", &[("action", Text)]),
    ("batch.v1.SuccessPolicy", &[("rules", Null)]),
    ("coordination.v1.Lease", &[("spec", Object)]),
    ("core.v1.ConfigMapKeySelector", &[("key", Text)]),
    ("core.v1.Container", &[("name", Text), ("resources", Object)]),
    ("core.v1.ContainerPort", &[("containerPort", Zero)]),
    ("core.v1.ContainerStateRunning", &[("startedAt", Null)]),
    ("core.v1.ContainerStateTerminated", &[("exitCode", Zero), ("startedAt", Null), ("finishedAt", Null)]),
    ("core.v1.ContainerStatus", &[("name", Text), ("state", Object), ("lastState", Object), ("ready", False), ("restartCount", Zero), ("image", Text), ("imageID", Text)]),
    ("core.v1.DaemonEndpoint", &[("Port", Zero)]),
    ("core.v1.DownwardAPIVolumeFile", &[("path", Text)]),
    ("core.v1.EndpointAddress", &[("ip", Text)]),
    ("core.v1.EndpointPort", &[("port", Zero)]),
    ("core.v1.EnvVar", &[("name", Text)]),
    ("core.v1.Event", &[("involvedObject", Object), ("source", Object), ("firstTimestamp", Null), ("lastTimestamp", Null), ("eventTime", Null), ("reportingComponent", Text), ("reportingInstance", Text)]),
    ("core.v1.EventSeries", &[("lastObservedTime", Null)]),
    ("core.v1.GRPCAction", &[("port", Zero)]),
    ("core.v1.HTTPHeader", &[("name", Text), ("value", Text)]),
    ("core.v1.HostIP", &[("ip", Text)]),
    ("core.v1.HostPathVolumeSource", &[("path", Text)]),
    ("core.v1.KeyToPath", &[("key", Text), ("path", Text)]),
    ("core.v1.Namespace", &[("spec", Object), ("status", Object)]),
    ("core.v1.NamespaceCondition", &[("type", Text), ("status", Text), ("lastTransitionTime", Null)]),
    ("core.v1.Node", &[("spec", Object), ("status", Object)]),
    ("core.v1.NodeAddress", &[("type", Text), ("address", Text)]),
    ("core.v1.NodeCondition", &[("type", Text), ("status", Text), ("lastHeartbeatTime", Null), ("lastTransitionTime", Null)]),
    ("core.v1.NodeDaemonEndpoints", &[("kubeletEndpoint", Object)]),
    ("core.v1.NodeSelector", &[("nodeSelectorTerms", Null)]),
    ("core.v1.NodeSelectorRequirement", &[("key", Text), ("operator", Text)]),
    ("core.v1.NodeStatus", &[("daemonEndpoints", Object), ("nodeInfo", Object)]),
    ("core.v1.NodeSystemInfo", &[("machineID", Text), ("systemUUID", Text), ("bootID", Text), ("kernelVersion", Text), ("osImage", Text), ("containerRuntimeVersion", Text), ("kubeletVersion", Text), ("kubeProxyVersion", Text), ("operatingSystem", Text), ("architecture", Text)]),
    ("core.v1.ObjectFieldSelector", &[("fieldPath", Text)]),
    ("core.v1.Pod", &[("spec", Object), ("status", Object)]),
    ("core.v1.PodCondition", &[("type", Text), ("status", Text), ("lastProbeTime", Null), ("lastTransitionTime", Null)]),
    ("core.v1.PodIP", &[("ip", Text)]),
    ("core.v1.PodReadinessGate", &[("conditionType", Text)]),
    ("core.v1.PodSpec", &[("containers", Null)]),
    ("core.v1.PodTemplateSpec", &[("metadata", Object), ("spec", Object)]),
    ("core.v1.ProjectedVolumeSource", &[("sources", Null)]),
    ("core.v1.ResourceFieldSelector", &[("resource", Text)]),
    ("core.v1.SecretKeySelector", &[("key", Text)]),
    ("core.v1.Service", &[("spec", Object), ("status", Object)]),
    ("core.v1.ServiceAccountTokenProjection", &[("path", Text)]),
    ("core.v1.ServicePort", &[("port", Zero)]),
    ("core.v1.ServiceStatus", &[("loadBalancer", Object)]),
    ("core.v1.Taint", &[("key", Text), ("effect", Text)]),
    ("core.v1.TypedLocalObjectReference", &[("kind", Text), ("name", Text)]),
    ("core.v1.TypedObjectReference", &[("kind", Text), ("name", Text)]),
    ("core.v1.Volume", &[("name", Text)]),
    ("core.v1.VolumeMount", &[("name", Text), ("mountPath", Text)]),
    ("core.v1.VolumeMountStatus", &[("name", Text), ("mountPath", Text)]),
    ("discovery.v1.Endpoint", &[("addresses", Null), ("conditions", Object)]),
    ("discovery.v1.EndpointSlice", &[("addressType", Text), ("endpoints", Null), ("ports", Null)]),
    ("discovery.v1.ForZone", &[("name", Text)]),
    ("events.v1.Event", &[("eventTime", Null), ("regarding", Object), ("deprecatedSource", Object), ("deprecatedFirstTimestamp", Null), ("deprecatedLastTimestamp", Null)]),
    ("events.v1.EventSeries", &[("count", Zero), ("lastObservedTime", Null)]),
    ("meta.v1.Condition", &[("type", Text), ("status", Text), ("lastTransitionTime", Null), ("reason", Text), ("message", Text)]),
    ("meta.v1.LabelSelectorRequirement", &[("key", Text), ("operator", Text)]),
    ("meta.v1.OwnerReference", &[("apiVersion", Text), ("kind", Text), ("name", Text), ("uid", Text)]),
    ("networking.v1.IPBlock", &[("cidr", Text)]),
    ("networking.v1.NetworkPolicy", &[("spec", Object)]),
    ("networking.v1.NetworkPolicySpec", &[("podSelector", Object)]),
    ("policy.v1.PodDisruptionBudget", &[("spec", Object), ("status", Object)]),
    ("policy.v1.PodDisruptionBudgetStatus", &[("disruptionsAllowed", Zero), ("currentHealthy", Zero), ("desiredHealthy", Zero), ("expectedPods", Zero)]),
    ("rbac.v1.ClusterRole", &[("rules", Null)]),
    ("rbac.v1.ClusterRoleBinding", &[("roleRef", Object)]),
    ("rbac.v1.PolicyRule", &[("verbs", Null)]),
    ("rbac.v1.Role", &[("rules", Null)]),
    ("rbac.v1.RoleBinding", &[("roleRef", Object)]),
    ("rbac.v1.RoleRef", &[("apiGroup", Text), ("kind", Text), ("name", Text)]),
    ("rbac.v1.Subject", &[("kind", Text), ("name", Text)]),
];

static BY_TYPE: LazyLock<HashMap<&str, Fields>> = LazyLock::new(|| TYPES.iter().copied().collect());

/// Adds the fields that are not there.
pub(in crate::api) fn fill(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            let always = schema.type_path().and_then(|path| BY_TYPE.get(path));
            for (field, empty) in always.into_iter().copied().flatten() {
                if !map.contains_key(*field) {
                    map.insert((*field).to_owned(), empty.value());
                }
            }
            for (name, value) in map.iter_mut() {
                if let Some(below) = schema.field(name) {
                    fill(below, value);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.items() {
                for item in list {
                    fill(items, item);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;

    #[test]
    fn empty_objects_have_their_shape() {
        for (kind, shape) in [
            (
                ("apps", "v1", "Deployment"),
                json!({"spec": {"strategy": {}, "template": {"metadata": {},
                "spec": {"containers": null}}}, "status": {}}),
            ),
            (
                ("", "v1", "Service"),
                json!({"spec": {}, "status": {"loadBalancer": {}}}),
            ),
            (("", "v1", "ConfigMap"), json!({})),
            (
                ("discovery.k8s.io", "v1", "EndpointSlice"),
                json!({"addressType": "", "endpoints": null, "ports": null}),
            ),
        ] {
            let mut object = json!({});
            fill(builtin(kind.0, kind.1, kind.2).unwrap(), &mut object);
            assert_eq!(object, shape, "{kind:?}");
        }
    }

    #[test]
    fn every_type_of_the_table_exists() {
        let known: Vec<&str> = crate::schema::component_schemas().keys().map(String::as_str).collect();
        for (path, _) in TYPES {
            assert!(known.iter().any(|name| name.ends_with(&format!(".{path}"))), "{path}");
        }
    }
}
