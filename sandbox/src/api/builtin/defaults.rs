//! The defaults of built-in kinds other than pods.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::pod;
use crate::{
    api::object::{child, map, meta, metadata},
    schema::default_definition,
};

/// Sets a field that is not set, or is empty text.
pub(super) fn set(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    if map.get(field).is_none_or(|present| present.is_null() || present == "") {
        map.insert(field.into(), value.into());
    }
}

/// The objects of a list.
pub(super) fn each<'a>(
    map: &'a mut Map<String, Value>,
    list: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(list)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

/// Fills in what a client may leave out of an object of a kind.
pub(super) fn apply(kind: &str, object: &mut Value) {
    match kind {
        "Pod" => {
            pod::pod(map(object));
            addresses(object);
        }
        "Deployment" => deployment(child(map(object), "spec")),
        "ReplicaSet" => {
            let spec = child(map(object), "spec");
            set(spec, "replicas", 1);
            template(spec);
        }
        "DaemonSet" => daemon_set(child(map(object), "spec")),
        "StatefulSet" => stateful_set(child(map(object), "spec")),
        "Job" => template(child(map(object), "spec")),
        "Service" => {
            service(child(map(object), "spec"));
            let balancer = object
                .pointer_mut("/status/loadBalancer")
                .and_then(Value::as_object_mut);
            for ingress in balancer.into_iter().flat_map(|balancer| each(balancer, "ingress")) {
                if ingress.contains_key("ip") {
                    set(ingress, "ipMode", "VIP");
                }
            }
        }
        "HorizontalPodAutoscaler" => autoscaler(child(map(object), "spec")),
        "Namespace" => label_namespace(object),
        "Node" => {
            let spec = child(map(object), "spec");
            if let (Some(one), None) = (spec.get("podCIDR").cloned(), spec.get("podCIDRs")) {
                spec.insert("podCIDRs".into(), json!([one]));
            }
            node(child(map(object), "status"));
        }
        "Secret" => secret(map(object)),
        "Endpoints" => {
            for subset in each(map(object), "subsets") {
                each(subset, "ports").for_each(|port| set(port, "protocol", "TCP"));
            }
        }
        "EndpointSlice" => {
            for port in each(map(object), "ports") {
                if !port.contains_key("name") {
                    port.insert("name".into(), "".into());
                }
                set(port, "protocol", "TCP");
            }
        }
        "RoleBinding" | "ClusterRoleBinding" => binding(map(object)),
        "CustomResourceDefinition" => default_definition(object),
        _ => {}
    }
}

fn template(spec: &mut Map<String, Value>) {
    if spec.get("template").is_some_and(Value::is_object) {
        pod::spec(child(child(spec, "template"), "spec"));
    }
}

fn deployment(spec: &mut Map<String, Value>) {
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
    let strategy = child(spec, "strategy");
    set(strategy, "type", "RollingUpdate");
    if strategy.get("type").is_some_and(|kind| kind == "RollingUpdate") {
        let rolling = child(strategy, "rollingUpdate");
        set(rolling, "maxUnavailable", "25%");
        set(rolling, "maxSurge", "25%");
    }
    template(spec);
}

fn daemon_set(spec: &mut Map<String, Value>) {
    set(spec, "revisionHistoryLimit", 10);
    let strategy = child(spec, "updateStrategy");
    set(strategy, "type", "RollingUpdate");
    if strategy.get("type").is_some_and(|kind| kind == "RollingUpdate") {
        let rolling = child(strategy, "rollingUpdate");
        set(rolling, "maxUnavailable", 1);
        set(rolling, "maxSurge", 0);
    }
    template(spec);
}

fn stateful_set(spec: &mut Map<String, Value>) {
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "podManagementPolicy", "OrderedReady");
    let strategy = child(spec, "updateStrategy");
    if strategy.get("type").is_none_or(|kind| kind == "") {
        strategy.insert("type".into(), "RollingUpdate".into());
        child(strategy, "rollingUpdate");
    }
    if strategy.contains_key("rollingUpdate") {
        set(child(strategy, "rollingUpdate"), "partition", 0);
    }
    let retention = child(spec, "persistentVolumeClaimRetentionPolicy");
    set(retention, "whenDeleted", "Retain");
    set(retention, "whenScaled", "Retain");
    template(spec);
}

fn service(spec: &mut Map<String, Value>) {
    set(spec, "sessionAffinity", "None");
    if spec
        .get("sessionAffinity")
        .is_some_and(|affinity| affinity == "ClientIP")
    {
        set(
            child(child(spec, "sessionAffinityConfig"), "clientIP"),
            "timeoutSeconds",
            10800,
        );
    } else {
        spec.shift_remove("sessionAffinityConfig");
    }
    set(spec, "type", "ClusterIP");
    for port in each(spec, "ports") {
        set(port, "protocol", "TCP");
        let target = port.get("port").cloned().unwrap_or_default();
        if port.get("targetPort").is_none_or(|port| port == 0 || port == "") {
            port.insert("targetPort".into(), target);
        }
    }
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let external = matches!(kind.as_str(), "NodePort" | "LoadBalancer");
    if external {
        set(spec, "externalTrafficPolicy", "Cluster");
    }
    if external || kind == "ClusterIP" {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
    }
}

fn autoscaler(spec: &mut Map<String, Value>) {
    set(spec, "minReplicas", 1);
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let metric = json!({"type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
        spec.insert("metrics".into(), json!([metric]));
    }
    if spec.get("behavior").is_some_and(Value::is_object) {
        let behavior = child(spec, "behavior");
        let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
        let up = child(behavior, "scaleUp");
        set(up, "stabilizationWindowSeconds", 0);
        set(up, "selectPolicy", "Max");
        set(up, "policies", json!([policy("Pods", 4), policy("Percent", 100)]));
        let down = child(behavior, "scaleDown");
        set(down, "selectPolicy", "Max");
        set(down, "policies", json!([policy("Percent", 100)]));
    }
}

fn node(status: &mut Map<String, Value>) {
    if let Some(capacity) = status.get("capacity").cloned() {
        set(status, "allocatable", capacity);
    }
}

/// A pod's address and the first of its addresses are one: what is stored is the list, which an address of another
/// value replaces, and from which one that is not said is read (`Convert_v1_PodStatus_To_core_PodStatus` and back).
fn addresses(pod: &mut Value) {
    let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    let first = status
        .get("podIPs")
        .and_then(|addresses| addresses.pointer("/0/ip"))
        .cloned();
    match (status.get("podIP").cloned().filter(|address| *address != ""), first) {
        (None, Some(first)) => {
            status.insert("podIP".into(), first);
        }
        (Some(address), first) if first.as_ref() != Some(&address) => {
            status.insert("podIPs".into(), json!([{"ip": address}]));
        }
        _ => {}
    }
}

/// The label by which a namespace can be selected by its name.
pub(in crate::api) fn label_namespace(object: &mut Value) {
    let name = meta(object, "name").to_owned();
    if !name.is_empty() {
        child(metadata(object), "labels").insert("kubernetes.io/metadata.name".into(), name.into());
    }
}

/// Text is stored as data.
fn secret(secret: &mut Map<String, Value>) {
    set(secret, "type", "Opaque");
    if let Some(Value::Object(texts)) = secret.shift_remove("stringData") {
        let data = child(secret, "data");
        for (key, text) in texts {
            data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
        }
    }
}

fn binding(binding: &mut Map<String, Value>) {
    set(child(binding, "roleRef"), "apiGroup", "rbac.authorization.k8s.io");
    for subject in each(binding, "subjects") {
        if subject
            .get("kind")
            .is_some_and(|kind| kind == "User" || kind == "Group")
        {
            set(subject, "apiGroup", "rbac.authorization.k8s.io");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_defaults(kind: &str, mut object: Value) -> Value {
        apply(kind, &mut object);
        object
    }

    #[test]
    fn deployments_roll() {
        let object = with_defaults("Deployment", json!({"spec": {"replicas": 0, "template": {}}}));
        assert_eq!(object["spec"]["replicas"], 0);
        assert_eq!(
            object["spec"]["strategy"]["rollingUpdate"],
            json!({"maxUnavailable": "25%", "maxSurge": "25%"})
        );
        assert_eq!(object["spec"]["template"]["spec"]["restartPolicy"], "Always");
        let object = with_defaults("Deployment", json!({"spec": {"strategy": {"type": "Recreate"}}}));
        assert_eq!(object["spec"]["strategy"], json!({"type": "Recreate"}));
    }

    #[test]
    fn services_target_their_own_port() {
        let object = with_defaults(
            "Service",
            json!({"spec": {"ports": [{"port": 80}, {"port": 1, "targetPort": "x"}]}}),
        );
        assert_eq!(
            object["spec"]["ports"],
            json!([{"port": 80, "protocol": "TCP", "targetPort": 80},
                {"port": 1, "targetPort": "x", "protocol": "TCP"}])
        );
        assert_eq!(object["spec"]["internalTrafficPolicy"], "Cluster");
    }

    #[test]
    fn text_of_secrets_becomes_data() {
        let object = with_defaults("Secret", json!({"data": {"a": "MQ=="}, "stringData": {"b": "2"}}));
        assert_eq!(object, json!({"data": {"a": "MQ==", "b": "Mg=="}, "type": "Opaque"}));
    }

    #[test]
    fn autoscalers_scale_by_cpu_and_fill_in_behaviour() {
        let object = with_defaults("HorizontalPodAutoscaler", json!({"spec": {"behavior": {}}}));
        assert_eq!(
            object["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
            80
        );
        assert_eq!(object["spec"]["behavior"]["scaleUp"]["policies"][0]["value"], 4);
    }
}
