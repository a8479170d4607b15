//! Makes a control plane as if nobody had used it.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, ListParams, Patch, PatchParams},
    core::{DynamicObject, GroupVersionKind},
};
use serde_json::json;
use skerry_sandbox::cluster::NodeSpec;
use tokio::time::sleep;

use crate::{look::text, planes::Plane, server::make_namespace, world::NAMESPACE};

/// The kinds of objects that scenarios make.
pub(crate) const KINDS: [(&str, &str, &str); 14] = [
    ("sedna.io/v1alpha1", "JointInferenceService", "jointinferenceservices"),
    ("sedna.io/v1alpha1", "FederatedLearningJob", "federatedlearningjobs"),
    ("sedna.io/v1alpha1", "VideoAnalyticsJob", "videoanalyticsjobs"),
    ("sedna.io/v1alpha1", "Dataset", "datasets"),
    ("sedna.io/v1alpha1", "Model", "models"),
    ("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("v1", "Pod", "pods"),
    ("v1", "Service", "services"),
    ("v1", "Secret", "secrets"),
    ("v1", "ConfigMap", "configmaps"),
    ("coordination.k8s.io/v1", "Lease", "leases"),
    ("events.k8s.io/v1", "Event", "events"),
];

/// What Kubernetes itself keeps in the namespace.
const KUBERNETES_OWN: &str = "kube-root-ca.crt";

/// The objects of a kind in the namespace of the scenarios.
pub(crate) fn api(client: &Client, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    plural.clone_into(&mut resource.plural);
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

/// Takes away what a scenario left, and makes our kinds known as they are to be.
pub(crate) async fn clean(plane: &Plane, admin: &Client, wanted: &[NodeSpec]) {
    let nodes: Api<Node> = Api::all(admin.clone());
    let known = nodes.list(&ListParams::default()).await.expect("nodes can be listed");
    let of_others = |node: &&Node| !wanted.iter().any(|wanted| wanted.is_as_made_known(node));
    for node in known.iter().filter(of_others) {
        // Whoever has no kubelet any more would never go by itself.
        match nodes.delete(&node.name_any(), &DeleteParams::default()).await {
            Err(error) if !matches!(&error, kube::Error::Api(status) if status.code == 404) => {
                panic!("nodes can be deleted: {error}")
            }
            _ => {}
        }
    }
    make_namespace(admin).await;
    // What one controller takes away, another may still make anew.
    loop {
        let left = left_in_namespace(plane).await;
        let kinds = KINDS.into_iter().filter(|(_, _, plural)| left.contains(*plural));
        let cleaning: Vec<_> = kinds.map(|kind| clean_of(admin, kind)).collect();
        if cleaning.is_empty() {
            break;
        }
        join_all(cleaning).await;
        sleep(Duration::from_millis(20)).await;
    }
    // Without it no pod is admitted.
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), NAMESPACE);
    while !matches!(accounts.get_opt("default").await, Ok(Some(_))) {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Has all objects of a kind deleted.
async fn clean_of(admin: &Client, (version, kind, plural): (&str, &str, &str)) {
    let api = api(admin, version, kind, plural);
    let not_kubernetes_own = ListParams::default().fields(&format!("metadata.name!={KUBERNETES_OWN}"));
    // Of a kind that is not known any more there are none to be had.
    let listed = api.list_metadata(&not_kubernetes_own).await;
    for held in listed
        .into_iter()
        .flatten()
        .filter(|object| object.metadata.finalizers.is_some())
    {
        let without = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        // Gone meanwhile is as good.
        let _ = api.patch(&held.name_any(), &PatchParams::default(), &without).await;
    }
    let at_once = DeleteParams::background().grace_period(0);
    let _ = api.delete_collection(&at_once, &not_kubernetes_own).await;
}

/// The kinds, by their plurals, of which there is anything in the namespace of the scenarios but Kubernetes' own. By the
/// names of all that etcd keeps: one question instead of a list of each kind, most of which are empty.
async fn left_in_namespace(plane: &Plane) -> BTreeSet<String> {
    let all = json!({"key": BASE64.encode("/registry/"), "range_end": BASE64.encode("/registry0"), "keys_only": true});
    let answer = plane.ask_etcd("range", all).await;
    let keys = answer["kvs"].as_array().into_iter().flatten();
    let keys = keys.map(|entry| BASE64.decode(text(entry, "/key")).expect("etcd's keys are base64"));
    keys.filter_map(|key| kind_of_key(&String::from_utf8_lossy(&key)))
        .collect()
}

/// The kind of an object in the namespace of the scenarios, by its key in etcd: `/registry/pods/scenario/surface-train-0`, or
/// `/registry/sedna.io/models/scenario/small`.
fn kind_of_key(key: &str) -> Option<String> {
    let (kind, object) = key.split_once(&format!("/{NAMESPACE}/"))?;
    let plural = match kind.rsplit_once('/')?.1 {
        "specs" => "services",
        "configmaps" if object == KUBERNETES_OWN => return None,
        plural => plural,
    };
    Some(plural.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_etcds_tells_the_kind_and_whether_it_is_the_scenarios() {
        let kind = |key| kind_of_key(key).unwrap_or_default();
        assert_eq!(kind("/registry/pods/scenario/surface-train-0"), "pods");
        assert_eq!(kind("/registry/services/specs/scenario/helmet-cloud"), "services");
        assert_eq!(kind("/registry/sedna.io/models/scenario/small"), "models");
        assert_eq!(kind("/registry/configmaps/scenario/of-a-user"), "configmaps");
        assert_eq!(kind("/registry/configmaps/scenario/kube-root-ca.crt"), "");
        assert_eq!(kind("/registry/pods/another/scenario"), "");
        assert_eq!(kind("/registry/namespaces/scenario"), "");
    }
}
