//! A cluster that Sedna ran, and that changes hands: its definitions, its resources, what it made of them, all up.
//!
//! What Sedna writes is in `manifests/sedna/`: the names, labels, owners and environment of its version 0.7.

mod faults;
mod jobs;
mod services;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::{Pod, Service},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{ApiResource, Patch, PatchParams, PostParams},
    core::{DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::{Dataset, FederatedLearningJob, JointInferenceService, Model, VideoAnalyticsJob};
use skerry_tests::{NAMESPACE, World, definitions::install, look::Seen, world::MANAGER};

use crate::{JOB, RUNNING};

const DEFINITIONS: &str = include_str!("../../manifests/sedna/definitions.yaml");
const SERVICE: &str = include_str!("../../manifests/sedna/joint-inference.yaml");
const SERVICE_CHILDREN: &str = include_str!("../../manifests/sedna/joint-inference-children.yaml");
const JOB_CHILDREN: &str = include_str!("../../manifests/sedna/federated-learning-children.yaml");
const VIDEO: &str = include_str!("../../manifests/sedna/video-analytics.yaml");
const VIDEO_CHILDREN: &str = include_str!("../../manifests/sedna/video-analytics-children.yaml");

/// Sedna's manager, as its writes show.
const SEDNA: &str = "sedna-gm";

/// A cluster in which Sedna has run the service `helmet` and the job `surface`, and has been stopped.
async fn sednas() -> World {
    run_both(World::with_definitions(&definitions()).await).await
}

/// The same, but under our definitions.
async fn sednas_under_ours() -> World {
    run_both(World::without_manager().await).await
}

/// Sedna runs the service and the job.
async fn run_both(world: World) -> World {
    serve(&world).await;
    train(&world).await;
    world
}

fn definitions() -> Vec<CustomResourceDefinition> {
    serde_saphyr::from_multiple(DEFINITIONS).unwrap()
}

/// Sedna runs the service.
async fn serve(world: &World) {
    world.apply(SERVICE).await;
    let uid = world.uid::<JointInferenceService>("helmet").await;
    make(world, SERVICE_CHILDREN, &uid).await;
    // As Sedna so often leaves it: running, and failed for good.
    let status = json!({"active": 0, "failed": 2, "startTime": "2026-01-01T00:00:00Z", "conditions": [
        {"type": "Running", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
        {"type": "Failed", "status": "True", "reason": "workerFailed", "message": "the worker of service failed",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]});
    report::<JointInferenceService>(world, "helmet", status).await;
}

/// Sedna runs the job.
async fn train(world: &World) {
    world.apply(JOB).await;
    let uid = world.uid::<FederatedLearningJob>("surface").await;
    make(world, JOB_CHILDREN, &uid).await;
    let status = json!({"active": 3, "succeeded": 0, "failed": 0, "phase": "Running", "startTime":
        "2026-01-01T00:00:00Z", "conditions": [{"type": "Training", "status": "True", "reason": "DoTraining",
        "message": "Round 1 reaches at 2026-01-01T00:00:30Z"}]});
    report::<FederatedLearningJob>(world, "surface", status).await;
}

/// Sedna creates its children of the resource with this uid.
async fn make(world: &World, children: &str, uid: &str) {
    let how = PostParams {
        field_manager: Some(SEDNA.to_owned()),
        ..PostParams::default()
    };
    let children: Vec<DynamicObject> = serde_saphyr::from_multiple(&children.replace("UID", uid)).unwrap();
    for child in children {
        let kind = GroupVersionKind::try_from(child.types.as_ref().unwrap()).unwrap();
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = Api::namespaced_with(world.api.client_as(SEDNA), NAMESPACE, &resource);
        api.create(&how, &child).await.unwrap();
    }
    world.settle().await;
}

/// Sedna writes a status, whole.
async fn report<K: Seen>(world: &World, name: &str, status: Value) {
    let api: Api<K> = Api::namespaced(world.api.client_as(SEDNA), NAMESPACE);
    let how = PatchParams {
        field_manager: Some(SEDNA.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &how, &patch).await.unwrap();
}

/// Our definitions, over Sedna's own.
async fn install_ours(world: &World) {
    let kinds = [
        "Dataset",
        "FederatedLearningJob",
        "JointInferenceService",
        "Model",
        "VideoAnalyticsJob",
    ];
    install(&world.api.admin(), &kinds).await;
}

/// The cluster changes hands.
async fn change_hands(world: &World) {
    install_ours(world).await;
    take_over(world).await;
}

/// The same where our definitions are there already. Reading definitions takes an API server longer than all the rest, and whatever
/// was under Sedna's is under ours as it was, as [`installing_our_definitions_over_sednas_keeps_every_object_as_it_is`].
async fn take_over(world: &World) {
    world.start_manager();
    world.settle().await;
}

/// Whatever runs, by name: uids of pods, uids and generations of what makes them.
async fn running(world: &World) -> BTreeMap<String, String> {
    let mut running = BTreeMap::new();
    for pod in world.all::<Pod>().await {
        running.insert(format!("Pod {}", crate::name(&pod)), crate::uid(&pod).to_owned());
    }
    let mut makers = world.all::<Deployment>().await;
    makers.extend(world.all::<ReplicaSet>().await);
    makers.extend(world.all::<Service>().await);
    for maker in makers {
        let told = format!("{} {}", crate::uid(&maker), maker["spec"]);
        running.insert(crate::name(&maker).to_owned(), told);
    }
    running
}

/// Everything that was declared and told, of all kinds.
async fn resources(world: &World) -> Vec<Value> {
    let mut resources = world.all::<JointInferenceService>().await;
    resources.extend(world.all::<FederatedLearningJob>().await);
    resources.extend(world.all::<VideoAnalyticsJob>().await);
    resources.extend(world.all::<Model>().await);
    resources.extend(world.all::<Dataset>().await);
    for resource in &mut resources {
        let metadata = &resource["metadata"];
        let kept = ["name", "uid", "generation", "resourceVersion"].map(|key| metadata[key].clone());
        resource["metadata"] = json!(kept);
    }
    resources
}

#[tokio::test(start_paused = true)]
async fn installing_our_definitions_over_sednas_keeps_every_object_as_it_is() {
    let world = sednas().await;
    world.apply(VIDEO).await;
    let sample = json!({"numberOfSamples": 7, "updateTime": "2026-01-01T00:00:00Z"});
    report::<Dataset>(&world, "share-0", sample).await;
    let before = (resources(&world).await, running(&world).await);
    assert_eq!(before.0.len(), 8);
    install_ours(&world).await;
    world.settle().await;
    assert_eq!((resources(&world).await, running(&world).await), before);
    // They are valid under our definitions too, each and every one: any write would be refused otherwise.
    let note = json!({"metadata": {"annotations": {"note": "kept"}}});
    world.edit::<JointInferenceService>("helmet", note.clone()).await;
    world.edit::<FederatedLearningJob>("surface", note.clone()).await;
    world.edit::<VideoAnalyticsJob>("street", note.clone()).await;
    world.edit::<Model>("large", note.clone()).await;
    world.edit::<Dataset>("share-0", note).await;
    report::<JointInferenceService>(&world, "helmet", json!({"active": 1})).await;
    report::<FederatedLearningJob>(&world, "surface", json!({"active": 1})).await;
    report::<VideoAnalyticsJob>(&world, "street", json!({"phase": "Running"})).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_that_runs_is_restarted_or_changed_when_the_cluster_changes_hands() {
    let world = sednas().await;
    let before = running(&world).await;
    let mark = world.mark();
    change_hands(&world).await;
    assert_eq!(running(&world).await, before);
    let mut writes = world.writes_since(mark);
    writes.retain(|write| !write.contains("/status "));
    writes.sort();
    assert_eq!(
        writes,
        [
            "patch deployments helmet-deployment-cloud",
            "patch deployments helmet-deployment-edge",
            "patch pods surface-aggregation-x7k2p",
            "patch pods surface-train-9d4fm",
            "patch pods surface-train-qq8zt",
            "patch services helmet-cloud",
            "patch services surface-aggregation",
        ],
        "marks, and nothing else"
    );
    let ready = world.condition::<JointInferenceService>("helmet", "Ready").await;
    assert_eq!(ready, crate::READY);
    assert_eq!(world.state::<JointInferenceService>("helmet").await, "Running");
    let ready = world.condition::<FederatedLearningJob>("surface", "Ready").await;
    assert_eq!(ready, RUNNING);
    assert_eq!(world.state::<FederatedLearningJob>("surface").await, "Training");
    // Nor by the next manager, which finds all of it done.
    let mark = world.mark();
    world.restart_manager().await;
    world.settle().await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    assert_eq!(running(&world).await, before);
}

#[tokio::test(start_paused = true)]
async fn the_user_is_told_what_was_adopted() {
    let world = sednas().await;
    change_hands(&world).await;
    let told = world.events_about("helmet").await;
    let adopted = |event: &&String| event.starts_with("Normal WorkerAdopted: adopts Deployment helmet-deployment-");
    assert!(told.iter().any(|event| adopted(&event)), "{told:#?}");
    let told = world.events_about("surface").await;
    assert!(told.iter().any(|event| event.contains("PodsAdopted")), "{told:#?}");
}

/// Kinds that nobody but Sedna looks after stay as they are, their children too.
#[tokio::test(start_paused = true)]
async fn what_we_do_not_look_after_is_left_alone() {
    let world = sednas().await;
    world.apply(VIDEO).await;
    let uid = world.uid::<VideoAnalyticsJob>("street").await;
    make(&world, VIDEO_CHILDREN, &uid).await;
    let before = running(&world).await;
    let mark = world.mark();
    change_hands(&world).await;
    assert_eq!(running(&world).await, before);
    let writes = world.writes_of(MANAGER, mark);
    assert!(!writes.iter().any(|write| write.contains("street")), "{writes:#?}");
    // The user still has them, as plain objects.
    let edit =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "detector", "image": "example/detector:v2"}]}}}});
    world.edit::<VideoAnalyticsJob>("street", edit).await;
    assert_eq!(running(&world).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_paused_resource_is_adopted_once_it_is_no_longer_paused() {
    let world = sednas().await;
    let paused = |value: Value| json!({"metadata": {"annotations": {"skerry.io/paused": value}}});
    world
        .edit::<JointInferenceService>("helmet", paused(json!("true")))
        .await;
    world
        .edit::<FederatedLearningJob>("surface", paused(json!("true")))
        .await;
    let mark = world.mark();
    let before = running(&world).await;
    change_hands(&world).await;
    let mut writes = world.writes_since(mark);
    writes.retain(|write| !write.contains("/status "));
    assert_eq!(writes, Vec::<String>::new());
    world.edit::<JointInferenceService>("helmet", paused(Value::Null)).await;
    world.edit::<FederatedLearningJob>("surface", paused(Value::Null)).await;
    assert_eq!(running(&world).await, before);
    assert_eq!(crate::find_pod(&world, "surface-train-0-").await, None);
}

/// The manager goes, and Sedna's definitions come back over ours.
#[tokio::test(start_paused = true)]
async fn the_way_back_deletes_and_restarts_nothing() {
    let world = sednas().await;
    change_hands(&world).await;
    let edit = crate::image("edgeWorker", "little", "example/little:v2");
    world.edit::<JointInferenceService>("helmet", edit).await;
    world.kill_manager().await;
    let specs = async |world: &World| {
        let resources = resources(world).await;
        resources
            .into_iter()
            .map(|resource| resource["spec"].clone())
            .collect::<Vec<_>>()
    };
    let before = (specs(&world).await, running(&world).await);
    let crds: Api<CustomResourceDefinition> = Api::all(world.api.admin());
    for crd in definitions() {
        let name = crd.metadata.name.as_deref().unwrap();
        let how = PatchParams::apply("kubectl").force();
        crds.patch(name, &how, &Patch::Apply(&crd)).await.unwrap();
    }
    world.settle().await;
    assert_eq!((specs(&world).await, running(&world).await), before);
    // What Sedna finds its own by.
    for deployment in world.all::<Deployment>().await {
        let labels = &deployment["metadata"]["labels"];
        assert_eq!(labels, &deployment["spec"]["selector"]["matchLabels"]);
        assert_eq!(labels["jointinferenceservice.sedna.io/name"], "helmet");
    }
    report::<JointInferenceService>(&world, "helmet", json!({"active": 2})).await;
}
