//! How a job ends, and that it stays so.

use rstest::rstest;
use serde_json::json;
use skerry_crds::sedna::v1alpha1::Outcome;

use super::world::{AGGREGATOR, FIRST, SECOND, World, after_deletions, complete};
use crate::{Children, ObjectKind, testing};

#[test]
fn what_trainers_ended_with_does_not_count_for_another_aggregator() {
    let mut world = World::running();
    world.end(FIRST, 0);
    world.settle();
    world.wait(60);
    world.evict(AGGREGATOR);
    after_deletions(&mut world);
    assert_eq!(world.outcomes(), [Some(Outcome::Running); 3]);
}

#[rstest]
#[case(AGGREGATOR)]
#[case(SECOND)]
fn a_container_that_fails_for_good_fails_the_job(#[case] place: usize) {
    let mut world = World::running();
    world.end(place, 3);
    let told = world.plan().events;
    assert!(told.iter().any(|event| event.reason == "workerFailed"), "{told:?}");
    world.settle();
    assert_eq!(world.ended().as_deref(), Some("Failed"));
    let status = world.status();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(
        (status.failed, status.active, status.completion_time),
        (Some(1), Some(2), None)
    );
    assert_eq!(world.worker(place).exit_code, Some(3));
    assert_eq!(world.reason("Ready"), "False workerFailed");
    assert_eq!(
        world.message("Failed"),
        format!(
            "the worker of FederatedLearningJob failed: Pod {}: container trainer ended with exit code 3",
            world.pod_name(place)
        )
    );
    assert_eq!(world.writes, 4, "nothing is made or deleted for it");
}

#[test]
fn an_outcome_is_recorded_before_anything_else_is_done() {
    let mut world = World::running();
    world.end(FIRST, 0);
    world.edit(SECOND, "example/trainer:v2");
    assert_eq!(world.plan().children, Children::Unchanged);
    world.pass(Some(0));
    assert_eq!(world.plan().children, Children::Unchanged, "not even after a crash");
    world.pass(None);
    assert_eq!(world.outcomes()[FIRST], Some(Outcome::Succeeded));
    assert!(matches!(world.plan().children, Children::Exactly(_)));
}

/// Sedna made pods of finished jobs again: cleaning up restarted the training.
#[test]
fn a_finished_job_makes_nothing_any_more() {
    let mut world = World::running();
    complete(&mut world);
    let (status, writes) = (world.status(), world.writes);
    for place in 0..3 {
        let name = world.pod_name(place);
        world.delete(&name);
    }
    world.children.clear();
    world.settle();
    assert_eq!((world.status(), world.writes), (status.clone(), writes));

    world.edit(AGGREGATOR, "example/aggregator:v2");
    world.lose(ObjectKind::MODEL, "defects");
    world.settle();
    assert_eq!(world.writes, writes);
    assert_eq!(world.reason("Degraded"), "True EditIgnored");
    assert_eq!(world.reason("Ready"), "True Completed");
    assert_eq!(world.status().completion_time, status.completion_time);
    assert_eq!(world.ended().as_deref(), Some("Complete"));
}

#[test]
fn a_trainer_that_succeeded_stays_so_when_its_pod_is_deleted() {
    let mut world = World::running();
    world.end(FIRST, 0);
    world.settle();
    let name = world.pod_name(FIRST);
    world.delete(&name);
    world.edit(FIRST, "example/trainer:v2");
    world.settle();
    assert_eq!(world.outcomes()[FIRST], Some(Outcome::Succeeded));
    assert_eq!(world.made.len(), 3);
    world.end(SECOND, 0);
    world.end(AGGREGATOR, 0);
    world.settle();
    assert_eq!(world.ended().as_deref(), Some("Complete"));
}

#[test]
fn an_aggregator_that_ends_before_its_trainers_are_made_is_no_reason_to_start_over() {
    let mut world = World::new();
    world.pass(None);
    world.start(AGGREGATOR);
    world.end(AGGREGATOR, 0);
    world.settle();
    assert_eq!(world.made.len(), 3);
    for place in [FIRST, SECOND] {
        world.start(place);
        world.end(place, 0);
    }
    world.settle();
    assert_eq!(world.ended().as_deref(), Some("Complete"));
    assert_eq!(world.made.len(), 3);
}

/// A job that Sedna ran to its end before we came.
#[test]
fn a_job_that_sedna_finished_is_left_alone() {
    let mut world = World::new();
    let told = |type_: &str| json!({"type": type_, "status": "True", "lastHeartbeatTime": "2024-01-01T00:00:00Z"});
    world.job.status = testing::parse(
        json!({"phase": "Succeeded", "conditions": [told("Training"), told("Training"), told("Complete")]}),
    );
    world.settle();
    assert_eq!((world.made.len(), world.ended().as_deref()), (0, Some("Complete")));
    let training = world
        .status()
        .conditions
        .iter()
        .filter(|condition| condition.type_ == "Training")
        .count();
    assert_eq!(training, 2, "what Sedna told is kept");
    assert_eq!(world.status().phase.as_deref(), Some("Succeeded"));
}

#[test]
fn an_edit_of_the_aggregator_counts_until_the_job_has_ended() {
    let mut world = World::running();
    world.end(FIRST, 0);
    world.end(AGGREGATOR, 0);
    world.settle();
    let name = world.pod_name(AGGREGATOR);
    world.delete(&name);
    world.settle();
    assert_eq!(world.made.len(), 3, "it has ended, and its pod is not needed");
    world.edit(AGGREGATOR, "example/aggregator:v2");
    after_deletions(&mut world);
    assert_eq!(world.outcomes(), [Some(Outcome::Running); 3]);
    assert_eq!(world.made.len(), 6);
}

/// A finalizer may hold a pod that has ended.
#[test]
fn what_is_recorded_stays_while_the_pod_is_on_its_way_out() {
    let mut world = World::running();
    world.end(FIRST, 0);
    world.settle();
    let name = world.pod_name(FIRST);
    for live in world.children.iter_mut().filter(|live| live.name() == name) {
        live.object["metadata"]["deletionTimestamp"] = json!("2024-05-01T10:00:00Z");
    }
    let record = world.worker(FIRST);
    world.settle();
    assert_eq!(world.worker(FIRST), record);
    assert_eq!(world.made.len(), 3);
}
