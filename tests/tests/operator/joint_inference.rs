//! Joint inference services, from the manifest to the children and back.

use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::Pod};
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::JointInferenceService;
use skerry_globalmanager::engine::Taken;
use skerry_sandbox::cluster::Behaviour;
use skerry_tests::{
    NAMESPACE, World,
    look::{env, text},
};
use skerry_workloads::{ObjectKind, Payload, WorkerMessage};

use crate::{CLOUD, EDGE, READY, SERVICE, Service, image, serving};

/// What the template of a Deployment sets.
async fn worker_env(world: &World, deployment: &str) -> std::collections::BTreeMap<String, Value> {
    env(&world.object::<Deployment>(deployment).await["spec"]["template"]["spec"])
}

/// Says what the pods with a container of this name do.
fn behave(world: &World, container: &'static str, behaviour: Behaviour) {
    world.kubelet.behave(move |pod| {
        let containers = &pod.spec.as_ref()?.containers;
        let meant = containers.iter().any(|known| known.name == container);
        meant.then(|| behaviour.clone())
    });
}

#[tokio::test(start_paused = true)]
async fn children_have_names_derived_from_the_service() {
    let world = serving().await;
    let scaled = json!({"spec": {"edgeWorker": {"hpa": {"maxReplicas": 3}}}});
    world.edit::<JointInferenceService>("helmet", scaled).await;
    assert_eq!(world.names::<Deployment>().await, [CLOUD, EDGE]);
    assert_eq!(world.names::<Service>().await, ["helmet-cloud"]);
    assert_eq!(
        world.names::<HorizontalPodAutoscaler>().await,
        ["hpa-helmet-deployment-edge"]
    );
    assert_eq!(world.all::<Pod>().await.len(), 2, "one pod a worker");
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_worker_is_stable_and_both_workers_know_the_job() {
    let world = serving().await;
    let before = [worker_env(&world, EDGE).await, worker_env(&world, CLOUD).await];
    assert!(text(&before[0]["WORKER_NAME"], "").starts_with("edgeworker-"));
    assert!(text(&before[1]["WORKER_NAME"], "").starts_with("cloudworker-"));
    for worker in &before {
        assert_eq!(worker["JOB_NAME"], "helmet");
    }
    let edit = image("edgeWorker", "little", "example/little:v2");
    world.edit::<JointInferenceService>("helmet", edit).await;
    world.restart_manager().await;
    world.settle().await;
    let after = [worker_env(&world, EDGE).await, worker_env(&world, CLOUD).await];
    assert_eq!(after, before);
}

#[tokio::test(start_paused = true)]
async fn what_the_edge_worker_reports_arrives_in_the_status() {
    let world = serving().await;
    let worker = worker_env(&world, EDGE).await;
    let told = |key: &str| worker[key].as_str().unwrap().to_owned();
    let figures = json!({"startTime": "2026-01-01 00:00:00", "updateTime": "2026-01-01 00:00:30",
        "inferenceNumber": 20, "hardExampleNumber": 5, "uploadCloudRatio": 0.25});
    let message = WorkerMessage {
        name: told("WORKER_NAME"),
        namespace: told("NAMESPACE"),
        owner_name: told("JOB_NAME"),
        owner_kind: "jointinferenceservice".to_owned(),
        kind: "inference".to_owned(),
        owner_info: figures.as_object().unwrap().clone(),
        ..WorkerMessage::default()
    };
    let uid = world.uid::<JointInferenceService>(&message.owner_name).await;
    let taken = world
        .engine()
        .take_report(
            "edge-1",
            &message.owner_kind.clone(),
            NAMESPACE,
            &message.owner_name.clone(),
            &uid,
            Payload::Worker(Box::new(message)),
        )
        .await;
    assert_eq!(taken, Taken::Accepted);
    // What the manager writes of its own accord leaves it alone.
    let edit = image("edgeWorker", "little", "example/little:v2");
    world.edit::<JointInferenceService>("helmet", edit).await;
    let service = world.object::<JointInferenceService>("helmet").await;
    assert_eq!(
        service["status"]["metrics"],
        json!([
            {"key": "hardExampleNumber", "value": "5"},
            {"key": "inferenceNumber", "value": "20"},
            {"key": "uploadCloudRatio", "value": "0.25"},
        ])
    );
    assert_eq!(service["status"]["observedGeneration"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_service_is_judged_by_the_availability_of_its_deployments() {
    let world = World::start().await;
    behave(&world, "little", Behaviour::NeverReady);
    world.apply(SERVICE).await;
    assert_eq!(
        world.condition::<JointInferenceService>("helmet", "Ready").await,
        "False WorkersUnavailable: waiting for available pods of the edge worker"
    );
    assert_eq!(world.state::<JointInferenceService>("helmet").await, "Pending");
    let status = world.object::<JointInferenceService>("helmet").await["status"].take();
    assert_eq!((&status["active"], &status["failed"]), (&json!(1), &json!(0)));
    behave(&world, "little", Behaviour::Run);
    world.settle().await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
    assert_eq!(world.state::<JointInferenceService>("helmet").await, "Running");
    let status = world.object::<JointInferenceService>("helmet").await["status"].take();
    assert_eq!((&status["active"], &status["failed"]), (&json!(2), &json!(0)));
}

#[tokio::test(start_paused = true)]
async fn a_flap_of_availability_heals() {
    let world = serving().await;
    world.lose_node("edge-1").await;
    assert_eq!(
        world.condition::<JointInferenceService>("helmet", "Ready").await,
        "False WorkersUnavailable: waiting for available pods of the edge worker"
    );
    let mark = world.mark();
    world.restore_node("edge-1").await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
    assert_eq!(world.state::<JointInferenceService>("helmet").await, "Running");
    let writes = world.writes_since(mark);
    assert!(
        writes
            .iter()
            .all(|write| write == "patch jointinferenceservices/status helmet"),
        "no child was touched: {writes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_state_is_terminal() {
    let world = serving().await;
    behave(
        &world,
        "little",
        Behaviour::fail_after(std::time::Duration::from_secs(5)),
    );
    world.settle().await;
    let failing = |message: &str| {
        message.starts_with("False ContainerFailing: container little of Pod helmet-deployment-edge-")
            && message.ends_with("keeps failing, last with exit code 1")
    };
    world
        .until("the failure", async || {
            let ready = world.condition::<JointInferenceService>("helmet", "Ready").await;
            failing(&ready).then_some(())
        })
        .await;
    assert_eq!(world.state::<JointInferenceService>("helmet").await, "Failed");
    behave(&world, "little", Behaviour::Run);
    world
        .until("the recovery", async || {
            let ready = world.condition::<JointInferenceService>("helmet", "Ready").await;
            (ready == READY).then_some(())
        })
        .await;
    world.settle().await;
    assert_eq!(
        world.condition_types::<JointInferenceService>("helmet").await,
        ["Ready", "Progressing", "Degraded", "Running"],
        "the failure that is over is told no more"
    );
}

#[tokio::test(start_paused = true)]
async fn an_edge_worker_outside_its_nodes_network_reaches_its_local_controller() {
    let world = serving().await;
    let worker = worker_env(&world, EDGE).await;
    assert_eq!(worker["LC_SERVER"], "http://$(HOST_IP):9100");
    assert_eq!(worker["HOST_IP"]["fieldRef"]["fieldPath"], "status.hostIP");
    assert!(!worker_env(&world, CLOUD).await.contains_key("LC_SERVER"));
    let edit = json!({"spec": {"edgeWorker": {"template": {"spec": {"hostNetwork": true}}}}});
    world.edit::<JointInferenceService>("helmet", edit).await;
    assert_eq!(worker_env(&world, EDGE).await["LC_SERVER"], "http://localhost:9100");
}

#[tokio::test(start_paused = true)]
async fn the_metadata_of_a_template_reaches_the_pods() {
    let world = World::start().await;
    let manifest = crate::edited(
        SERVICE,
        "template:\n",
        "template:\n      metadata:\n        labels: {team: red}\n        annotations: {example.org/note: kept}\n",
    );
    world.apply(&manifest).await;
    let pods = world.all::<Pod>().await;
    let edge = pods.iter().find(|pod| crate::name(pod).starts_with(EDGE)).unwrap();
    assert_eq!(edge["metadata"]["labels"]["team"], "red");
    assert_eq!(edge["metadata"]["annotations"]["example.org/note"], "kept");
}

#[tokio::test(start_paused = true)]
async fn the_edge_node_is_told_of_its_worker() {
    let world = serving().await;
    let told = world
        .held
        .on("edge-1", ObjectKind::JOINT_INFERENCE_SERVICE, "helmet")
        .unwrap();
    assert_eq!(
        told["metadata"]["uid"],
        world.uid::<JointInferenceService>("helmet").await
    );
    assert_eq!(told["workers"], json!([worker_env(&world, EDGE).await["WORKER_NAME"]]));
    let nodes: Vec<_> = world
        .held
        .parts(ObjectKind::JOINT_INFERENCE_SERVICE, "helmet")
        .into_keys()
        .collect();
    assert_eq!(nodes, ["edge-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_the_scheduler_places_is_told_to_the_node_where_it_runs() {
    let world = World::start().await;
    let manifest = crate::edited(
        SERVICE,
        "nodeName: edge-1",
        "nodeSelector: {node-role.kubernetes.io/edge: \"\"}",
    );
    world.apply(&manifest).await;
    let placed = async || {
        let pods = world.all::<Pod>().await;
        let mut edge = pods
            .iter()
            .filter(|pod| crate::name(pod).starts_with(EDGE) && pod["metadata"]["deletionTimestamp"].is_null())
            .map(|pod| text(pod, "/spec/nodeName").to_owned());
        edge.next().filter(|node| !node.is_empty() && edge.next().is_none())
    };
    let first = placed().await.unwrap();
    let told = || {
        let parts = world.held.parts(ObjectKind::JOINT_INFERENCE_SERVICE, "helmet");
        parts.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(told(), std::slice::from_ref(&first));
    // After the node is lost, the Deployment's pod is made anew on the other one. The lost node's own may still run.
    world.lose_node(&first).await;
    let second = world
        .until("its pod on the other node", async || {
            placed().await.filter(|node| *node != first)
        })
        .await;
    world.settle().await;
    assert_eq!(placed().await.as_ref(), Some(&second));
    assert_eq!(told().len(), 2);
    world.delete_node(&first).await;
    assert_eq!(told(), [second]);
}
