//! Jobs that Sedna began.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};
use skerry_crds::names::annotation;

use super::world::{FIRST, SECOND, World};
use crate::{Children, Live, Make, ObjectKind};

/// A pod as Sedna makes it, trimmed.
fn pod(name: &str, role: &str, dataset: &str, node: &str) -> Live {
    let env =
        json!([{"name": "WORKER_NAME", "value": format!("w-{name}")}, {"name": "DATASET_NAME", "value": dataset}]);
    let object = json!({
        "metadata": {"name": name, "uid": format!("uid-of-{name}"), "creationTimestamp": "2024-05-01T09:00:00Z",
            "labels": {"federatedlearningjob.sedna.io/worker-type": role}},
        "spec": {"nodeName": node, "containers": [{"env": env}]},
        "status": {"phase": "Running"},
    });
    let kind = ObjectKind::POD;
    Live { kind, object }
}

fn all() -> Vec<Live> {
    vec![
        pod("agg", "aggregation", "", "cloud-1"),
        pod("one", "train", "first", "edge-1"),
        pod("two", "train", "second", "edge-2"),
    ]
}

fn job_with(pods: Vec<Live>) -> World {
    let mut world = World::new();
    world.children = pods;
    world
}

/// What would be written onto which pod.
fn marks(world: &World) -> BTreeMap<String, Value> {
    let Children::Exactly(children) = world.plan().children else {
        panic!("something is planned")
    };
    let marks = children.into_iter().filter_map(|child| match child.make {
        Make::Apply(body) if child.kind == ObjectKind::POD => {
            Some((child.name, body["metadata"]["annotations"].clone()))
        }
        _ => None,
    });
    marks.collect()
}

/// Writes them.
fn carry_out(world: &mut World) {
    let marks = marks(world);
    for live in &mut world.children {
        if let Some(marks) = marks.get(live.name()) {
            live.object["metadata"]["annotations"] = marks.clone();
        }
    }
}

fn places(world: &World) -> Vec<(String, String)> {
    let place = |(name, marks): (String, Value)| (name, marks[annotation::ADOPTED_PLACE].as_str().unwrap().to_owned());
    marks(world).into_iter().map(place).collect()
}

fn expected(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(pod, place)| ((*pod).to_owned(), (*place).to_owned()))
        .collect()
}

#[test]
fn each_pod_is_given_its_place_and_nothing_else_happens() {
    let world = job_with(all());
    let found = expected(&[("agg", "aggregation"), ("one", "train-0"), ("two", "train-1")]);
    assert_eq!(places(&world), found);
    let marks = marks(&world);
    assert_eq!(marks["one"][annotation::AGGREGATOR_UID], "uid-of-agg");
    assert_eq!(marks["agg"].get(annotation::AGGREGATOR_UID), None);
    assert!(marks.values().all(|marks| marks[annotation::INPUTS_HASH].is_string()));
    let Children::Exactly(children) = world.plan().children else {
        panic!("something is planned")
    };
    assert!(
        children.iter().all(|child| child.kind == ObjectKind::POD),
        "not even the Service"
    );
}

#[test]
fn once_marked_they_are_the_jobs_workers() {
    let mut world = job_with(all());
    carry_out(&mut world);
    assert_eq!(marks(&world), BTreeMap::new());
    world.settle();
    assert_eq!(world.made, Vec::<String>::new());
    let status = world.status();
    let workers: Vec<_> = status.workers.iter().map(|worker| worker.name.as_str()).collect();
    assert_eq!(workers, ["w-agg", "w-one", "w-two"]);
    assert_eq!(status.active, Some(3));
}

#[test]
fn a_changed_trainer_of_sednas_gives_way_to_one_of_ours() {
    let mut world = job_with(all());
    carry_out(&mut world);
    world.settle();
    world.edit(SECOND, "example/trainer:v2");
    world.settle();
    assert_eq!(world.made, Vec::<String>::new(), "not while the old one is there");
    world.children.retain(|live| !live.terminating());
    world.settle();
    assert_eq!(world.made, [world.pod_name(SECOND)]);
    assert_eq!(world.works_with(SECOND).as_deref(), Some("uid-of-agg"));
}

/// The samples of both are the same; the nodes are not. Whoever names no node takes what is left.
#[rstest]
#[case::by_node(json!("edge-1"), "edge-2")]
#[case::what_is_left(Value::Null, "edge-2")]
fn nodes_tell_trainers_of_the_same_samples_apart(#[case] first: Value, #[case] second: &str) {
    let mut world = job_with(vec![
        pod("a", "train", "first", "edge-2"),
        pod("b", "train", "first", "edge-1"),
    ]);
    world.job.spec.training_workers[1].dataset = world.job.spec.training_workers[0].dataset.clone();
    for (index, node) in [first, json!(second)].into_iter().enumerate() {
        world.job.spec.training_workers[index].template.as_map_mut()["spec"]["nodeName"] = node;
    }
    assert_eq!(places(&world), expected(&[("a", "train-1"), ("b", "train-0")]));
}

#[rstest]
#[case::samples_of_no_trainer(pod("x", "train", "third", "edge-1"))]
#[case::another_node(pod("x", "train", "first", "edge-2"))]
#[case::another_role(pod("x", "inference", "first", "edge-1"))]
fn what_fits_no_place_is_given_none(#[case] stray: Live) {
    assert_eq!(places(&job_with(vec![stray])), expected(&[]));
}

#[test]
fn of_two_for_one_place_it_is_the_one_that_runs_and_then_the_elder() {
    let with = |name: &str, change: fn(&mut Value)| {
        let mut live = pod(name, "train", "first", "edge-1");
        change(&mut live.object);
        live
    };
    let world = job_with(vec![
        with("a", |object| {
            object["metadata"]["deletionTimestamp"] = json!("2024-05-01T09:30:00Z");
        }),
        with("b", |object| {
            object["status"] = json!({"phase": "Failed", "reason": "Evicted"});
        }),
        with("c", |object| {
            object["metadata"]["creationTimestamp"] = json!("2024-05-01T09:20:00Z");
        }),
        with("d", |_| {}),
    ]);
    assert_eq!(places(&world), expected(&[("d", "train-0")]));
}

/// Sedna made pods without their Model or Dataset, too.
#[test]
fn what_a_pod_counts_as_made_from_is_written_when_it_is_known() {
    let mut world = job_with(all());
    world.lose(ObjectKind::DATASET, "first");
    assert_eq!(marks(&world)["one"].get(annotation::INPUTS_HASH), None);
    carry_out(&mut world);
    assert_eq!(marks(&world), BTreeMap::new(), "it is given its place once");
    world.bring_back();
    let marks = marks(&world);
    assert_eq!(marks.keys().collect::<Vec<_>>(), ["one"]);
    assert!(marks["one"][annotation::INPUTS_HASH].is_string());
    assert_eq!(
        marks["one"][annotation::AGGREGATOR_UID],
        "uid-of-agg",
        "what it has it keeps"
    );
}

/// A mark that was taken off by hand makes no pod of ours one of Sedna's.
#[test]
fn a_pod_of_ours_is_never_adopted() {
    let mut world = World::running();
    let name = world.pod_name(FIRST);
    for live in world.children.iter_mut().filter(|live| live.name() == name) {
        live.object["metadata"]["annotations"] = json!({});
    }
    assert_eq!(marks(&world), BTreeMap::new());
}
