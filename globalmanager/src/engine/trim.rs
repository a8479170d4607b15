//! What is kept of a watched object: all that decisions read, and nothing else.

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::core::{DynamicObject, PartialObjectMeta};
use serde_json::{Map, Value, json};
use skerry_crds::names;
use skerry_workloads::ObjectKind;

/// Where the controller of Deployments counts their revisions.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// The object as it is kept.
pub(crate) fn trim(kind: ObjectKind, mut object: DynamicObject) -> Value {
    if !names_owners(kind) {
        object.metadata.managed_fields = None;
    }
    if kind == ObjectKind::DEPLOYMENT {
        trim_revision(&mut object.metadata);
    }
    let metadata = serde_json::to_value(&object.metadata).unwrap_or_default();
    let mut kept = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata});
    trim_managed_fields(&mut kept);
    if let (Some(kept), Value::Object(data)) = (kept.as_object_mut(), object.data) {
        if kind == ObjectKind::POD {
            kept.extend(trim_pod(data));
        } else {
            kept.extend(data);
        }
    }
    kept
}

/// An object of which only the metadata was asked for.
pub(crate) fn metadata_only(kind: ObjectKind, mut object: PartialObjectMeta<Secret>) -> Value {
    object.metadata.managed_fields = None;
    json!({"apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": serde_json::to_value(&object.metadata).unwrap_or_default()})
}

/// A Deployment's revision is written onto it by its controller, so that it would seem to have changed in more than its status.
fn trim_revision(metadata: &mut ObjectMeta) {
    let annotations = metadata.annotations.as_mut();
    if annotations.is_some_and(|annotations| annotations.remove(REVISION).is_some() && annotations.is_empty()) {
        metadata.annotations = None;
    }
}

/// Whether it matters who owns the fields of an object of this kind.
fn names_owners(kind: ObjectKind) -> bool {
    matches!(kind, ObjectKind::DEPLOYMENT | ObjectKind::AUTOSCALER)
}

/// Of the field owners only these matter: whose `spec.replicas` are, because an autoscaler may have taken over, and
/// whether we have ever declared a spec or a template.
fn trim_managed_fields(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(Value::Array(entries)) = metadata.remove("managedFields") else {
        return;
    };
    let owners: Vec<Value> = entries.iter().filter_map(owner).collect();
    if !owners.is_empty() {
        metadata.insert("managedFields".into(), owners.into());
    }
}

fn owner(entry: &Value) -> Option<Value> {
    let spec = entry.pointer("/fieldsV1/f:spec")?;
    let fields = ["f:replicas", "f:template"]
        .into_iter()
        .filter(|field| spec.get(field).is_some());
    let fields: Map<_, _> = fields.map(|field| (field.to_owned(), json!({}))).collect();
    let manager = entry.get("manager")?;
    let counts = manager == names::MANAGER || fields.contains_key("f:replicas");
    counts.then(|| json!({"manager": manager, "fieldsV1": {"f:spec": fields}}))
}

/// A Pod's spec can be had from its owner; where it runs and how it fares cannot.
fn trim_pod(mut data: Map<String, Value>) -> Map<String, Value> {
    let spec = data.remove("spec").unwrap_or_default();
    let kept = ["nodeName", "restartPolicy", "hostNetwork"]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), spec.get(key)?.clone())))
        .chain(trim_containers(&spec));
    let mut status = data.remove("status").unwrap_or_default();
    for statuses in ["containerStatuses", "initContainerStatuses"] {
        for status in status
            .get_mut(statuses)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(status) = status.as_object_mut() {
                status.retain(|key, _| {
                    matches!(
                        key.as_str(),
                        "name" | "state" | "lastState" | "ready" | "restartCount" | "image"
                    )
                });
            }
        }
    }
    if let Some(status) = status.as_object_mut() {
        status.retain(|key, _| {
            matches!(
                key.as_str(),
                "phase"
                    | "reason"
                    | "message"
                    | "conditions"
                    | "containerStatuses"
                    | "initContainerStatuses"
                    | "hostIP"
                    | "podIP"
                    | "startTime"
            )
        });
    }
    [
        ("spec".to_owned(), Value::Object(kept.collect())),
        ("status".to_owned(), status),
    ]
    .into_iter()
    .collect()
}

/// Which worker it is: what a pod that Sedna made says nowhere but in its environment.
fn trim_containers(spec: &Value) -> Option<(String, Value)> {
    let names = [names::env::DATASET_NAME, names::env::WORKER_NAME];
    let vars = spec.pointer("/containers/0/env")?.as_array()?;
    let vars = vars.iter().filter(|var| {
        var.get("name")
            .and_then(Value::as_str)
            .is_some_and(|name| names.contains(&name))
    });
    let vars: Vec<_> = vars.cloned().collect();
    (!vars.is_empty()).then(|| ("containers".to_owned(), json!([{"env": vars}])))
}

/// Whether a child-like object can belong to a resource of ours: it has a controller owner of one of our groups, or a
/// label that names such a resource.
pub(crate) fn concerns_us(object: &Value) -> bool {
    let owners = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let owned = owners
        .filter_map(|owner| owner.get("apiVersion")?.as_str())
        .any(|version| version.starts_with("sedna.io/"));
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    owned || labels.is_some_and(|labels| labels.keys().any(|key| key.ends_with(".sedna.io/name")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dynamic(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_deployment_keeps_its_spec_and_whose_its_replicas_and_its_template_are() {
        let kept = trim(
            ObjectKind::DEPLOYMENT,
            dynamic(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "annotations": {"deployment.kubernetes.io/revision": "1"}, "managedFields": [
                {"manager": "skerry-globalmanager", "fieldsV1": {"f:spec": {"f:template": {"f:spec": {}}}}},
                {"manager": "sedna-gm", "fieldsV1": {"f:spec": {"f:template": {"f:spec": {}}}}},
                {"manager": "kube-controller-manager", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]},
            "spec": {"replicas": 3}, "status": {"replicas": 3}})),
        );
        assert_eq!(
            kept,
            json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "managedFields": [
                {"manager": "skerry-globalmanager", "fieldsV1": {"f:spec": {"f:template": {}}}},
                {"manager": "kube-controller-manager", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]},
            "spec": {"replicas": 3}, "status": {"replicas": 3}})
        );
    }

    #[test]
    fn a_pod_keeps_where_it_runs_which_worker_it_is_and_how_it_fares() {
        let kept = trim(
            ObjectKind::POD,
            dynamic(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"nodeName": "edge-1", "containers": [{"name": "c", "env": [{"name": "SECRET", "value": "x"},
                {"name": "WORKER_NAME", "value": "w"}]}]},
            "status": {"phase": "Failed", "qosClass": "BestEffort",
                "containerStatuses": [{"name": "c", "containerID": "containerd://1", "restartCount": 2}]}})),
        );
        assert_eq!(
            kept,
            json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "edge-1",
                "containers": [{"env": [{"name": "WORKER_NAME", "value": "w"}]}]},
            "status": {"phase": "Failed", "containerStatuses": [{"name": "c", "restartCount": 2}]}})
        );
    }
}
