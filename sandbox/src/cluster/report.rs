//! What kubelets write: a pod's status, and its removal once nothing of it runs.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::params::Preconditions;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::meta::{id, uid};

/// Writes a pod's status. The pod as it is then; nothing if it is gone, or another one has its name.
pub(crate) async fn status(client: &Client, pod: &Pod, status: &PodStatus) -> Result<Option<Pod>, kube::Error> {
    let (namespace, name) = id(pod);
    let patch = json!({"metadata": {"uid": uid(pod)}, "status": in_full(status)?});
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    match pods
        .patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch))
        .await
    {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(None),
        other => other.map(Some),
    }
}

/// A status with nulls for the texts that it lacks: a patch that merges would keep old ones otherwise.
fn in_full(status: &PodStatus) -> Result<Value, kube::Error> {
    let mut status = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
    clear(&mut status);
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    conditions.into_iter().flatten().for_each(clear);
    Ok(status)
}

fn clear(part: &mut Value) {
    for field in ["reason", "message"] {
        if let Some(part) = part.as_object_mut() {
            part.entry(field).or_insert(Value::Null);
        }
    }
}

/// Removes a pod that is on its way out.
pub(crate) async fn removal(client: &Client, pod: &Pod) -> Result<(), kube::Error> {
    let (namespace, name) = id(pod);
    let same = Preconditions {
        uid: Some(uid(pod).to_owned()),
        resource_version: None,
    };
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(same),
        ..DeleteParams::default()
    };
    match Api::<Pod>::namespaced(client.clone(), &namespace)
        .delete(&name, &now)
        .await
    {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        other => other.map(|_| ()),
    }
}
