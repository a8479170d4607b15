//! Federated learning jobs: which pod is replaced when, and when the job ends.

mod ends;

use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, Model};
use skerry_globalmanager::engine::Taken;
use skerry_sandbox::cluster::Timing;
use skerry_tests::{
    NAMESPACE, World,
    look::{env, text},
};
use skerry_workloads::{Payload, WorkerMessage};

use crate::{JOB, Service, edited, find_pod, name, pod, training, uid};

const PLACES: [&str; 3] = ["surface-aggregation-", "surface-train-0-", "surface-train-1-"];

/// The pods of all places.
async fn pods(world: &World) -> [Value; 3] {
    [
        pod(world, PLACES[0]).await,
        pod(world, PLACES[1]).await,
        pod(world, PLACES[2]).await,
    ]
}

async fn uids(world: &World) -> [String; 3] {
    pods(world).await.each_ref().map(|pod| uid(pod).to_owned())
}

async fn phase(world: &World) -> String {
    let job = world.object::<FederatedLearningJob>("surface").await;
    text(&job, "/status/phase").to_owned()
}

async fn ready(world: &World) -> String {
    world.condition::<FederatedLearningJob>("surface", "Ready").await
}

/// Ends the containers of the pod in a place.
async fn exit(world: &World, place: &str, code: i32) {
    let pod = pod(world, place).await;
    world.kubelet.exit(NAMESPACE, name(&pod), code);
    world.settle().await;
}

async fn evict(world: &World, place: &str) {
    let pod = pod(world, place).await;
    world.kubelet.evict(NAMESPACE, name(&pod));
    world.settle().await;
}

/// Lets the job run to its good end.
async fn complete(world: &World) {
    for place in [PLACES[1], PLACES[2], PLACES[0]] {
        exit(world, place, 0).await;
    }
    assert_eq!(phase(world).await, "Succeeded");
}

/// Every trainer works with the aggregator that there is.
async fn assert_in_touch(world: &World) {
    let [aggregator, first, second] = pods(world).await;
    for trainer in [first, second] {
        let works_with = &trainer["metadata"]["annotations"]["skerry.io/aggregator-uid"];
        assert_eq!(works_with, uid(&aggregator));
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_to_its_end() {
    let world = training().await;
    assert_eq!(phase(&world).await, "Running");
    assert_eq!(world.names::<Service>().await, ["surface-aggregation"]);
    exit(&world, PLACES[1], 0).await;
    let status = world.object::<FederatedLearningJob>("surface").await["status"].take();
    assert_eq!(
        (&status["active"], &status["succeeded"], &status["phase"]),
        (&json!(2), &json!(1), &json!("Running"))
    );
    exit(&world, PLACES[2], 0).await;
    exit(&world, PLACES[0], 0).await;
    let status = world.object::<FederatedLearningJob>("surface").await["status"].take();
    assert_eq!(
        (&status["active"], &status["succeeded"], &status["failed"]),
        (&json!(0), &json!(3), &json!(0))
    );
    assert_eq!(status["phase"], "Succeeded");
    assert!(!status["completionTime"].is_null());
    assert_eq!(ready(&world).await, "True Completed: all workers ended well");
    assert_eq!(world.state::<FederatedLearningJob>("surface").await, "Complete");
    let events = world.events_about("surface").await;
    let completed: Vec<_> = events.iter().filter(|event| event.contains("Completed")).collect();
    assert_eq!(completed, ["Normal Completed: FederatedLearningJob completed"]);
}

#[tokio::test(start_paused = true)]
async fn pods_have_names_derived_from_the_job_and_workers_stable_ones() {
    let world = training().await;
    let before = pods(&world).await;
    let told = |pod: &Value| env(&pod["spec"])["WORKER_NAME"].as_str().unwrap().to_owned();
    assert!(told(&before[0]).starts_with("aggworker-"));
    assert!(told(&before[1]).starts_with("trainworker-"));
    assert_ne!(told(&before[1]), told(&before[2]));
    for pod in &before {
        assert_eq!(env(&pod["spec"])["JOB_NAME"], "surface");
    }
    world
        .apply(&edited(JOB, "example/aggregator:v1", "example/aggregator:v2"))
        .await;
    let after = pods(&world).await;
    for (before, after) in before.iter().zip(&after) {
        assert_ne!(uid(before), uid(after));
        assert_eq!(name(before), name(after));
        assert_eq!(told(before), told(after));
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_trainer_is_replaced_alone() {
    let world = training().await;
    let before = uids(&world).await;
    // A container that is told to end may well end with 0, its work undone: that is no success.
    world.kubelet.set_timing(Timing {
        stop_code: 0,
        ..world.kubelet.timing()
    });
    world
        .apply(&edited(JOB, "example/trainer-1:v1", "example/trainer-1:v2"))
        .await;
    let after = uids(&world).await;
    assert_eq!(after[..2], before[..2]);
    assert_ne!(after[2], before[2]);
    let trainer = pod(&world, PLACES[2]).await;
    assert_eq!(trainer["spec"]["containers"][0]["image"], "example/trainer-1:v2");
    assert_in_touch(&world).await;
    assert_eq!(phase(&world).await, "Running");
    complete(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_aggregator_restarts_the_trainers_too_and_says_why() {
    let world = training().await;
    let before = uids(&world).await;
    world
        .apply(&edited(JOB, "example/aggregator:v1", "example/aggregator:v2"))
        .await;
    let after = uids(&world).await;
    for (before, after) in before.iter().zip(&after) {
        assert_ne!(before, after);
    }
    assert_in_touch(&world).await;
    let events = world.events_about("surface").await;
    let told = "Warning AggregatorRestarted: the aggregator starts anew, and all trainers with it, because a connection \
                to it cannot be resumed: pods surface-train-0-";
    assert!(events.iter().any(|event| event.starts_with(told)), "{events:#?}");
    complete(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_trainer_that_is_added_or_taken_away_changes_the_number_of_participants() {
    let world = training().await;
    let third = "    - dataset:\n        name: share-0\n      template:\n        spec:\n          nodeName: edge-1\n          \
                 containers:\n            - name: trainer\n              image: example/trainer-2:v1\n";
    world.apply(&format!("{JOB}{third}")).await;
    let added = pod(&world, "surface-train-2-").await;
    assert_eq!(env(&added["spec"])["PARTICIPANTS_COUNT"], "3");
    for place in PLACES {
        assert_eq!(env(&pod(&world, place).await["spec"])["PARTICIPANTS_COUNT"], "3");
    }
    world.apply(JOB).await;
    assert!(find_pod(&world, "surface-train-2-").await.is_none());
    for place in PLACES {
        assert_eq!(env(&pod(&world, place).await["spec"])["PARTICIPANTS_COUNT"], "2");
    }
    assert_in_touch(&world).await;
    complete(&world).await;
}

#[tokio::test(start_paused = true)]
async fn an_evicted_trainer_is_replaced_alone_and_fails_nothing() {
    let world = training().await;
    let before = uids(&world).await;
    evict(&world, PLACES[2]).await;
    let after = uids(&world).await;
    assert_eq!(after[..2], before[..2]);
    assert_ne!(after[2], before[2]);
    let events = world.events_about("surface").await;
    assert!(
        events
            .iter()
            .any(|event| event.starts_with("Warning PodLost: Pod surface-train-1-") && event.contains("Evicted")),
        "{events:#?}"
    );
    complete(&world).await;
}

#[tokio::test(start_paused = true)]
async fn an_evicted_aggregator_is_replaced_and_the_trainers_with_it() {
    let world = training().await;
    let before = uids(&world).await;
    evict(&world, PLACES[0]).await;
    let after = uids(&world).await;
    for (before, after) in before.iter().zip(&after) {
        assert_ne!(before, after);
    }
    assert_in_touch(&world).await;
    complete(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_lost_node_is_replaced_once_the_node_is_given_up() {
    let world = World::start().await;
    let manifest = edited(
        JOB,
        "          nodeName: edge-2",
        "          nodeSelector: {node-role.kubernetes.io/edge: \"\"}",
    );
    world.apply(&manifest).await;
    let before = pod(&world, PLACES[2]).await;
    let node = text(&before, "/spec/nodeName").to_owned();
    world.lose_node(&node).await;
    // Kubernetes waits five minutes, deletes the pod, and then waits for the node's word.
    world
        .until("that a pod is being deleted", async || {
            let told = world.condition::<FederatedLearningJob>("surface", "Progressing").await;
            told.starts_with("True AwaitingDeletion: ").then_some(())
        })
        .await;
    world.settle().await;
    let told = world.condition::<FederatedLearningJob>("surface", "Progressing").await;
    let awaited = format!("Pod {} is being deleted from node {node}", name(&before));
    assert!(
        told.starts_with("True AwaitingDeletion: ") && told.contains(&awaited),
        "{told}"
    );
    assert_eq!(phase(&world).await, "Running", "no failure");
    world.delete_node(&node).await;
    let after = pod(&world, PLACES[2]).await;
    assert_ne!(uid(&after), uid(&before));
    assert_ne!(text(&after, "/spec/nodeName"), node);
    assert_eq!(text(&after, "/status/phase"), "Running");
}

#[tokio::test(start_paused = true)]
async fn two_jobs_do_not_touch_each_others_pods() {
    let world = training().await;
    world.apply(&edited(JOB, "name: surface", "name: other")).await;
    let others = ["other-aggregation-", "other-train-0-", "other-train-1-"];
    let mut before = vec![];
    for place in others {
        let pod = pod(&world, place).await;
        if place.contains("train") {
            assert_eq!(env(&pod["spec"])["AGG_IP"], format!("other-aggregation.{NAMESPACE}"));
        }
        before.push(uid(&pod).to_owned());
    }
    world
        .apply(&edited(JOB, "example/aggregator:v1", "example/aggregator:v2"))
        .await;
    evict(&world, PLACES[1]).await;
    complete(&world).await;
    world
        .delete::<FederatedLearningJob>("surface", &DeleteParams::background())
        .await;
    let mut after = vec![];
    for place in others {
        after.push(uid(&pod(&world, place).await).to_owned());
    }
    assert_eq!(after, before);
    let other = world.object::<FederatedLearningJob>("other").await;
    assert_eq!(other["status"]["phase"], "Running");
    assert_eq!(world.names::<Service>().await, ["other-aggregation"]);
}

/// What a trainer's worker library posts after a round.
fn round(pod: &Value, number: u8, accuracy: f64) -> WorkerMessage {
    let told = env(&pod["spec"]);
    let told = |key: &str| told[key].as_str().unwrap().to_owned();
    let figures = json!({"currentRound": number, "sampleCount": 200, "startTime": "2026-01-01 00:00:00",
        "updateTime": "2026-01-01 00:00:30"});
    let model = json!({"format": "ckpt", "url": "/var/models/defects", "metrics": {"accuracy": accuracy}});
    WorkerMessage {
        name: told("WORKER_NAME"),
        namespace: told("NAMESPACE"),
        owner_name: told("JOB_NAME"),
        owner_kind: "federatedlearningjob".to_owned(),
        kind: "train".to_owned(),
        status: "running".to_owned(),
        owner_info: figures.as_object().unwrap().clone(),
        results: vec![model.as_object().unwrap().clone()],
    }
}

#[tokio::test(start_paused = true)]
async fn every_round_is_in_the_status_while_the_job_runs_and_the_models_metrics_too() {
    let world = training().await;
    let [_, first, second] = pods(&world).await;
    let uid = world.uid::<FederatedLearningJob>("surface").await;
    for number in 1..=25_u8 {
        for (node, pod) in [("edge-1", &first), ("edge-2", &second)] {
            let message = round(pod, number, 0.5 + 0.01 * f64::from(number));
            let payload = Payload::Worker(Box::new(message));
            let taken = world
                .engine()
                .take_report(node, "federatedlearningjob", NAMESPACE, "surface", &uid, payload)
                .await;
            assert_eq!(taken, Taken::Accepted);
        }
        world.pass(Duration::from_secs(1)).await;
    }
    let job = world.object::<FederatedLearningJob>("surface").await;
    let rounds = job["status"]["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 25);
    assert_eq!(
        (&rounds[24]["round"], &rounds[24]["samples"]),
        (&json!(25), &json!(200))
    );
    let types = world.condition_types::<FederatedLearningJob>("surface").await;
    let training: Vec<_> = types.iter().filter(|type_| *type_ == "Training").collect();
    assert_eq!(training.len(), 20, "the newest");
    assert_eq!(types.last().unwrap(), "Training", "what Sedna's clients read");
    let model = world.object::<Model>("defects").await;
    assert_eq!(
        model["status"]["metrics"],
        json!([{"key": "accuracy", "value": "0.75"}])
    );
    complete(&world).await;
    let job = world.object::<FederatedLearningJob>("surface").await;
    assert_eq!(job["status"]["rounds"].as_array().unwrap().len(), 25);
    assert_eq!(world.state::<FederatedLearningJob>("surface").await, "Complete");
}
