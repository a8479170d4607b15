//! Drift by hand: what the manager declared is put back; what others own is left alone.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler};
use kube::api::{DeleteParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::JointInferenceService;
use skerry_sandbox::api::{Fault, Match};
use skerry_tests::{
    World,
    look::{Seen, env},
    world::{MANAGER, NAMESPACE},
};

use crate::{CLOUD, EDGE, READY, Service, serving};

/// Under an autoscaler, so that there is one of each kind of child.
async fn scaled() -> World {
    let world = serving().await;
    let edit = json!({"spec": {"edgeWorker": {"hpa": {"minReplicas": 1, "maxReplicas": 3}}}});
    world.edit::<JointInferenceService>("helmet", edit).await;
    world
}

/// What a controller of Kubernetes' own does to the scale of a Deployment.
async fn autoscale(world: &World, name: &str, replicas: i32) {
    let api: kube::Api<Deployment> = kube::Api::namespaced(world.api.client_as("autoscaler"), NAMESPACE);
    let how = PatchParams {
        field_manager: Some("kube-controller-manager".to_owned()),
        ..PatchParams::default()
    };
    let patch = json!({"spec": {"replicas": replicas}});
    api.patch_scale(name, &how, &Patch::Merge(patch)).await.unwrap();
    world.settle().await;
}

/// Changes a child by hand: one write puts it back, and all is as it was.
async fn is_put_back<K: Seen>(world: &World, name: &str, drift: Value) {
    let parts = |object: Value| {
        let metadata = &object["metadata"];
        let kept = ["labels", "annotations", "ownerReferences"].map(|part| metadata[part].clone());
        (kept, object["spec"].clone())
    };
    let annotated = |mut object: Value| {
        // Written by the Deployment's controller.
        if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
            annotations.remove("deployment.kubernetes.io/revision");
        }
        object
    };
    let before = parts(annotated(world.object::<K>(name).await));
    let mark = world.mark();
    world.edit::<K>(name, drift).await;
    assert_eq!(parts(annotated(world.object::<K>(name).await)), before);
    let mut writes = world.writes_since(mark);
    writes.retain(|write| !write.contains("/status "));
    assert_eq!(writes.len(), 1, "{writes:?}");
}

#[rstest]
#[case::image(json!({"spec": {"template": {"spec": {"containers": [{"name": "little", "image": "example/other:v1"}]}}}}))]
#[case::replicas(json!({"spec": {"replicas": 3}}))]
#[case::none_at_all(json!({"spec": {"replicas": 0}}))]
#[case::label(json!({"metadata": {"labels": {"app.sedna.io": "other"}}}))]
#[case::label_gone(json!({"metadata": {"labels": {"jointinferenceservice.sedna.io/name": null}}}))]
#[case::owner_gone(json!({"metadata": {"ownerReferences": null}}))]
#[case::hash_gone(json!({"metadata": {"annotations": {"skerry.io/applied-hash": null}}}))]
#[tokio::test(start_paused = true)]
async fn a_deployment_changed_by_hand_is_put_back(#[case] drift: Value) {
    let world = serving().await;
    is_put_back::<Deployment>(&world, EDGE, drift).await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

/// Neither is there, and neither can be made: where a status has no worker left to tell of, an API server refuses one that
/// still has the field.
#[tokio::test(start_paused = true)]
async fn that_both_deployments_are_gone_can_be_told() {
    let world = serving().await;
    let mark = world.mark();
    let writes = Match::writes().user(MANAGER).resource("deployments");
    let fault = world.api.faults().inject(writes, Fault::InternalError);
    for name in [CLOUD, EDGE] {
        world.delete::<Deployment>(name, &DeleteParams::default()).await;
    }
    let status = &world.object::<JointInferenceService>("helmet").await["status"];
    assert_eq!((&status["active"], &status["workers"]), (&json!(0), &Value::Null));
    fault.remove();
    world.pass(Duration::from_secs(600)).await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
    let mut refused = world.api.requests().writes_since(mark);
    refused.retain(|entry| entry.status == Some(422));
    assert!(refused.is_empty(), "{refused:#?}");
}

#[rstest]
#[case::selector(json!({"spec": {"selector": {"jointinferenceservice.sedna.io/worker-type": "edge"}}}))]
#[case::port(json!({"spec": {"ports": [{"name": "tcp-0", "port": 5000, "targetPort": 80}]}}))]
#[case::owner_gone(json!({"metadata": {"ownerReferences": null}}))]
#[tokio::test(start_paused = true)]
async fn a_service_changed_by_hand_is_put_back(#[case] drift: Value) {
    let world = serving().await;
    is_put_back::<Service>(&world, "helmet-cloud", drift).await;
}

#[tokio::test(start_paused = true)]
async fn an_autoscaler_changed_by_hand_is_put_back() {
    let world = scaled().await;
    let drift = json!({"spec": {"maxReplicas": 30}});
    is_put_back::<HorizontalPodAutoscaler>(&world, "hpa-helmet-deployment-edge", drift).await;
}

#[tokio::test(start_paused = true)]
async fn drift_while_the_manager_is_down_is_put_back_afterwards() {
    let world = serving().await;
    world.kill_manager().await;
    let drift = json!({"spec": {"template": {"spec": {"containers": [{"name": "big", "image": "example/other:v1"}]}}}});
    world.edit::<Deployment>(CLOUD, drift).await;
    world.start_manager();
    world.settle().await;
    let cloud = world.object::<Deployment>(CLOUD).await;
    assert_eq!(
        cloud["spec"]["template"]["spec"]["containers"][0]["image"],
        "example/big:v1"
    );
}

#[tokio::test(start_paused = true)]
async fn what_others_add_is_left_alone() {
    let world = serving().await;
    let mark = world.mark();
    // What `kubectl rollout restart` does, and a note of some tool.
    let addition = json!({
        "metadata": {"annotations": {"example.org/note": "kept"}},
        "spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}},
    });
    world.edit::<Deployment>(EDGE, addition).await;
    world.restart_manager().await;
    world.settle().await;
    let mut writes = world.writes_since(mark);
    writes.retain(|write| !write.contains("/status "));
    assert_eq!(writes, Vec::<String>::new());
    // Our own changes later leave it alone too.
    let edit = crate::image("edgeWorker", "little", "example/little:v2");
    world.edit::<JointInferenceService>("helmet", edit).await;
    let edge = world.object::<Deployment>(EDGE).await;
    assert_eq!(edge["metadata"]["annotations"]["example.org/note"], "kept");
    let template = &edge["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(template["kubectl.kubernetes.io/restartedAt"], "now");
}

#[tokio::test(start_paused = true)]
async fn replicas_are_left_alone_once_an_autoscaler_owns_them() {
    let world = scaled().await;
    let replicas = async || world.object::<Deployment>(EDGE).await["spec"]["replicas"].clone();
    assert_eq!(replicas().await, 1, "the observed value until then");
    autoscale(&world, EDGE, 3).await;
    assert_eq!(replicas().await, 3);
    let mark = world.mark();
    world.restart_manager().await;
    world.settle().await;
    assert_eq!(replicas().await, 3);
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    let edit = crate::image("edgeWorker", "little", "example/little:v2");
    world.edit::<JointInferenceService>("helmet", edit).await;
    assert_eq!(replicas().await, 3, "an edit of the worker is none of its scale");
    autoscale(&world, EDGE, 2).await;
    assert_eq!(replicas().await, 2);
    let edge = world.object::<Deployment>(EDGE).await;
    let image = &edge["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "example/little:v2");
}

#[tokio::test(start_paused = true)]
async fn replicas_go_back_to_one_when_the_autoscaler_is_taken_away() {
    let world = scaled().await;
    autoscale(&world, EDGE, 3).await;
    let edit = json!({"spec": {"edgeWorker": {"hpa": null}}});
    world.edit::<JointInferenceService>("helmet", edit).await;
    assert!(world.names::<HorizontalPodAutoscaler>().await.is_empty());
    assert_eq!(world.object::<Deployment>(EDGE).await["spec"]["replicas"], 1);
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

#[tokio::test(start_paused = true)]
async fn a_variable_added_by_hand_stays_and_one_of_ours_comes_back() {
    let world = serving().await;
    let edge = world.object::<Deployment>(EDGE).await;
    let mut containers = edge["spec"]["template"]["spec"]["containers"].clone();
    let vars = containers[0]["env"].as_array_mut().unwrap();
    vars.retain(|var| var["name"] != "JOB_NAME");
    vars.push(json!({"name": "DEBUG", "value": "1"}));
    let drift = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    world.edit::<Deployment>(EDGE, drift).await;
    let worker = env(&world.object::<Deployment>(EDGE).await["spec"]["template"]["spec"]);
    assert_eq!(worker["JOB_NAME"], "helmet");
    assert_eq!(worker["DEBUG"], "1");
}
