//! One scenario after the other, through passes of the small cluster.

use rstest::rstest;
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::Outcome;

use super::world::{AGGREGATOR, World};
use crate::{Children, Impact, Live, Make, Nodes, ObjectKind, Plan};

const FIRST: usize = 1;
const SECOND: usize = 2;

fn uids(world: &World) -> Vec<String> {
    (0..world.places())
        .map(|place| world.pod(place).map(|pod| pod.uid().to_owned()).unwrap_or_default())
        .collect()
}

/// Deleted pods are gone, and what follows has happened.
fn after_deletions(world: &mut World) {
    for _ in 0..4 {
        world.settle();
        world.children.retain(|live| !live.terminating());
    }
    world.settle();
    for place in 0..world.places() {
        world.start(place);
    }
    world.settle();
}

fn complete(world: &mut World) {
    for place in [FIRST, SECOND, AGGREGATOR] {
        world.end(place, 0);
        world.settle();
    }
    assert_eq!(world.ended().as_deref(), Some("Complete"));
}

#[test]
fn a_job_runs_to_its_end() {
    let mut world = World::new();
    world.settle();
    assert_eq!(world.writes, 4, "one write a child");
    assert_eq!(world.status().phase.as_deref(), Some("Pending"));
    assert_eq!((world.status().active, world.status().succeeded), (Some(3), Some(0)));
    for place in [AGGREGATOR, FIRST, SECOND] {
        world.start(place);
    }
    world.settle();
    assert_eq!(world.status().phase.as_deref(), Some("Running"));
    assert_eq!(world.reason("Ready"), "True WorkersRunning");
    complete(&mut world);
    let status = world.status();
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
    assert_eq!(
        (status.active, status.succeeded, status.failed),
        (Some(0), Some(3), Some(0))
    );
    assert_eq!(status.completion_time.map(|time| time.0), Some(world.now));
    assert_eq!(world.reason("Ready"), "True Completed");
    assert_eq!(world.writes, 4);
}

#[test]
fn trainers_are_made_once_the_aggregator_is_there() {
    let mut world = World::new();
    world.pass(None);
    assert_eq!(world.made, [world.pod_name(AGGREGATOR)]);
    assert_eq!(world.reason("Progressing"), "True AwaitingAggregator");
    world.pass(None);
    assert_eq!(world.made.len(), 3);
    assert_eq!(
        world.works_with(FIRST),
        world.pod(AGGREGATOR).map(|pod| pod.uid().to_owned())
    );
}

/// Sedna took any pod for all pods, and stopped at a Service that was there already.
#[test]
fn a_partial_creation_is_completed() {
    for write in 0..4 {
        let mut world = World::new();
        let mut left = write;
        while left > 0 {
            let before = world.writes;
            world.pass(Some(left));
            left -= (world.writes - before).max(1);
        }
        world.settle();
        assert_eq!(world.writes, 4, "killed before write {write}");
        assert_eq!(world.made.len(), 3, "killed before write {write}");
    }
}

#[test]
fn a_changed_trainer_is_replaced_alone() {
    let mut world = World::running();
    let before = uids(&world);
    world.edit(FIRST, "example/trainer:v2");
    let replaced = world
        .plan()
        .events
        .into_iter()
        .find(|event| event.reason == "PodReplaced")
        .unwrap();
    assert!(
        replaced.message.contains(&world.pod_name(FIRST)),
        "{}",
        replaced.message
    );
    after_deletions(&mut world);
    let after = uids(&world);
    assert_ne!(after[FIRST], before[FIRST]);
    assert_eq!(
        (&after[AGGREGATOR], &after[SECOND]),
        (&before[AGGREGATOR], &before[SECOND])
    );
    assert_eq!(world.writes, 6, "one deletion and one creation");
}

/// The name keeps Sedna's two pods of one trainer apart; the finding keeps the user from wondering.
#[test]
fn a_name_is_free_only_when_the_old_pod_is_gone() {
    let mut world = World::running();
    world.edit(FIRST, "example/trainer:v2");
    world.settle();
    assert_eq!(world.made.len(), 3, "the old one is still there");
    assert_eq!(world.reason("Progressing"), "True AwaitingDeletion");
    let expected = format!(
        "Pod {} is being deleted from node edge-1; it is made again once it is gone",
        world.pod_name(FIRST)
    );
    let mut on_node = world.clone();
    for live in &mut on_node.children {
        if live.name() == world.pod_name(FIRST) {
            live.object["spec"]["nodeName"] = json!("edge-1");
        }
    }
    on_node.pass(None);
    assert_eq!(on_node.message("Progressing"), expected);
    world.gone(FIRST);
    world.settle();
    assert_eq!(world.made.len(), 4);
}

#[rstest]
#[case::edited(|world: &mut World| world.edit(AGGREGATOR, "example/aggregator:v2"))]
#[case::evicted(|world: &mut World| world.evict(AGGREGATOR))]
#[case::deleted(|world: &mut World| { let name = world.pod_name(AGGREGATOR); world.delete(&name); })]
#[case::model(|world: &mut World| {
    let model = crate::testing::model("defects", "/models/other", "");
    world.references.0.extend(crate::testing::found([model]).0);
})]
fn another_aggregator_needs_other_trainers(#[case] change: fn(&mut World)) {
    let mut world = World::running();
    let before = uids(&world);
    world.wait(60);
    change(&mut world);
    let told = world.plan().events;
    world.settle();
    assert!(
        told.iter()
            .any(|event| event.reason == "AggregatorRestarted" || event.reason == "PodReplaced"),
        "{told:?}"
    );
    after_deletions(&mut world);
    for (place, (before, after)) in before.iter().zip(uids(&world)).enumerate() {
        assert_ne!(before, &after, "place {place}");
    }
    assert_eq!(
        world.works_with(SECOND),
        world.pod(AGGREGATOR).map(|pod| pod.uid().to_owned())
    );
    complete(&mut world);
}

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

#[test]
fn an_evicted_trainer_is_replaced_and_no_failure() {
    let mut world = World::running();
    world.wait(60);
    world.evict(SECOND);
    let before = uids(&world);
    world.settle();
    assert_eq!(world.ended(), None);
    after_deletions(&mut world);
    assert_ne!(uids(&world)[SECOND], before[SECOND]);
    assert_eq!(uids(&world)[FIRST], before[FIRST]);
}

#[test]
fn a_pod_that_its_node_keeps_rejecting_is_replaced_at_a_pace() {
    let mut world = World::running();
    world.wait(4);
    world.evict(FIRST);
    world.settle();
    assert_eq!(world.plan().again, Some(std::time::Duration::from_secs(6)));
    assert_eq!(world.reason("Progressing"), "True PodLost");
    assert!(
        world.message("Progressing").ends_with("Evicted: low on memory"),
        "{}",
        world.message("Progressing")
    );
    world.wait(6);
    world.settle();
    assert_eq!(world.made.len(), 4);
}

#[test]
fn a_lost_node_is_waited_for_by_name() {
    let mut world = World::running();
    let name = world.pod_name(SECOND);
    for live in &mut world.children {
        if live.name() == name {
            live.object["spec"]["nodeName"] = json!("edge-2");
        }
    }
    world.delete(&name);
    world.settle();
    assert!(world.findings()[0].message.contains("edge-2"));
    after_deletions(&mut world);
    complete(&mut world);
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

/// A container that is told to end may do so with exit code 0, with its work undone.
#[test]
fn an_aggregator_that_is_drained_has_not_succeeded() {
    let mut world = World::running();
    let name = world.pod_name(AGGREGATOR);
    world.delete(&name);
    world.end(AGGREGATOR, 0);
    after_deletions(&mut world);
    assert_eq!(world.outcomes(), [Some(Outcome::Running); 3]);
    complete(&mut world);
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
fn a_trainer_lost_after_the_aggregators_end_starts_the_job_over() {
    let mut world = World::running();
    world.wait(60);
    world.end(AGGREGATOR, 0);
    world.end(FIRST, 0);
    world.settle();
    let before = uids(&world);
    world.evict(SECOND);
    after_deletions(&mut world);
    for (place, (before, after)) in before.iter().zip(uids(&world)).enumerate() {
        assert_ne!(before, &after, "place {place}");
    }
    complete(&mut world);
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

/// Sedna started pods without the path to their data.
#[rstest]
#[case(ObjectKind::MODEL, "defects", 0, "Model defects does not exist; the job needs it")]
#[case(
    ObjectKind::DATASET,
    "second",
    2,
    "Dataset second does not exist; trainer 1 needs it"
)]
fn what_is_missing_is_named_and_heals(
    #[case] kind: ObjectKind,
    #[case] name: &str,
    #[case] made: usize,
    #[case] message: &str,
) {
    let mut world = World::new();
    world.lose(kind, name);
    world.settle();
    assert_eq!(world.made.len(), made);
    assert_eq!(world.message("Ready"), message);
    assert_eq!(world.ended(), None);
    world.bring_back();
    world.settle();
    assert_eq!(world.made.len(), 3);

    let mut running = World::running();
    let before = uids(&running);
    running.lose(kind, name);
    running.settle();
    assert_eq!(uids(&running), before, "what runs goes on");
    assert_eq!(running.message("Degraded"), message);
}

#[test]
fn a_pod_that_cannot_be_scheduled_is_named() {
    let mut world = World::new();
    world.settle();
    let name = world.pod_name(AGGREGATOR);
    for live in &mut world.children {
        if live.name() == name {
            live.object["status"] = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled",
                "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available."}]});
        }
    }
    world.settle();
    assert_eq!(
        world.message("Ready"),
        format!("Pod {name} cannot be scheduled: 0/3 nodes are available")
    );
    world.start(AGGREGATOR);
    world.settle();
    assert_eq!(world.reason("Degraded"), "False AsDeclared");
}

/// Sedna kept selector, host and "do not make again" for all jobs together.
#[test]
fn jobs_share_nothing() {
    let one = World::new();
    let mut other = World::new();
    other.job.metadata.name = Some("other".to_owned());
    other.job.metadata.uid = Some("another-uid".to_owned());
    let names = |plan: &Plan| match &plan.children {
        Children::Exactly(children) => children.iter().map(|child| child.name.clone()).collect::<Vec<_>>(),
        Children::Unchanged => vec![],
    };
    assert!(
        names(&one.plan())
            .iter()
            .all(|name| !names(&other.plan()).contains(name))
    );
    let told = serde_json::to_string(&other.plan()).unwrap();
    assert!(!told.contains("surface"), "{told}");
}

/// Sedna's pods of a job of the same name that was deleted just before.
#[test]
fn a_job_of_the_same_name_has_pods_of_other_names() {
    let one = World::new();
    let mut again = World::new();
    again.job.metadata.uid = Some("another-uid".to_owned());
    assert_ne!(one.pod_name(AGGREGATOR), again.pod_name(AGGREGATOR));
}

/// Sedna made pods again while the job was on its way out.
#[test]
fn an_owner_on_its_way_out_gets_nothing_new() {
    let mut world = World::running();
    world.job.metadata.deletion_timestamp = serde_json::from_value(json!("2024-05-01T10:00:00Z")).unwrap();
    world.children.clear();
    let status = world.status();
    assert_eq!(world.plan(), Plan::default());
    world.settle();
    assert_eq!(world.status(), status);
}

#[test]
fn a_paused_job_is_left_as_it_is_and_says_so() {
    let mut world = World::running();
    world.job.metadata.annotations = Some([("skerry.io/paused".to_owned(), "true".to_owned())].into());
    world.edit(AGGREGATOR, "example/aggregator:v2");
    world.settle();
    assert_eq!(
        (world.plan().children, world.plan().nodes),
        (Children::Unchanged, Nodes::Unchanged)
    );
    assert_eq!(world.reason("Progressing"), "False Paused");
    assert_eq!(world.writes, 4);
}

#[test]
fn a_deleted_service_is_made_again() {
    let mut world = World::running();
    world.delete("surface-aggregation");
    world.settle();
    assert_eq!(world.writes, 5);
}

#[test]
fn another_number_of_trainers_is_another_aggregator() {
    let mut world = World::running();
    let before = uids(&world);
    world.job.spec.training_workers.pop();
    after_deletions(&mut world);
    let pods = world
        .children
        .iter()
        .filter(|live| live.kind == ObjectKind::POD)
        .count();
    assert_eq!(pods, 2);
    assert_ne!(uids(&world)[AGGREGATOR], before[AGGREGATOR]);
}

#[test]
fn nodes_hold_their_part_as_long_as_the_job_is_there() {
    let part = |world: &World| match world.plan().nodes {
        Nodes::Exactly(nodes) => nodes
            .into_iter()
            .map(|(node, part)| (node, part.body["workers"].clone()))
            .collect::<Vec<(String, Value)>>(),
        Nodes::Unchanged => panic!("nodes are known"),
    };
    let mut world = World::running();
    let held = part(&world);
    assert_eq!(
        held.iter().map(|(node, _)| node.as_str()).collect::<Vec<_>>(),
        ["edge-1", "edge-2"]
    );
    complete(&mut world);
    world.children.clear();
    assert_eq!(part(&world), held);
}

/// A job that Sedna ran to its end before we came.
#[test]
fn a_job_that_sedna_finished_is_left_alone() {
    let mut world = World::new();
    let told = |type_: &str| json!({"type": type_, "status": "True", "lastHeartbeatTime": "2024-01-01T00:00:00Z"});
    world.job.status = crate::testing::parse(
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
fn the_order_in_which_things_were_found_does_not_count() {
    let mut world = World::running();
    world.edit(FIRST, "example/trainer:v2");
    let (seen, mut turned) = (world.seen(), world.seen());
    turned.children.reverse();
    let plan = |seen| crate::Kind::plan(&world.job, seen, &crate::Settings::default());
    assert_eq!(plan(&seen), plan(&turned));
}

#[test]
fn findings_say_whether_somebody_has_to_act() {
    let mut world = World::running();
    world.edit(FIRST, "example/trainer:v2");
    assert!(world.findings().iter().all(|finding| finding.impact == Impact::Waiting));
    world.lose(ObjectKind::DATASET, "second");
    assert!(world.findings().iter().any(|finding| finding.impact == Impact::Blocked));
}

#[test]
fn a_stray_pod_of_the_job_goes() {
    let mut world = World::running();
    let mut stray = world.pod(FIRST).unwrap().clone();
    stray.object["metadata"]["name"] = json!("surface-train-x7k2p");
    world.children.push(Live {
        kind: ObjectKind::POD,
        ..stray
    });
    let Children::Exactly(children) = world.plan().children else {
        panic!("it can be planned")
    };
    assert!(children.iter().all(|child| child.name != "surface-train-x7k2p"));
    assert!(
        children
            .iter()
            .all(|child| child.kind == ObjectKind::SERVICE || child.make == Make::Keep)
    );
}
