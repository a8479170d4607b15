//! Pods taken away through the eviction API, and nodes that go and come back under the real controllers of both.

use std::process::Output;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, JointInferenceService};
use skerry_tests::{NAMESPACE, look::text};

use crate::{Cluster, EDGE, READY, RUNNING};

/// The one pod whose name begins so.
async fn pod(cluster: &Cluster, prefix: &str) -> Value {
    let mut pods = cluster.all::<Pod>().await;
    pods.retain(|pod| text(pod, "/metadata/name").starts_with(prefix));
    assert_eq!(pods.len(), 1, "{prefix}: {pods:#?}");
    pods.remove(0)
}

async fn uid_of(cluster: &Cluster, prefix: &str) -> String {
    text(&pod(cluster, prefix).await, "/metadata/uid").to_owned()
}

/// As `kubectl drain` does for each pod.
async fn evict(cluster: &Cluster, prefix: &str) -> Output {
    let name = text(&pod(cluster, prefix).await, "/metadata/name").to_owned();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let file = cluster.kubectl.file("eviction.json", &eviction.to_string());
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction");
    cluster.kubectl.output(&["create", "--raw", &path, "-f", &file]).await
}

/// The same where nothing stands against it.
async fn is_evicted(cluster: &Cluster, prefix: &str) {
    let evicted = evict(cluster, prefix).await;
    assert!(evicted.status.success(), "{}", String::from_utf8_lossy(&evicted.stderr));
}

/// Waits until another pod is in the place.
async fn another(cluster: &Cluster, prefix: &str, old: &str) {
    cluster
        .until(&format!("another {prefix}"), async || {
            let mut pods = cluster.all::<Pod>().await;
            pods.retain(|pod| text(pod, "/metadata/name").starts_with(prefix));
            let new = pods.len() == 1 && text(&pods[0], "/metadata/uid") != old;
            (new && text(&pods[0], "/status/phase") == "Running").then_some(())
        })
        .await;
    cluster.settle().await;
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn an_evicted_pod_of_a_service_comes_back_by_its_deployment_alone() {
    let cluster = Cluster::at_work().await;
    let old = uid_of(&cluster, EDGE).await;
    let mark = cluster.mark();
    is_evicted(&cluster, EDGE).await;
    another(&cluster, EDGE, &old).await;
    cluster.is_well().await;
    let mut writes = cluster.writes_since(mark);
    writes.retain(|write| !write.contains("/status "));
    assert_eq!(writes, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn a_disruption_budget_keeps_a_pod_of_a_service_from_being_evicted() {
    let cluster = Cluster::at_work().await;
    let old = uid_of(&cluster, EDGE).await;
    let labels = pod(&cluster, EDGE).await["metadata"]["labels"].clone();
    let selector = format!("pod-template-hash={}", text(&labels, "/pod-template-hash"));
    cluster
        .kubectl
        .ok(&["create", "pdb", "keep", "--selector", &selector, "--min-available=1"])
        .await;
    cluster
        .kubectl
        .ok(&[
            "wait",
            "pdb/keep",
            "--for=jsonpath={.status.currentHealthy}=1",
            "--timeout=60s",
        ])
        .await;
    let refused = evict(&cluster, EDGE).await;
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && told.contains("would violate the pod's disruption budget"),
        "{told}"
    );
    cluster.settle().await;
    assert_eq!(uid_of(&cluster, EDGE).await, old);
    cluster.kubectl.ok(&["delete", "pdb", "keep"]).await;
    is_evicted(&cluster, EDGE).await;
    another(&cluster, EDGE, &old).await;
    cluster.is_well().await;
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn an_evicted_trainer_is_replaced_alone() {
    let cluster = Cluster::at_work().await;
    let (old, other) = (
        uid_of(&cluster, "surface-train-0-").await,
        uid_of(&cluster, "surface-train-1-").await,
    );
    let aggregator = uid_of(&cluster, "surface-aggregation-").await;
    is_evicted(&cluster, "surface-train-0-").await;
    another(&cluster, "surface-train-0-", &old).await;
    assert_eq!(uid_of(&cluster, "surface-train-1-").await, other);
    assert_eq!(uid_of(&cluster, "surface-aggregation-").await, aggregator);
    cluster.is_well().await;
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn an_evicted_aggregator_is_replaced_with_all_trainers() {
    let cluster = Cluster::at_work().await;
    let places = ["surface-aggregation-", "surface-train-0-", "surface-train-1-"];
    let mut old = Vec::new();
    for place in places {
        old.push(uid_of(&cluster, place).await);
    }
    is_evicted(&cluster, places[0]).await;
    for (place, old) in places.iter().zip(&old) {
        another(&cluster, place, old).await;
    }
    cluster.is_well().await;
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn a_node_that_goes_and_comes_back_leaves_one_pod_in_each_place() {
    let cluster = Cluster::at_work().await;
    cluster.lose_node("edge-1").await;
    // Kubernetes gives up its pods, which nobody there can end.
    cluster
        .until("the end of the job's pod", async || {
            let pod = pod(&cluster, "surface-train-0-").await;
            crate::is_deleted(&pod).then_some(())
        })
        .await;
    cluster.settle().await;
    let told = cluster
        .condition::<FederatedLearningJob>("surface", "Progressing")
        .await;
    assert!(
        told.starts_with("True AwaitingDeletion: ") && told.contains("edge-1"),
        "{told}"
    );
    let told = cluster.condition::<JointInferenceService>("helmet", "Ready").await;
    assert!(told.starts_with("False "), "{told}");
    let other = uid_of(&cluster, "surface-train-1-").await;
    cluster.restore_node("edge-1").await;
    cluster
        .until("both at work", async || {
            let service = cluster.condition::<JointInferenceService>("helmet", "Ready").await;
            let job = cluster.condition::<FederatedLearningJob>("surface", "Ready").await;
            (service == READY && job == RUNNING).then_some(())
        })
        .await;
    cluster.settle().await;
    for place in ["helmet-deployment-edge-", "surface-train-0-"] {
        assert_eq!(text(&pod(&cluster, place).await, "/status/phase"), "Running");
    }
    assert_eq!(uid_of(&cluster, "surface-train-1-").await, other);
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn a_pod_deleted_by_force_from_a_lost_node_is_made_again_for_when_it_comes_back() {
    let cluster = Cluster::at_work().await;
    cluster.lose_node("edge-1").await;
    let old = text(&pod(&cluster, "surface-train-0-").await, "/metadata/name").to_owned();
    let uid = uid_of(&cluster, "surface-train-0-").await;
    cluster
        .kubectl
        .ok(&["delete", "pod", &old, "--force", "--grace-period=0"])
        .await;
    cluster.settle().await;
    cluster.restore_node("edge-1").await;
    another(&cluster, "surface-train-0-", &uid).await;
    assert_eq!(
        cluster.condition::<FederatedLearningJob>("surface", "Ready").await,
        RUNNING
    );
}
