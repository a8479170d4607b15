//! How a job comes to be, and what it waits for.

use rstest::rstest;
use serde_json::{Value, json};

use super::world::{AGGREGATOR, FIRST, SECOND, World, complete, uids};
use crate::{Children, Impact, Kind, Nodes, ObjectKind, Plan, Settings};

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

#[test]
fn the_order_in_which_things_were_found_does_not_count() {
    let mut world = World::running();
    world.edit(FIRST, "example/trainer:v2");
    let (seen, mut turned) = (world.seen(), world.seen());
    turned.children.reverse();
    let plan = |seen| world.job.plan(seen, &Settings::default());
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
fn a_worker_that_never_ends_is_told_of() {
    let mut world = World::new();
    let template = world.job.spec.training_workers[1].template.as_map_mut();
    template["spec"]["restartPolicy"] = json!("Always");
    world.settle();
    assert_eq!(
        world.message("Degraded"),
        "trainer 1 has restartPolicy Always, so the job never ends; OnFailure is right"
    );
}
