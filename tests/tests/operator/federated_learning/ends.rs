//! How a job ends: with which outcome, and that it stays so.

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use rstest::rstest;
use serde_json::json;
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, Model};
use skerry_tests::{World, look::text};

use super::{PLACES, complete, exit, phase, ready, uids};
use crate::{JOB, edited, find_pod, name, pod, training, uid};

/// The manifest, all pods of which are not to be started again.
fn never() -> String {
    let policy = "          restartPolicy: Never\n          containers:";
    let trainers = JOB.replace("          containers:", policy);
    let aggregator = "        restartPolicy: Never\n        containers:\n          - name: aggregator";
    edited(
        &trainers,
        "        containers:\n          - name: aggregator",
        aggregator,
    )
}

#[rstest]
#[case::aggregator(0)]
#[case::trainer(2)]
#[tokio::test(start_paused = true)]
async fn a_container_that_fails_under_never_fails_the_job(#[case] place: usize) {
    let world = World::start().await;
    world.apply(&never()).await;
    let before = uids(&world).await;
    exit(&world, PLACES[place], 3).await;
    let failed = pod(&world, PLACES[place]).await;
    assert_eq!(phase(&world).await, "Failed");
    assert_eq!(world.state::<FederatedLearningJob>("surface").await, "Failed");
    let container = text(&failed, "/spec/containers/0/name");
    let message = format!(
        "the worker of FederatedLearningJob failed: Pod {}: container {container} ended with exit code 3",
        name(&failed)
    );
    assert_eq!(ready(&world).await, format!("False workerFailed: {message}"));
    let events = world.events_about("surface").await;
    assert!(
        events.contains(&format!("Warning workerFailed: {message}")),
        "{events:#?}"
    );
    // It stays failed, and nothing is made again.
    world
        .apply(&edited(&never(), "example/aggregator:v1", "example/aggregator:v2"))
        .await;
    assert_eq!(uids(&world).await, before);
    assert_eq!(phase(&world).await, "Failed");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_fails_under_on_failure_is_started_again_by_its_node() {
    let world = training().await;
    let before = uids(&world).await;
    exit(&world, PLACES[1], 3).await;
    assert_eq!(uids(&world).await, before);
    assert_eq!(phase(&world).await, "Running");
    complete(&world).await;
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_recorded_before_anything_else_is_done() {
    let world = training().await;
    // While the manager is down a trainer ends, and the other one is edited.
    world.kill_manager().await;
    exit(&world, PLACES[1], 0).await;
    world
        .apply(&edited(JOB, "example/trainer-1:v1", "example/trainer-1:v2"))
        .await;
    let mark = world.mark();
    world.start_manager();
    world.settle().await;
    let writes = world.writes_since(mark);
    let replaced = format!("delete pods {}", name(&pod(&world, PLACES[2]).await));
    assert_eq!(
        writes[..2],
        ["patch federatedlearningjobs/status surface".to_owned(), replaced]
    );
    let job = world.object::<FederatedLearningJob>("surface").await;
    let recorded = &job["status"]["workers"][1];
    assert_eq!(
        (&recorded["outcome"], &recorded["index"]),
        (&json!("Succeeded"), &json!(0))
    );
}

#[tokio::test(start_paused = true)]
async fn a_trainer_that_has_ended_is_not_made_again_when_its_pod_is_deleted() {
    let world = training().await;
    exit(&world, PLACES[1], 0).await;
    let before = uids(&world).await;
    let ended = name(&pod(&world, PLACES[1]).await).to_owned();
    world.delete::<Pod>(&ended, &DeleteParams::default()).await;
    world.restart_manager().await;
    world.settle().await;
    assert!(find_pod(&world, PLACES[1]).await.is_none());
    assert_eq!(uid(&pod(&world, PLACES[0]).await), before[0]);
    exit(&world, PLACES[2], 0).await;
    exit(&world, PLACES[0], 0).await;
    assert_eq!(phase(&world).await, "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_is_restarted_neither_by_an_edit_nor_by_the_deletion_of_a_pod() {
    let world = training().await;
    complete(&world).await;
    let before = uids(&world).await;
    world
        .apply(&edited(JOB, "example/aggregator:v1", "example/aggregator:v2"))
        .await;
    world
        .edit::<Model>("defects", json!({"spec": {"url": "/var/models/others"}}))
        .await;
    assert_eq!(uids(&world).await, before);
    let told = world.condition::<FederatedLearningJob>("surface", "Degraded").await;
    assert!(
        told.starts_with("True EditIgnored: the job has ended with generation 1 of its spec"),
        "{told}"
    );
    for place in PLACES {
        let ended = name(&pod(&world, place).await).to_owned();
        world.delete::<Pod>(&ended, &DeleteParams::default()).await;
    }
    world.restart_manager().await;
    world.settle().await;
    assert_eq!(world.names::<Pod>().await, Vec::<String>::new());
    assert_eq!(phase(&world).await, "Succeeded");
    assert_eq!(world.state::<FederatedLearningJob>("surface").await, "Complete");
}
