//! Autoscalers under the controller that looks after them: what the manager makes is accepted, and what that controller
//! does with it is left alone.

use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler};
use serde_json::json;
use skerry_crds::sedna::v1alpha1::JointInferenceService;
use skerry_tests::look::text;

use crate::{Cluster, EDGE, READY};

const HPA: &str = "hpa-helmet-deployment-edge";

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn an_autoscaler_is_made_changed_and_deleted_as_the_service_says() {
    let cluster = Cluster::at_work().await;
    cluster
        .patch("ji/helmet", r#"{"spec":{"edgeWorker":{"hpa":{"maxReplicas":3}}}}"#)
        .await;
    cluster.settle().await;
    let made = cluster.object::<HorizontalPodAutoscaler>(HPA).await;
    let owner = &made["metadata"]["ownerReferences"][0];
    assert_eq!(
        owner["uid"],
        json!(cluster.uid::<JointInferenceService>("helmet").await)
    );
    assert_eq!(owner["controller"], true);
    assert_eq!(made["spec"]["scaleTargetRef"]["name"], EDGE);
    assert_eq!(
        (&made["spec"]["minReplicas"], &made["spec"]["maxReplicas"]),
        (&json!(1), &json!(3))
    );
    cluster.edit_text("ji/helmet", "maxReplicas: 3", "maxReplicas: 5").await;
    cluster.settle().await;
    let changed = cluster.object::<HorizontalPodAutoscaler>(HPA).await;
    assert_eq!(changed["spec"]["maxReplicas"], 5);
    assert_eq!(changed["metadata"]["uid"], made["metadata"]["uid"]);
    // What the real server fills in by itself is not taken for a change.
    let mark = cluster.mark();
    cluster.restart_manager().await;
    cluster.settle().await;
    assert_eq!(cluster.writes_since(mark), Vec::<String>::new());
    cluster
        .patch("ji/helmet", r#"{"spec":{"edgeWorker":{"hpa":null}}}"#)
        .await;
    cluster.settle().await;
    assert_eq!(cluster.names::<HorizontalPodAutoscaler>().await, Vec::<String>::new());
    cluster.is_well().await;
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn what_the_autoscalers_own_controller_makes_of_the_replicas_is_not_fought() {
    let cluster = Cluster::at_work().await;
    // Without any metrics the controller does one thing: it keeps the bounds.
    cluster
        .patch(
            "ji/helmet",
            r#"{"spec":{"edgeWorker":{"hpa":{"minReplicas":2,"maxReplicas":3}}}}"#,
        )
        .await;
    let replicas = async || cluster.object::<Deployment>(EDGE).await["spec"]["replicas"].clone();
    cluster
        .until("two replicas", async || (replicas().await == 2).then_some(()))
        .await;
    cluster.settle().await;
    assert_eq!(
        cluster.condition::<JointInferenceService>("helmet", "Ready").await,
        READY
    );
    let generation = cluster.object::<Deployment>(EDGE).await["metadata"]["generation"].clone();
    // Whoever scales by hand within the bounds is heard, too, and neither an edit nor a new manager takes it back.
    cluster.kubectl.ok(&["scale", "deployment", EDGE, "--replicas=3"]).await;
    cluster.settle().await;
    let mark = cluster.mark();
    cluster.restart_manager().await;
    cluster.settle().await;
    assert_eq!(cluster.writes_since(mark), Vec::<String>::new());
    cluster
        .patch(
            "ji/helmet",
            r#"{"spec":{"edgeWorker":{"hardExampleMining":{"name":"CrossEntropy"}}}}"#,
        )
        .await;
    cluster.settle().await;
    assert_eq!(replicas().await, 3);
    let deployment = cluster.object::<Deployment>(EDGE).await;
    // One generation for the scale, one for the edit: nobody fought.
    let edits = deployment["metadata"]["generation"].as_i64().unwrap() - generation.as_i64().unwrap();
    assert_eq!(edits, 2, "{}", text(&deployment, "/metadata/name"));
    // Without the autoscaler the replicas are the manager's again.
    cluster
        .patch("ji/helmet", r#"{"spec":{"edgeWorker":{"hpa":null}}}"#)
        .await;
    cluster.settle().await;
    assert_eq!(replicas().await, 1);
    cluster.is_well().await;
}
