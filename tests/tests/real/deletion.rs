//! `kubectl delete --cascade=…` under the real garbage collector: what waits for what, and that nobody makes anything for
//! an owner on its way out.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use serde_json::json;
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, JointInferenceService};
use skerry_tests::look::{Seen, conditions};

use crate::{CLOUD, Cluster, EDGE, HOLD, READY, RELEASE, SERVICE, finalizers, is_deleted};

/// Statuses apart: what the manager wrote since.
fn written(cluster: &Cluster, mark: skerry_sandbox::api::Mark) -> Vec<String> {
    let mut writes = cluster.writes_since(mark);
    writes.retain(|write| !write.contains("/status "));
    writes
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn a_service_deleted_in_the_foreground_stays_until_its_last_child_is_gone() {
    let cluster = Cluster::at_work().await;
    cluster.patch(&format!("deployment/{EDGE}"), HOLD).await;
    let mark = cluster.mark();
    cluster
        .kubectl
        .ok(&["delete", "ji", "helmet", "--cascade=foreground", "--wait=false"])
        .await;
    // All others go, and nobody makes them again, not even for an edit, nor a manager that starts.
    cluster
        .is_all_there_is(&["deployment.apps/helmet-deployment-edge"], "helmet")
        .await;
    let service = cluster.object::<JointInferenceService>("helmet").await;
    assert!(is_deleted(&service));
    assert_eq!(finalizers(&service), ["foregroundDeletion"]);
    assert!(is_deleted(&cluster.object::<Deployment>(EDGE).await));
    let edit = json!({"spec": {"cloudWorker": {"hpa": {"maxReplicas": 3}}}});
    cluster.edit::<JointInferenceService>("helmet", edit).await;
    cluster.restart_manager().await;
    cluster.settle().await;
    cluster
        .is_all_there_is(&["deployment.apps/helmet-deployment-edge"], "helmet")
        .await;
    assert_eq!(written(&cluster, mark), Vec::<String>::new());
    cluster.patch(&format!("deployment/{EDGE}"), RELEASE).await;
    cluster
        .kubectl
        .ok(&["wait", "--for=delete", "ji/helmet", "--timeout=60s"])
        .await;
    cluster
        .kubectl
        .ok(&["delete", "fl", "surface", "--cascade=foreground", "--timeout=60s"])
        .await;
    cluster.is_all_there_is(&[], "").await;
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn a_job_deleted_in_the_foreground_stays_until_its_last_pod_is_gone() {
    let cluster = Cluster::at_work().await;
    let pods = cluster.names::<Pod>().await;
    let trainer = pods.iter().find(|name| name.starts_with("surface-train-0-")).unwrap();
    cluster.patch(&format!("pod/{trainer}"), HOLD).await;
    let mark = cluster.mark();
    cluster
        .kubectl
        .ok(&["delete", "fl", "surface", "--cascade=foreground", "--wait=false"])
        .await;
    let left = format!("pod/{trainer}");
    cluster.is_all_there_is(&[&left], "surface").await;
    let job = cluster.object::<FederatedLearningJob>("surface").await;
    assert!(is_deleted(&job));
    assert_eq!(finalizers(&job), ["foregroundDeletion"]);
    cluster.restart_manager().await;
    cluster.settle().await;
    cluster.is_all_there_is(&[&left], "surface").await;
    assert_eq!(written(&cluster, mark), Vec::<String>::new());
    cluster.patch(&format!("pod/{trainer}"), RELEASE).await;
    cluster
        .kubectl
        .ok(&["wait", "--for=delete", "fl/surface", "--timeout=60s"])
        .await;
    cluster.is_all_there_is(&[], "surface").await;
}

/// Deletes an owner that somebody holds back: its children go and stay away; released, it goes.
async fn outlives_its_children<K: Seen>(cluster: &Cluster, kind: &str, name: &str, cascade: &str) {
    let object = format!("{kind}/{name}");
    cluster.patch(&object, HOLD).await;
    cluster
        .kubectl
        .ok(&["delete", &object, &format!("--cascade={cascade}"), "--wait=false"])
        .await;
    cluster.is_all_there_is(&[], name).await;
    cluster
        .until(&format!("{object} held back by nobody else"), async || {
            let owner = cluster.object::<K>(name).await;
            (is_deleted(&owner) && finalizers(&owner) == ["example.org/hold"]).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn an_owner_that_somebody_holds_back_outlives_its_children_which_are_not_made_again() {
    let cluster = Cluster::at_work().await;
    let mark = cluster.mark();
    outlives_its_children::<JointInferenceService>(&cluster, "ji", "helmet", "foreground").await;
    outlives_its_children::<FederatedLearningJob>(&cluster, "fl", "surface", "foreground").await;
    cluster.is_all_there_is(&[], "").await;
    cluster.restart_manager().await;
    cluster.settle().await;
    cluster.is_all_there_is(&[], "").await;
    assert_eq!(written(&cluster, mark), Vec::<String>::new());
    for object in ["ji/helmet", "fl/surface"] {
        cluster.patch(object, RELEASE).await;
        cluster
            .kubectl
            .ok(&["wait", "--for=delete", object, "--timeout=60s"])
            .await;
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn owners_deleted_in_the_background_go_at_once_and_their_children_after_them() {
    let cluster = Cluster::at_work().await;
    let mark = cluster.mark();
    cluster
        .kubectl
        .ok(&["delete", "ji/helmet", "fl/surface", "--timeout=60s"])
        .await;
    cluster.is_all_there_is(&[], "").await;
    assert_eq!(written(&cluster, mark), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn orphans_run_on_and_are_in_the_way_of_a_new_owner_until_they_are_deleted() {
    let cluster = Cluster::at_work().await;
    let before = cluster.very_children().await;
    let mark = cluster.mark();
    cluster
        .kubectl
        .ok(&["delete", "ji/helmet", "fl/surface", "--cascade=orphan", "--timeout=60s"])
        .await;
    cluster.settle().await;
    assert_eq!(cluster.very_children().await, before);
    let owner = "jsonpath={.items[*].metadata.ownerReferences[*].kind}";
    let owners = cluster.kubectl.ok(&["get", "deployments,services", "-o", owner]).await;
    assert_eq!(owners, "");
    let pods = "--selector=federatedlearningjob.sedna.io/name=surface";
    assert_eq!(cluster.kubectl.ok(&["get", "pods", pods, "-o", owner]).await, "");
    assert_eq!(written(&cluster, mark), Vec::<String>::new());
    cluster.kubectl.apply(SERVICE).await;
    // It is tried again for ever: nobody here waits for the end of that.
    cluster
        .until("the new owner's trouble", async || {
            let service = cluster.object::<JointInferenceService>("helmet").await;
            let mut conditions = conditions(&service).iter();
            conditions
                .any(|condition| condition["type"] == "Ready" && condition["reason"] == "NameTaken")
                .then_some(())
        })
        .await;
    assert_eq!(cluster.very_children().await, before);
    cluster.kubectl.ok(&["delete", "deployment", EDGE, CLOUD]).await;
    cluster.kubectl.ok(&["delete", "service", "helmet-cloud"]).await;
    cluster.settle().await;
    assert_eq!(
        cluster.condition::<JointInferenceService>("helmet", "Ready").await,
        READY
    );
}
