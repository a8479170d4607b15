//! What Kubernetes itself writes into built-in objects when they are created: first status, service account,
//! tolerations.

use serde_json::{Map, Value, json};

use super::defaults::{each, set};
use crate::api::object::{array, child, map};

/// The taint of a node that is not ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Seconds that a pod stays on a node that is away.
const TOLERATION_SECONDS: i64 = 300;

/// A new object. Nodes bring their status along; all others start with the first one.
pub(super) fn create(kind: &str, has_status: bool, object: &mut Value) {
    let fields = map(object);
    if has_status && kind != "Node" {
        fields.shift_remove("status");
    }
    match kind {
        "Pod" => {
            let spec = child(fields, "spec");
            admit_pod(spec);
            let class = quality(spec);
            fields.insert("status".into(), json!({"phase": "Pending", "qosClass": class}));
        }
        "Node" => {
            // Admission keeps pods away until a controller has seen the node ready.
            let taints = array(child(fields, "spec"), "taints");
            let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
            if !taints.contains(&taint) {
                taints.push(taint);
            }
        }
        "CustomResourceDefinition" => {
            let versions = fields
                .get("spec")
                .and_then(|spec| spec.get("versions"))
                .and_then(Value::as_array);
            let stored = versions
                .into_iter()
                .flatten()
                .filter(|v| v.get("storage") == Some(&Value::Bool(true)));
            let stored: Vec<Value> = stored.filter_map(|version| version.get("name").cloned()).collect();
            set(child(fields, "status"), "storedVersions", stored);
        }
        "Namespace" => {
            set(child(fields, "spec"), "finalizers", json!(["kubernetes"]));
            set(child(fields, "status"), "phase", "Active");
        }
        _ => {}
    }
}

/// What admission adds to every pod.
fn admit_pod(spec: &mut Map<String, Value>) {
    set(spec, "serviceAccountName", "default");
    let account = spec.get("serviceAccountName").cloned().unwrap_or_default();
    spec.insert("serviceAccount".into(), account);
    let priority = match spec.get("priorityClassName").and_then(Value::as_str) {
        Some("system-node-critical") => 2_000_001_000,
        Some("system-cluster-critical") => 2_000_000_000,
        _ => 0,
    };
    set(spec, "priority", priority);
    set(spec, "preemptionPolicy", "PreemptLowerPriority");
    tolerate(spec);
}

/// Pods stay for a while on a node that is away, unless they say otherwise. So it is with each write of a pod.
pub(super) fn tolerate(spec: &mut Map<String, Value>) {
    for key in [NOT_READY, "node.kubernetes.io/unreachable"] {
        let tolerations = array(spec, "tolerations");
        let tolerated = tolerations.iter().any(|toleration| {
            let is = |field: &str, values: &[&str]| {
                let text = toleration.get(field).and_then(Value::as_str).unwrap_or_default();
                values.contains(&text)
            };
            is("key", &[key, ""]) && is("effect", &["NoExecute", ""])
        });
        if !tolerated {
            tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS}));
        }
    }
}

/// The quality of service that the resources of the containers amount to.
fn quality(spec: &mut Map<String, Value>) -> &'static str {
    let (mut any, mut guaranteed) = (false, true);
    for list in ["containers", "initContainers"] {
        for container in each(spec, list) {
            let resources = container.get("resources").cloned().unwrap_or_default();
            for name in ["cpu", "memory"] {
                let amount = |field: &str| {
                    resources
                        .get(field)
                        .and_then(|amounts| amounts.get(name))
                        .filter(|amount| *amount != "0")
                        .cloned()
                };
                let (limit, request) = (amount("limits"), amount("requests"));
                any |= limit.is_some() || request.is_some();
                guaranteed &= limit.is_some() && (request.is_none() || request == limit);
            }
        }
    }
    match (any, guaranteed) {
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
        _ => "BestEffort",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_start_pending_and_tolerate_for_a_while() {
        let mut pod = json!({"spec": {"containers": [{"name": "a"}], "tolerations": [{"operator": "Exists"}]},
            "status": {"phase": "Running"}});
        create("Pod", true, &mut pod);
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        assert_eq!(pod["spec"]["serviceAccount"], "default");
        assert_eq!(
            pod["spec"]["tolerations"].as_array().unwrap().len(),
            1,
            "everything is tolerated already"
        );
        let mut pod = json!({"spec": {}});
        create("Pod", true, &mut pod);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn quality_follows_from_resources() {
        for (resources, class) in [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
            (
                json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}),
                "Burstable",
            ),
        ] {
            let mut spec = json!({"containers": [{"resources": resources}]});
            assert_eq!(quality(spec.as_object_mut().unwrap()), class, "{resources}");
        }
    }
}
