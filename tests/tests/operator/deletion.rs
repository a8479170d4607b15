//! Deletion: a child that is deleted is made again while its owner lives; an owner on its way out gets nothing new.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::Pod};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, JointInferenceService};
use skerry_tests::{
    World,
    look::{Seen, text},
};
use skerry_workloads::ObjectKind;

use crate::{CLOUD, EDGE, JOB, READY, SERVICE, Service, name, pod, serving, training};

const HPA: &str = "hpa-helmet-deployment-edge";

/// Longer than any event takes to arrive, shorter than any retry.
const AT_ONCE: Duration = Duration::from_millis(100);

async fn scaled() -> World {
    let world = serving().await;
    let edit = json!({"spec": {"edgeWorker": {"hpa": {"maxReplicas": 3}}}});
    world.edit::<JointInferenceService>("helmet", edit).await;
    world
}

/// Deletes a child that somebody else holds back for an hour: meanwhile a condition of the owner says what is awaited,
/// nothing polls, and once the child is gone it is made again at once.
async fn is_made_again<O: Seen, K: Seen>(world: &World, owner: &str, child: &str) {
    let hold = json!({"metadata": {"finalizers": ["example.org/hold"]}});
    world.edit::<K>(child, hold).await;
    let before = world.uid::<K>(child).await;
    world.delete::<K>(child, &DeleteParams::default()).await;
    let told = world.condition::<O>(owner, "Progressing").await;
    let kind = K::kind(&());
    let awaited = format!("{kind} {child} is being deleted");
    assert!(
        told.starts_with("True AwaitingDeletion: ") && told.contains(&awaited),
        "{told}"
    );
    let mark = world.mark();
    world.pass(Duration::from_secs(3600)).await;
    let asked = world.api.requests().since(mark);
    let ours = asked
        .iter()
        .filter(|entry| entry.request.user == skerry_tests::world::MANAGER);
    let ours: Vec<_> = ours
        .filter(|entry| !entry.request.verb.to_string().contains("watch"))
        .collect();
    assert!(ours.is_empty(), "nobody polls: {ours:#?}");
    let release = json!({"metadata": {"finalizers": null}});
    world
        .view::<K>()
        .patch(
            child,
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(release),
        )
        .await
        .unwrap();
    world.pass(AT_ONCE).await;
    assert_ne!(world.uid::<K>(child).await, before);
    world.settle().await;
    assert!(
        world.condition::<O>(owner, "Ready").await.starts_with("True "),
        "all is well again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_deployment_is_made_again() {
    let world = serving().await;
    is_made_again::<JointInferenceService, Deployment>(&world, "helmet", EDGE).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_service_is_made_again() {
    let world = serving().await;
    is_made_again::<JointInferenceService, Service>(&world, "helmet", "helmet-cloud").await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_autoscaler_is_made_again() {
    let world = scaled().await;
    is_made_again::<JointInferenceService, HorizontalPodAutoscaler>(&world, "helmet", HPA).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_of_a_job_is_made_again() {
    let world = training().await;
    let trainer = name(&pod(&world, "surface-train-0-").await).to_owned();
    is_made_again::<FederatedLearningJob, Pod>(&world, "surface", &trainer).await;
}

#[tokio::test(start_paused = true)]
async fn a_jobs_deleted_service_is_made_again() {
    let world = training().await;
    is_made_again::<FederatedLearningJob, Service>(&world, "surface", "surface-aggregation").await;
}

#[tokio::test(start_paused = true)]
async fn all_children_deleted_at_once_are_made_again() {
    let world = scaled().await;
    for deployment in [EDGE, CLOUD] {
        let how = DeleteParams::foreground();
        world.view::<Deployment>().delete(deployment, &how).await.unwrap();
    }
    let how = DeleteParams::default();
    world.view::<Service>().delete("helmet-cloud", &how).await.unwrap();
    world.view::<HorizontalPodAutoscaler>().delete(HPA, &how).await.unwrap();
    world.settle().await;
    assert_eq!(world.names::<Deployment>().await, [CLOUD, EDGE]);
    assert_eq!(world.names::<Service>().await, ["helmet-cloud"]);
    assert_eq!(world.names::<HorizontalPodAutoscaler>().await, [HPA]);
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

#[tokio::test(start_paused = true)]
async fn a_child_deleted_while_the_manager_is_down_is_made_again_afterwards() {
    let world = serving().await;
    world.kill_manager().await;
    world.delete::<Service>("helmet-cloud", &DeleteParams::default()).await;
    world.start_manager();
    world.settle().await;
    assert_eq!(world.names::<Service>().await, ["helmet-cloud"]);
}

/// All that the manager may have made.
async fn children(world: &World) -> Vec<String> {
    let mut names = world.names::<Deployment>().await;
    names.extend(world.names::<Service>().await);
    names.extend(world.names::<HorizontalPodAutoscaler>().await);
    names.extend(world.names::<Pod>().await);
    names
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_in_the_background_gets_nothing_new_and_its_children_go() {
    let world = scaled().await;
    world.apply(JOB).await;
    let mark = world.mark();
    let how = DeleteParams::background();
    world.delete::<JointInferenceService>("helmet", &how).await;
    world.delete::<FederatedLearningJob>("surface", &how).await;
    assert_eq!(children(&world).await, Vec::<String>::new());
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    assert_eq!(
        world.held.on("edge-1", ObjectKind::JOINT_INFERENCE_SERVICE, "helmet"),
        None
    );
    assert_eq!(
        world.held.on("edge-1", ObjectKind::FEDERATED_LEARNING_JOB, "surface"),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_in_the_foreground_gets_nothing_new_and_goes_within_seconds() {
    let world = scaled().await;
    world.apply(JOB).await;
    let mark = world.mark();
    let how = DeleteParams::foreground();
    world
        .view::<JointInferenceService>()
        .delete("helmet", &how)
        .await
        .unwrap();
    world
        .view::<FederatedLearningJob>()
        .delete("surface", &how)
        .await
        .unwrap();
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(world.find::<JointInferenceService>("helmet").await, None);
    assert_eq!(world.find::<FederatedLearningJob>("surface").await, None);
    assert_eq!(children(&world).await, Vec::<String>::new());
    world.settle().await;
    assert_eq!(children(&world).await, Vec::<String>::new());
    let mut writes = world.writes_since(mark);
    writes.retain(|write| !write.contains("/status "));
    assert_eq!(writes, Vec::<String>::new());
}

/// As `kubectl delete --cascade=orphan`.
async fn orphan<K: Seen>(world: &World, name: &str) {
    world.delete::<K>(name, &DeleteParams::orphan()).await;
    assert_eq!(world.find::<K>(name).await, None);
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_as_orphaning_leaves_its_children_without_an_owner() {
    let world = scaled().await;
    world.apply(JOB).await;
    let before = children(&world).await;
    let mark = world.mark();
    orphan::<JointInferenceService>(&world, "helmet").await;
    orphan::<FederatedLearningJob>(&world, "surface").await;
    assert_eq!(children(&world).await, before);
    let orphans = [
        world.all::<Deployment>().await,
        world.all::<Service>().await,
        world.all::<HorizontalPodAutoscaler>().await,
        world.all::<Pod>().await,
    ]
    .concat();
    let owned: Vec<_> = orphans
        .iter()
        .map(|orphan| text(orphan, "/metadata/ownerReferences/0/kind"))
        .filter(|owner| !owner.is_empty() && *owner != "ReplicaSet")
        .collect();
    assert_eq!(owned, Vec::<&str>::new());
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    // An orphan that goes stays away.
    world.delete::<Service>("helmet-cloud", &DeleteParams::default()).await;
    world.delete::<Deployment>(EDGE, &DeleteParams::default()).await;
    assert_eq!(world.find::<Service>("helmet-cloud").await, None);
    assert_eq!(world.find::<Deployment>(EDGE).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_new_owner_of_the_same_name_does_not_take_over_orphans() {
    let world = serving().await;
    orphan::<JointInferenceService>(&world, "helmet").await;
    let before = world.object::<Deployment>(EDGE).await;
    world.apply(SERVICE).await;
    let told = world.condition::<JointInferenceService>("helmet", "Ready").await;
    assert!(
        told.starts_with("False NameTaken: ") && told.contains(&format!("Deployment {EDGE} exists and is not this")),
        "{told}"
    );
    let after = world.object::<Deployment>(EDGE).await;
    assert_eq!(
        after["metadata"]["resourceVersion"],
        before["metadata"]["resourceVersion"]
    );
    // Whoever wants them gone deletes them; then the new owner's are made.
    for orphan in [EDGE, CLOUD] {
        world.delete::<Deployment>(orphan, &DeleteParams::default()).await;
    }
    world.delete::<Service>("helmet-cloud", &DeleteParams::default()).await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

#[tokio::test(start_paused = true)]
async fn a_new_owner_of_the_same_name_waits_until_the_old_ones_children_are_gone() {
    let world = serving().await;
    let hold = json!({"metadata": {"finalizers": ["example.org/hold"]}});
    world.edit::<Deployment>(EDGE, hold).await;
    let old = world.uid::<JointInferenceService>("helmet").await;
    world
        .delete::<JointInferenceService>("helmet", &DeleteParams::background())
        .await;
    world.apply(SERVICE).await;
    let told = world.condition::<JointInferenceService>("helmet", "Progressing").await;
    assert!(
        told.starts_with("True AwaitingDeletion: ") && told.contains(EDGE),
        "{told}"
    );
    let release = json!({"metadata": {"finalizers": null}});
    world.edit::<Deployment>(EDGE, release).await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
    let owner = &world.object::<Deployment>(EDGE).await["metadata"]["ownerReferences"][0]["uid"];
    assert_ne!(owner, &json!(old));
}

#[tokio::test(start_paused = true)]
async fn an_owner_held_back_on_its_way_out_gets_nothing_new() {
    let world = World::start().await;
    world.apply(SERVICE).await;
    let hold = json!({"metadata": {"finalizers": ["example.org/hold"]}});
    world.edit::<JointInferenceService>("helmet", hold).await;
    world
        .delete::<JointInferenceService>("helmet", &DeleteParams::background())
        .await;
    let mark = world.mark();
    world.delete::<Service>("helmet-cloud", &DeleteParams::default()).await;
    let edit = crate::image("edgeWorker", "little", "example/little:v2");
    world.edit::<JointInferenceService>("helmet", edit).await;
    world.restart_manager().await;
    world.settle().await;
    assert_eq!(world.find::<Service>("helmet-cloud").await, None);
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn whoever_uninstalled_the_manager_can_still_delete() {
    let world = serving().await;
    world.apply(JOB).await;
    world.kill_manager().await;
    for how in [DeleteParams::foreground(), DeleteParams::background()] {
        let _ = world.view::<JointInferenceService>().delete("helmet", &how).await;
        let _ = world.view::<FederatedLearningJob>().delete("surface", &how).await;
        world.settle().await;
    }
    assert_eq!(world.find::<JointInferenceService>("helmet").await, None);
    assert_eq!(world.find::<FederatedLearningJob>("surface").await, None);
    assert_eq!(children(&world).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_resource_deleted_while_the_manager_is_down_is_taken_off_its_nodes() {
    let world = serving().await;
    let old = world.object::<JointInferenceService>("helmet").await;
    world.kill_manager().await;
    world
        .delete::<JointInferenceService>("helmet", &DeleteParams::background())
        .await;
    world.start_manager();
    world.settle().await;
    assert_eq!(
        world.held.on("edge-1", ObjectKind::JOINT_INFERENCE_SERVICE, "helmet"),
        None
    );
    // Its name is free again, for another one.
    let mut again: JointInferenceService = serde_json::from_value(old).unwrap();
    again.metadata = kube::api::ObjectMeta {
        name: Some("helmet".to_owned()),
        ..kube::api::ObjectMeta::default()
    };
    let made = world
        .view::<JointInferenceService>()
        .create(&PostParams::default(), &again)
        .await;
    assert!(made.is_ok(), "{made:?}");
    world.settle().await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}
