//! What kubelets write: a pod's status, and its removal once nothing of it runs.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::params::Preconditions;
use kube::{Api, Client};
use serde_json::json;

use super::meta::{id, uid};

/// Writes a pod's status. The pod as it is then; nothing if it is gone, or another one has its name.
pub(crate) async fn status(client: &Client, pod: &Pod, status: &PodStatus) -> Result<Option<Pod>, kube::Error> {
    let (namespace, name) = id(pod);
    let patch = json!({"metadata": {"uid": uid(pod)}, "status": status});
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    match pods
        .patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch))
        .await
    {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(None),
        other => other.map(Some),
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
