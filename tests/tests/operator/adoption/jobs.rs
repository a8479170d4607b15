//! Jobs that change hands.

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use rstest::rstest;
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::FederatedLearningJob;
use skerry_tests::{NAMESPACE, World, look::text};
use skerry_workloads::ObjectKind;
use tokio::time::sleep;

use super::{JOB_CHILDREN, make, report, running, take_over, train};
use crate::{JOB, RUNNING, Service, edited, name, uid};

const AGGREGATOR: &str = "surface-aggregation-x7k2p";
const FIRST: &str = "surface-train-qq8zt";
const SECOND: &str = "surface-train-9d4fm";

/// The job alone, in our hands.
async fn adopted() -> World {
    let world = World::without_manager().await;
    train(&world).await;
    take_over(&world).await;
    world
}

async fn place(world: &World, pod: &str) -> Value {
    world.object::<Pod>(pod).await["metadata"]["annotations"]["skerry.io/adopted-place"].clone()
}

/// What the job's status says of its workers: role and number, pod, outcome.
async fn workers(world: &World) -> Vec<String> {
    let job = world.object::<FederatedLearningJob>("surface").await;
    let workers = job["status"]["workers"].as_array().cloned().unwrap_or_default();
    let told = |worker: &Value| {
        let number = worker["index"]
            .as_i64()
            .map(|index| format!("-{index}"))
            .unwrap_or_default();
        let part = |pointer| text(worker, pointer).to_owned();
        format!("{}{number} {} {}", part("/role"), part("/podName"), part("/outcome"))
    };
    workers.iter().map(told).collect()
}

#[tokio::test(start_paused = true)]
async fn pods_under_random_names_are_the_workers_of_their_places() {
    let world = adopted().await;
    assert_eq!(
        workers(&world).await,
        [
            format!("aggregation {AGGREGATOR} Running"),
            format!("train-0 {FIRST} Running"),
            format!("train-1 {SECOND} Running"),
        ]
    );
    let job = world.object::<FederatedLearningJob>("surface").await;
    assert_eq!(
        (&job["status"]["active"], &job["status"]["phase"]),
        (&json!(3), &json!("Running"))
    );
    assert_eq!(
        job["status"]["workers"][1]["name"], "trainworker-qq8zt",
        "as it reports"
    );
    let told = world
        .held
        .on("edge-2", ObjectKind::FEDERATED_LEARNING_JOB, "surface")
        .unwrap();
    assert_eq!(told["workers"], json!(["trainworker-9d4fm"]));
}

/// Both trainers have the same samples, and only their nodes tell them apart.
#[tokio::test(start_paused = true)]
async fn a_trainers_position_comes_from_its_dataset_and_its_node() {
    let world = World::without_manager().await;
    let same = |manifest: &str| manifest.replace("name: share-1\n      template", "name: share-0\n      template");
    world.apply(&same(JOB)).await;
    let job = world.uid::<FederatedLearningJob>("surface").await;
    make(&world, &JOB_CHILDREN.replace("value: share-1", "value: share-0"), &job).await;
    let before = running(&world).await;
    take_over(&world).await;
    assert_eq!(running(&world).await, before);
    assert_eq!(
        (place(&world, FIRST).await, place(&world, SECOND).await),
        (json!("train-0"), json!("train-1"))
    );
}

/// A template that leaves the node to the scheduler takes any pod with its samples.
#[tokio::test(start_paused = true)]
async fn a_trainer_that_the_scheduler_placed_is_known_by_its_samples() {
    let world = World::without_manager().await;
    let anywhere = JOB.replace("          nodeName: edge-2\n", "");
    assert_ne!(anywhere, JOB);
    world.apply(&anywhere).await;
    let job = world.uid::<FederatedLearningJob>("surface").await;
    make(&world, JOB_CHILDREN, &job).await;
    take_over(&world).await;
    assert_eq!(
        (place(&world, FIRST).await, place(&world, SECOND).await),
        (json!("train-0"), json!("train-1"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_adopted_trainer_is_replaced_alone_when_one_of_its_inputs_changes() {
    let world = adopted().await;
    let before = [world.object::<Pod>(AGGREGATOR).await, world.object::<Pod>(FIRST).await];
    world
        .apply(&edited(JOB, "example/trainer-1:v1", "example/trainer-1:v2"))
        .await;
    assert_eq!(world.find::<Pod>(SECOND).await, None);
    let second = crate::pod(&world, "surface-train-1-").await;
    assert_eq!(second["spec"]["containers"][0]["image"], "example/trainer-1:v2");
    assert_eq!(
        second["metadata"]["annotations"]["skerry.io/aggregator-uid"],
        json!(uid(&before[0])),
        "it works with the aggregator that Sedna made"
    );
    for pod in &before {
        assert_eq!(uid(&world.object::<Pod>(name(pod)).await), uid(pod));
    }
    assert_eq!(
        world.condition::<FederatedLearningJob>("surface", "Ready").await,
        RUNNING
    );
}

#[tokio::test(start_paused = true)]
async fn an_adopted_aggregator_takes_its_trainers_along() {
    let world = adopted().await;
    world
        .apply(&edited(JOB, "example/aggregator:v1", "example/aggregator:v2"))
        .await;
    let mut pods = world.names::<Pod>().await;
    pods.retain(|pod| [AGGREGATOR, FIRST, SECOND].contains(&pod.as_str()));
    assert_eq!(pods, Vec::<String>::new());
    let aggregator = crate::pod(&world, "surface-aggregation-").await;
    for trainer in ["surface-train-0-", "surface-train-1-"] {
        let trainer = crate::pod(&world, trainer).await;
        assert_eq!(
            trainer["metadata"]["annotations"]["skerry.io/aggregator-uid"],
            json!(uid(&aggregator))
        );
    }
}

/// The place is free only when the old pod is gone, whatever its name.
#[tokio::test(start_paused = true)]
async fn there_never_are_two_pods_in_one_place() {
    let world = adopted().await;
    let edit = edited(JOB, "example/trainer-1:v1", "example/trainer-1:v2");
    world.try_apply(&edit).await.unwrap();
    let mut looks = 0;
    loop {
        let pods = world.names::<Pod>().await;
        let is_new = |pod: &&String| pod.starts_with("surface-train-1-");
        let second = pods.iter().filter(|pod| *pod == SECOND || is_new(pod));
        assert!(second.count() <= 1, "{pods:?}");
        if pods.iter().any(|pod| is_new(&pod)) {
            break;
        }
        looks += 1;
        assert!(looks < 1200, "the place is never taken: {pods:?}");
        sleep(std::time::Duration::from_millis(50)).await;
    }
    world.settle().await;
    assert_eq!(world.find::<Pod>(SECOND).await, None);
    crate::pod(&world, "surface-train-1-").await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_sedna_began_comes_to_its_end() {
    let world = adopted().await;
    let mark = world.mark();
    for pod in [FIRST, SECOND, AGGREGATOR] {
        world.kubelet.exit(NAMESPACE, pod, 0);
        world.settle().await;
    }
    assert_eq!(world.state::<FederatedLearningJob>("surface").await, "Complete");
    let job = world.object::<FederatedLearningJob>("surface").await;
    assert_eq!(
        (&job["status"]["succeeded"], &job["status"]["phase"]),
        (&json!(3), &json!("Succeeded"))
    );
    let writes = world.writes_since(mark);
    assert!(writes.iter().all(|write| write.contains("/status ")), "{writes:#?}");
}

/// Workers ended while nobody looked after the job, and their pods are still there to tell.
#[rstest]
#[case::well(0, "Complete")]
#[case::badly(1, "Failed")]
#[tokio::test(start_paused = true)]
async fn what_ended_between_two_managers_counts(#[case] code: i32, #[case] state: &str) {
    let world = World::without_manager().await;
    world.apply(JOB).await;
    let job = world.uid::<FederatedLearningJob>("surface").await;
    make(
        &world,
        &JOB_CHILDREN.replace("restartPolicy: OnFailure", "restartPolicy: Never"),
        &job,
    )
    .await;
    for (pod, code) in [(FIRST, 0), (SECOND, code), (AGGREGATOR, 0)] {
        world.kubelet.exit(NAMESPACE, pod, code);
    }
    world.settle().await;
    let before = running(&world).await;
    take_over(&world).await;
    assert_eq!(world.state::<FederatedLearningJob>("surface").await, state);
    assert_eq!(running(&world).await, before);
}

#[rstest]
#[case::complete("Complete", json!({"phase": "Succeeded", "active": 0, "succeeded": 3, "failed": 0}))]
#[case::failed("Failed", json!({"phase": "Failed", "active": 0, "succeeded": 2, "failed": 1}))]
#[tokio::test(start_paused = true)]
async fn a_job_that_ended_under_sedna_stays_as_it_ended(#[case] state: &str, #[case] counts: Value) {
    let world = World::without_manager().await;
    train(&world).await;
    let mut status = counts.clone();
    status["conditions"] = json!([{"type": "Training", "status": "True", "reason": "DoTraining", "message": "Round 1"},
        {"type": state, "status": "True", "reason": "workerFailed", "message": "the worker of job failed"}]);
    report::<FederatedLearningJob>(&world, "surface", status).await;
    world.delete::<Pod>(SECOND, &DeleteParams::default()).await;
    let before = running(&world).await;
    take_over(&world).await;
    world
        .apply(&edited(JOB, "example/aggregator:v1", "example/aggregator:v2"))
        .await;
    assert_eq!(running(&world).await, before);
    assert_eq!(world.state::<FederatedLearningJob>("surface").await, state);
    let status = world.object::<FederatedLearningJob>("surface").await["status"].clone();
    for (count, value) in counts.as_object().unwrap() {
        assert_eq!(&status[count], value, "{count}");
    }
}

/// Sedna now and then made a pod again beside the old one. One of the two is the worker.
#[tokio::test(start_paused = true)]
async fn of_two_pods_for_one_place_the_elder_stays() {
    let world = World::without_manager().await;
    train(&world).await;
    world.pass(std::time::Duration::from_secs(60)).await;
    let job = world.uid::<FederatedLearningJob>("surface").await;
    let trainer = JOB_CHILDREN.split("---\n").find(|child| child.contains(FIRST)).unwrap();
    let again = trainer.replace(FIRST, "surface-train-aaaaa");
    make(&world, &again, &job).await;
    let mut before = running(&world).await;
    take_over(&world).await;
    before.remove("Pod surface-train-aaaaa").unwrap();
    assert_eq!(running(&world).await, before);
}

#[tokio::test(start_paused = true)]
async fn an_adopted_pod_that_is_deleted_or_evicted_is_made_again() {
    let world = adopted().await;
    world.delete::<Pod>(FIRST, &DeleteParams::default()).await;
    world.kubelet.evict(NAMESPACE, SECOND);
    world.pass(std::time::Duration::from_secs(120)).await;
    assert_eq!(world.names::<Pod>().await.len(), 3);
    assert_eq!(
        world.condition::<FederatedLearningJob>("surface", "Ready").await,
        RUNNING
    );
}

#[tokio::test(start_paused = true)]
async fn an_adopted_job_is_deleted_with_its_children() {
    let world = adopted().await;
    world
        .delete::<FederatedLearningJob>("surface", &DeleteParams::background())
        .await;
    assert_eq!(world.names::<Pod>().await, Vec::<String>::new());
    assert_eq!(world.names::<Service>().await, Vec::<String>::new());
}
