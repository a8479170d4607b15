//! The annotation `skerry.io/paused: "true"` freezes a resource.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, JointInferenceService};
use skerry_tests::look::env;
use skerry_workloads::ObjectKind;

use crate::{CLOUD, EDGE, JOB, READY, RUNNING, Service, edited, find_pod, image, name, pod, serving, training, uid};

fn paused(value: impl Into<Value>) -> Value {
    json!({"metadata": {"annotations": {"skerry.io/paused": value.into()}}})
}

const TOLD: &str = "Paused: the annotation skerry.io/paused is \"true\": children and nodes are left as they are";

#[tokio::test(start_paused = true)]
async fn a_paused_service_is_left_as_it_is_and_says_so() {
    let world = serving().await;
    world.edit::<JointInferenceService>("helmet", paused("true")).await;
    assert_eq!(
        world.condition::<JointInferenceService>("helmet", "Progressing").await,
        format!("False {TOLD}")
    );
    let node = world.held.on("edge-1", ObjectKind::JOINT_INFERENCE_SERVICE, "helmet");
    let mark = world.mark();
    // An edit, drift by hand, a deleted child: none is acted on.
    let edit = image("edgeWorker", "little", "example/little:v2");
    world.edit::<JointInferenceService>("helmet", edit).await;
    world.edit::<Deployment>(CLOUD, json!({"spec": {"replicas": 2}})).await;
    world.delete::<Service>("helmet-cloud", &DeleteParams::default()).await;
    world.restart_manager().await;
    world.settle().await;
    let mut writes = world.writes_since(mark);
    writes.retain(|write| !write.contains("/status "));
    assert_eq!(writes, Vec::<String>::new());
    assert_eq!(world.find::<Service>("helmet-cloud").await, None);
    let edge = world.object::<Deployment>(EDGE).await;
    assert_eq!(
        edge["spec"]["template"]["spec"]["containers"][0]["image"],
        "example/little:v1"
    );
    assert!(node.is_some());
    // Once it is let go, all of it is made good.
    world.edit::<JointInferenceService>("helmet", paused(Value::Null)).await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
    assert_eq!(world.names::<Service>().await, ["helmet-cloud"]);
    assert_eq!(world.object::<Deployment>(CLOUD).await["spec"]["replicas"], 1);
    let edge = world.object::<Deployment>(EDGE).await;
    assert_eq!(
        edge["spec"]["template"]["spec"]["containers"][0]["image"],
        "example/little:v2"
    );
    let worker = env(&edge["spec"]["template"]["spec"]);
    let told = world
        .held
        .on("edge-1", ObjectKind::JOINT_INFERENCE_SERVICE, "helmet")
        .unwrap();
    assert_eq!(told["workers"], json!([worker["WORKER_NAME"]]));
    assert_ne!(Some(told), node, "the node hears of the edit now");
}

#[tokio::test(start_paused = true)]
async fn what_the_nodes_of_a_paused_resource_hold_does_not_change() {
    let world = serving().await;
    world.edit::<JointInferenceService>("helmet", paused("true")).await;
    let before = world.held.on("edge-1", ObjectKind::JOINT_INFERENCE_SERVICE, "helmet");
    assert!(before.is_some());
    let edit = image("edgeWorker", "little", "example/little:v2");
    world.edit::<JointInferenceService>("helmet", edit).await;
    assert_eq!(
        world.held.on("edge-1", ObjectKind::JOINT_INFERENCE_SERVICE, "helmet"),
        before
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_made_paused_waits_with_everything() {
    let world = skerry_tests::World::start().await;
    let manifest = edited(
        crate::SERVICE,
        "name: helmet\n",
        "name: helmet\n  annotations:\n    skerry.io/paused: \"true\"\n",
    );
    world.apply(&manifest).await;
    assert_eq!(world.names::<Deployment>().await, Vec::<String>::new());
    let told = world.condition::<JointInferenceService>("helmet", "Progressing").await;
    assert_eq!(told, format!("False {TOLD}"));
    world.edit::<JointInferenceService>("helmet", paused("false")).await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

#[tokio::test(start_paused = true)]
async fn a_paused_job_is_left_as_it_is_and_says_so() {
    let world = training().await;
    world.edit::<FederatedLearningJob>("surface", paused("true")).await;
    assert_eq!(
        world.condition::<FederatedLearningJob>("surface", "Progressing").await,
        format!("False {TOLD}")
    );
    let before = [
        pod(&world, "surface-aggregation-").await,
        pod(&world, "surface-train-0-").await,
    ];
    world
        .apply(&edited(JOB, "example/aggregator:v1", "example/aggregator:v2"))
        .await;
    let deleted = name(&pod(&world, "surface-train-1-").await).to_owned();
    world.delete::<Pod>(&deleted, &DeleteParams::default()).await;
    let after = [
        pod(&world, "surface-aggregation-").await,
        pod(&world, "surface-train-0-").await,
    ];
    assert_eq!(after.each_ref().map(uid), before.each_ref().map(uid));
    assert!(find_pod(&world, "surface-train-1-").await.is_none());
    world.edit::<FederatedLearningJob>("surface", paused(Value::Null)).await;
    assert_eq!(
        world.condition::<FederatedLearningJob>("surface", "Ready").await,
        RUNNING
    );
    let aggregator = pod(&world, "surface-aggregation-").await;
    assert_eq!(aggregator["spec"]["containers"][0]["image"], "example/aggregator:v2");
}
