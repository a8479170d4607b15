//! Changes of a service's spec: each touches the worker that it is about, and no other.

use k8s_openapi::api::apps::v1::Deployment;
use rstest::rstest;
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::JointInferenceService;
use skerry_tests::{World, look::env};

use crate::{CLOUD, EDGE, READY, image, serving};

/// What tells whether a Deployment was touched, and its pods with it.
async fn touched(world: &World, name: &str) -> (String, Value) {
    let deployment = world.object::<Deployment>(name).await;
    let hash = deployment["spec"]["template"]["metadata"]["annotations"]["skerry.io/inputs-hash"].clone();
    (deployment["metadata"]["generation"].to_string(), hash)
}

#[rstest]
#[case::edge_image(EDGE, CLOUD, image("edgeWorker", "little", "example/little:v2"))]
#[case::cloud_image(CLOUD, EDGE, image("cloudWorker", "big", "example/big:v2"))]
#[case::hard_example_parameter(EDGE, CLOUD, json!({"spec": {"edgeWorker": {"hardExampleMining":
    {"parameters": [{"key": "threshold_img", "value": "0.5"}]}}}}))]
#[case::hard_example_filter(EDGE, CLOUD, json!({"spec": {"edgeWorker": {"hardExampleMining": {"name": "CloudOnly"}}}}))]
#[case::model(CLOUD, EDGE, json!({"spec": {"cloudWorker": {"model": {"name": "small"}}}}))]
#[tokio::test(start_paused = true)]
async fn an_edit_of_one_worker_touches_that_worker_alone(
    #[case] meant: &str,
    #[case] other: &str,
    #[case] edit: Value,
) {
    let world = serving().await;
    let before = [touched(&world, meant).await, touched(&world, other).await];
    let mark = world.mark();
    world.edit::<JointInferenceService>("helmet", edit).await;
    let mut writes = world.writes_since(mark);
    writes.retain(|write| !write.contains("/status "));
    assert_eq!(writes, [format!("patch deployments {meant}")]);
    let after = [touched(&world, meant).await, touched(&world, other).await];
    assert_ne!(after[0].1, before[0].1, "its pods are made anew");
    assert_eq!(after[1], before[1]);
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

#[tokio::test(start_paused = true)]
async fn a_hard_example_parameter_reaches_the_worker() {
    let world = serving().await;
    let edit = json!({"spec": {"edgeWorker": {"hardExampleMining":
        {"parameters": [{"key": "threshold_img", "value": "0.5"}]}}}});
    world.edit::<JointInferenceService>("helmet", edit).await;
    let worker = env(&world.object::<Deployment>(EDGE).await["spec"]["template"]["spec"]);
    assert_eq!(worker["HEM_PARAMETERS"], r#"[{"key":"threshold_img","value":"0.5"}]"#);
}

#[tokio::test(start_paused = true)]
async fn an_edit_made_while_the_manager_is_down_is_applied_afterwards() {
    let world = serving().await;
    world.kill_manager().await;
    let mark = world.mark();
    let edit = image("cloudWorker", "big", "example/big:v2");
    world.edit::<JointInferenceService>("helmet", edit).await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    world.start_manager();
    world.settle().await;
    let mut writes = world.writes_since(mark);
    writes.retain(|write| !write.contains("/status "));
    assert_eq!(writes, ["patch deployments helmet-deployment-cloud"]);
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

#[tokio::test(start_paused = true)]
async fn the_status_tells_of_a_rollout_and_of_its_end() {
    let world = serving().await;
    world.kubelet.behave(|pod| {
        let image = pod.spec.as_ref()?.containers.first()?.image.as_deref()?;
        image
            .ends_with(":slow")
            .then_some(skerry_sandbox::cluster::Behaviour::NeverReady)
    });
    let edit = image("cloudWorker", "big", "example/big:slow");
    world.edit::<JointInferenceService>("helmet", edit).await;
    assert_eq!(
        world.condition::<JointInferenceService>("helmet", "Progressing").await,
        "True RollingOut: pods of the cloud worker are on their way"
    );
    assert_eq!(
        world.condition::<JointInferenceService>("helmet", "Ready").await,
        READY,
        "the old pods still serve"
    );
    let edit = image("cloudWorker", "big", "example/big:v2");
    world.edit::<JointInferenceService>("helmet", edit).await;
    assert_eq!(
        world.condition::<JointInferenceService>("helmet", "Progressing").await,
        "False Settled: all pods are as declared"
    );
    let events = world.events_about("helmet").await;
    let rolled = "Normal WorkerUpdated: rolls Deployment helmet-deployment-cloud: \
                  what the cloud worker is made from changed";
    assert!(events.iter().any(|event| event == rolled), "{events:#?}");
}
