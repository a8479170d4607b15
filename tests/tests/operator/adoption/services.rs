//! Services that change hands.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{Pod, Secret},
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rstest::rstest;
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::{JointInferenceService, Model};
use skerry_sandbox::api::{Fault, Match};
use skerry_tests::{
    NAMESPACE, World,
    look::{Seen, env, text},
    world::MANAGER,
};
use skerry_workloads::ObjectKind;

use super::{SEDNA, SERVICE, make, running, sednas_under_ours, serve, take_over};
use crate::{CLOUD, EDGE, READY, Service, image};

/// The service alone, in our hands.
async fn adopted() -> World {
    let world = World::without_manager().await;
    serve(&world).await;
    take_over(&world).await;
    world
}

/// The names of all variables of a Deployment's containers, repeats included, and the whole of it as text.
async fn variables(world: &World, deployment: &str) -> (Vec<String>, String) {
    let spec = world.object::<Deployment>(deployment).await["spec"].clone();
    let template = &spec["template"]["spec"];
    let containers =
        ["initContainers", "containers"].map(|list| template[list].as_array().cloned().unwrap_or_default());
    let vars = containers
        .iter()
        .flatten()
        .flat_map(|container| container["env"].as_array().cloned().unwrap_or_default());
    let names = vars.map(|var| text(&var, "/name").to_owned()).collect();
    (names, template.to_string())
}

fn is_ours(deployment: &Value) -> bool {
    !deployment["spec"]["template"]["metadata"]["annotations"]["skerry.io/inputs-hash"].is_null()
}

async fn new_keys(world: &World) {
    let api: Api<Secret> = Api::namespaced(world.api.client_as("user"), NAMESPACE);
    let patch = json!({"stringData": {"SECRET_ACCESS_KEY": "another-key"}});
    api.patch("storage", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    world.settle().await;
}

#[rstest]
#[case::template(async |world: &World| world.edit::<JointInferenceService>("helmet", json!({"spec": {"edgeWorker":
    {"template": {"spec": {"containers": [{"name": "little", "image": "example/little:v2"}]}}}}})).await)]
#[case::filter(async |world: &World| world.edit::<JointInferenceService>("helmet", json!({"spec": {"edgeWorker":
    {"hardExampleMining": {"name": "CloudOnly"}}}})).await)]
#[case::model(async |world: &World| world.edit::<Model>("small", json!({"spec": {"url": "s3://models/new.pb"}})).await)]
#[case::secret(new_keys)]
#[tokio::test(start_paused = true)]
async fn an_adopted_worker_keeps_its_template_until_one_of_its_inputs_changes(#[case] change: impl AsyncFn(&World)) {
    let world = adopted().await;
    let before = [
        world.object::<Deployment>(EDGE).await,
        world.object::<Deployment>(CLOUD).await,
    ];
    // Nothing that the worker is made from.
    let unrelated =
        json!({"metadata": {"labels": {"team": "red"}}, "spec": {"cloudWorker": {"hpa": {"maxReplicas": 2}}}});
    world.edit::<JointInferenceService>("helmet", unrelated).await;
    for deployment in &before {
        let now = world.object::<Deployment>(crate::name(deployment)).await;
        assert_eq!(now["spec"], deployment["spec"]);
    }
    change(&world).await;
    let edge = world.object::<Deployment>(EDGE).await;
    assert!(is_ours(&edge));
    assert_eq!(edge["spec"]["selector"], before[0]["spec"]["selector"]);
    assert_eq!(edge["metadata"]["uid"], before[0]["metadata"]["uid"]);
    assert_eq!(
        edge["metadata"]["annotations"]["skerry.io/adopted-inputs-hash"],
        Value::Null
    );
    assert_eq!(
        world.object::<Deployment>(CLOUD).await["spec"],
        before[1]["spec"],
        "its partner stays"
    );
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

/// Sedna wrote it by means other than server-side apply, which alone would leave all of it in place.
#[tokio::test(start_paused = true)]
async fn none_of_sednas_environment_survives_least_of_all_a_key_in_clear() {
    let world = adopted().await;
    // Somebody has had a hand in it too: what two own would stay the longer.
    let mut containers = world.object::<Deployment>(EDGE).await["spec"]["template"]["spec"]["initContainers"].clone();
    let keys = containers[0]["env"].as_array_mut().unwrap();
    keys.iter_mut().find(|var| var["name"] == "SECRET_ACCESS_KEY").unwrap()["value"] = json!("another-key-in-clear");
    let by_hand = json!({"spec": {"template": {"spec": {"initContainers": containers}}}});
    world.edit::<Deployment>(EDGE, by_hand).await;
    assert!(variables(&world, EDGE).await.1.contains("another-key-in-clear"));
    let both = json!({"spec": {"edgeWorker": {"hardExampleMining": {"name": "CloudOnly"}},
        "cloudWorker": {"template": {"spec": {"containers": [{"name": "big", "image": "example/big:v2"}]}}}}});
    world.edit::<JointInferenceService>("helmet", both).await;
    let mut found = Vec::new();
    for deployment in [EDGE, CLOUD] {
        let (names, template) = variables(&world, deployment).await;
        assert!(!template.contains("in-clear"), "{template}");
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        found.push(names);
    }
    let edge = env(&world.object::<Deployment>(EDGE).await["spec"]["template"]["spec"]);
    assert_eq!(edge["LOG_LEVEL"], "INFO", "the user's own stays");
    assert!(text(&edge["WORKER_NAME"], "").starts_with("edgeworker-") && edge["WORKER_NAME"] != "edgeworker-q9z4t");
    // Nor in what Kubernetes keeps of a Deployment's earlier templates.
    let mut made = world.all::<ReplicaSet>().await;
    assert_eq!(made.len(), 2, "one of each worker: {made:#?}");
    made.extend(world.all::<Pod>().await);
    for made in made {
        assert!(!made.to_string().contains("in-clear"), "{made}");
    }
    // One cluster at a time: there may be no second one to borrow.
    drop(world);

    let fresh = World::start().await;
    fresh.apply(SERVICE).await;
    let edit = json!({"spec": {"edgeWorker": {"hardExampleMining": {"name": "CloudOnly"}},
        "cloudWorker": {"template": {"spec": {"containers": [{"name": "big", "image": "example/big:v2"}]}}}}});
    fresh.edit::<JointInferenceService>("helmet", edit).await;
    for (deployment, found) in [EDGE, CLOUD].into_iter().zip(found) {
        let names = variables(&fresh, deployment).await.0;
        assert_eq!(found, names, "as if it had always been ours");
    }
}

/// The worker library makes `JOB_NAME` part of the path on which the two meet, and Sedna sets none.
#[tokio::test(start_paused = true)]
async fn a_worker_of_ours_finds_a_partner_that_sedna_made() {
    let world = adopted().await;
    let meets =
        async |name: &str| env(&world.object::<Deployment>(name).await["spec"]["template"]["spec"])["JOB_NAME"].clone();
    world
        .edit::<JointInferenceService>("helmet", image("edgeWorker", "little", "example/little:v2"))
        .await;
    assert_eq!(meets(EDGE).await, "sedna");
    world
        .edit::<JointInferenceService>("helmet", image("cloudWorker", "big", "example/big:v2"))
        .await;
    assert_eq!(
        (meets(EDGE).await, meets(CLOUD).await),
        (json!("helmet"), json!("helmet"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_is_told_the_name_under_which_its_worker_reports() {
    let world = adopted().await;
    let workers = || {
        world
            .held
            .on("edge-1", ObjectKind::JOINT_INFERENCE_SERVICE, "helmet")
            .unwrap()["workers"]
            .clone()
    };
    assert_eq!(workers(), json!(["edgeworker-q9z4t"]));
    world
        .edit::<JointInferenceService>("helmet", image("edgeWorker", "little", "example/little:v2"))
        .await;
    let edge = env(&world.object::<Deployment>(EDGE).await["spec"]["template"]["spec"]);
    assert_eq!(workers(), json!([edge["WORKER_NAME"]]));
}

/// For whoever wants Sedna's template gone without a change of anything else.
#[tokio::test(start_paused = true)]
async fn a_worker_whose_mark_is_changed_by_hand_is_replaced() {
    let world = adopted().await;
    let mark = json!({"metadata": {"annotations": {"skerry.io/adopted-inputs-hash": "none"}}});
    world.edit::<Deployment>(EDGE, mark).await;
    let edge = world.object::<Deployment>(EDGE).await;
    assert!(is_ours(&edge));
    assert_eq!(
        edge["metadata"]["annotations"]["skerry.io/adopted-inputs-hash"],
        Value::Null
    );
}

/// Between the two writes of a replacement, the manager dies and the user thinks better of it.
#[tokio::test(start_paused = true)]
async fn a_replacement_that_has_begun_is_completed() {
    let world = adopted().await;
    let writes = Match::writes().user(MANAGER).resource("deployments");
    let crash = world.api.faults().inject(writes.nth(1), Fault::Crash { applied: true });
    let edit = image("edgeWorker", "little", "example/little:v2");
    let api = world.view::<JointInferenceService>();
    api.patch("helmet", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    crash.hit().await;
    world.kill_manager().await;
    assert!(
        !is_ours(&world.object::<Deployment>(EDGE).await),
        "only ownership has moved"
    );
    let back = image("edgeWorker", "little", "example/little:v1");
    api.patch("helmet", &PatchParams::default(), &Patch::Merge(back))
        .await
        .unwrap();
    world.start_manager();
    world.settle().await;
    let (_, template) = variables(&world, EDGE).await;
    assert!(is_ours(&world.object::<Deployment>(EDGE).await) && !template.contains("in-clear"));
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_at_first_restarts_nothing_when_it_comes() {
    let world = World::without_manager().await;
    serve(&world).await;
    let model = world.object::<Model>("large").await;
    world
        .delete::<Model>("large", &kube::api::DeleteParams::default())
        .await;
    let before = running(&world).await;
    take_over(&world).await;
    let told = world.condition::<JointInferenceService>("helmet", "Degraded").await;
    assert!(told.starts_with("True ") && told.contains("large"), "{told}");
    world
        .apply(
            &json!({"apiVersion": "sedna.io/v1alpha1", "kind": "Model", "metadata": {"name": "large"},
        "spec": model["spec"]})
            .to_string(),
        )
        .await;
    assert_eq!(running(&world).await, before);
    world
        .edit::<Model>("large", json!({"spec": {"url": "/var/models/other.pb"}}))
        .await;
    assert!(is_ours(&world.object::<Deployment>(CLOUD).await));
}

/// Somebody opened Sedna's Service to the edge by hand, and everything goes through it.
#[tokio::test(start_paused = true)]
async fn the_service_between_the_workers_goes_on_as_it_is() {
    let world = World::without_manager().await;
    serve(&world).await;
    world
        .edit::<Service>("helmet-cloud", json!({"spec": {"type": "NodePort"}}))
        .await;
    let before = world.object::<Service>("helmet-cloud").await["spec"].clone();
    take_over(&world).await;
    world
        .edit::<JointInferenceService>("helmet", image("cloudWorker", "big", "example/big:v2"))
        .await;
    assert_eq!(world.object::<Service>("helmet-cloud").await["spec"], before);
}

const SCALER: &str = r"
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: hpa-helmet-deployment-edge
  namespace: scenario
  labels: {jointinferenceservice.sedna.io/name: helmet, jointinferenceservice.sedna.io/uid: UID, jointinferenceservice.sedna.io/worker-type: edge}
  ownerReferences: [{apiVersion: sedna.io/v1alpha1, kind: JointInferenceService, name: helmet, uid: UID, controller: true, blockOwnerDeletion: true}]
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: helmet-deployment-edge}
  maxReplicas: 4
  behavior: {scaleDown: {stabilizationWindowSeconds: 5}}
";

async fn part<K: Seen>(world: &World, name: &str, pointer: &str) -> Value {
    world
        .object::<K>(name)
        .await
        .pointer(pointer)
        .cloned()
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn an_autoscaler_of_sednas_goes_on_and_the_scale_with_it() {
    let world = World::without_manager().await;
    serve(&world).await;
    let hpa = json!({"spec": {"edgeWorker": {"hpa": {"maxReplicas": 4, "behavior": {"scaleDown":
        {"stabilizationWindowSeconds": 5}}}}}});
    world.edit::<JointInferenceService>("helmet", hpa).await;
    let uid = world.uid::<JointInferenceService>("helmet").await;
    make(&world, SCALER, &uid).await;
    // What Sedna itself would write: the scale that it read.
    let api: Api<Deployment> = Api::namespaced(world.api.client_as(SEDNA), NAMESPACE);
    let how = PatchParams {
        field_manager: Some(SEDNA.to_owned()),
        ..PatchParams::default()
    };
    api.patch(EDGE, &how, &Patch::Merge(json!({"spec": {"replicas": 3}})))
        .await
        .unwrap();
    world.settle().await;
    let before = running(&world).await;
    take_over(&world).await;
    assert_eq!(running(&world).await, before);
    // What is declared no longer goes, although Sedna wrote it, and the scale stays whoever owns it.
    let less = json!({"spec": {"edgeWorker": {"hpa": {"behavior": null}, "hardExampleMining": {"name": "CloudOnly"}}}});
    world.edit::<JointInferenceService>("helmet", less).await;
    let scaler = "hpa-helmet-deployment-edge";
    let behavior = part::<HorizontalPodAutoscaler>(&world, scaler, "/spec/behavior").await;
    assert!(!behavior.to_string().contains('5'), "{behavior}");
    assert_eq!(part::<Deployment>(&world, EDGE, "/spec/replicas").await, 3);
    assert!(is_ours(&world.object::<Deployment>(EDGE).await));
}

/// The service goes as any other, with what Sedna made of it.
#[tokio::test(start_paused = true)]
async fn an_adopted_service_is_deleted_with_its_children() {
    let world = sednas_under_ours().await;
    take_over(&world).await;
    world
        .delete::<JointInferenceService>("helmet", &kube::api::DeleteParams::foreground())
        .await;
    assert_eq!(world.names::<Deployment>().await, Vec::<String>::new());
    assert_eq!(world.names::<Service>().await, ["surface-aggregation"]);
}
