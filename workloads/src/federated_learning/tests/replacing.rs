//! When a pod is replaced, and which others with it.

use rstest::rstest;
use serde_json::json;
use skerry_crds::sedna::v1alpha1::Outcome;

use super::world::{AGGREGATOR, FIRST, SECOND, World, after_deletions, complete, uids};
use crate::{Children, Live, Make, ObjectKind, testing};

/// There is another pod in each place than before.
fn assert_all_replaced(before: &[String], world: &World) {
    for (place, (before, after)) in before.iter().zip(uids(world)).enumerate() {
        assert_ne!(before, &after, "place {place}");
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
    let model = testing::model("defects", "/models/other", "");
    world.references.0.extend(testing::found([model]).0);
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
    assert_all_replaced(&before, &world);
    assert_eq!(
        world.works_with(SECOND),
        world.pod(AGGREGATOR).map(|pod| pod.uid().to_owned())
    );
    complete(&mut world);
}

/// Sedna remembered for five seconds that it had made a pod again, by its name alone, and let a second deletion pass.
#[test]
fn a_pod_that_is_deleted_twice_is_made_twice() {
    let mut world = World::running();
    for made in 4..6 {
        let name = world.pod_name(FIRST);
        world.delete(&name);
        after_deletions(&mut world);
        assert_eq!(world.made.len(), made);
    }
}

/// Sedna drew names, so that a second look before the first pods were seen made them twice.
#[test]
fn a_second_pass_before_the_first_is_seen_makes_the_same_names() {
    let world = World::new();
    assert_eq!(world.plan(), world.clone().plan());
    let mut later = world.clone();
    later.wait(60);
    assert_eq!(world.plan(), later.plan());
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
fn a_trainer_lost_after_the_aggregators_end_starts_the_job_over() {
    let mut world = World::running();
    world.wait(60);
    world.end(AGGREGATOR, 0);
    world.end(FIRST, 0);
    world.settle();
    let before = uids(&world);
    world.evict(SECOND);
    after_deletions(&mut world);
    assert_all_replaced(&before, &world);
    complete(&mut world);
}

/// The node is drained in the last round: the trainer is made again before it is known that the aggregator has ended.
#[test]
fn a_trainer_made_again_as_the_aggregator_ends_starts_the_job_over_once_it_fails() {
    let mut world = World::running();
    world.wait(60);
    let name = world.pod_name(SECOND);
    world.delete(&name);
    world.gone(SECOND);
    world.settle();
    world.end(AGGREGATOR, 0);
    world.end(FIRST, 0);
    world.start(SECOND);
    world.settle();
    let before = uids(&world);
    after_deletions(&mut world);
    assert_eq!(uids(&world), before, "it may have been in time");
    world.restart(SECOND);
    after_deletions(&mut world);
    assert_eq!(uids(&world), before, "it failed once, and runs");
    world.crash(SECOND);
    world.lose(ObjectKind::DATASET, "second");
    after_deletions(&mut world);
    assert_eq!(uids(&world), before, "it could not be made");
    world.bring_back();
    after_deletions(&mut world);
    assert_all_replaced(&before, &world);
    complete(&mut world);
}

/// With another aggregator it would do the same, for ever.
#[test]
fn a_first_trainer_that_fails_after_the_aggregators_end_starts_nothing_over() {
    let mut world = World::running();
    world.end(AGGREGATOR, 0);
    world.end(FIRST, 0);
    world.crash(SECOND);
    world.settle();
    let before = uids(&world);
    after_deletions(&mut world);
    assert_eq!(uids(&world), before);
    assert_eq!(world.reason("Ready"), "False ContainerFailing");
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
