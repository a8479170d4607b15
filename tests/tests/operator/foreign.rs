//! What is not ours is not touched: objects that happen to have a child's name or labels, and resources that do not
//! parse.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, JointInferenceService};
use skerry_tests::{World, definitions, look::text, world::USER};
use skerry_workloads::ObjectKind;

use crate::{CLOUD, EDGE, JOB, READY, RUNNING, SERVICE, Service, edited, image, serving, training};

const THEIRS: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: helmet-deployment-edge
spec:
  selector: {matchLabels: {app: theirs}}
  template:
    metadata: {labels: {app: theirs}}
    spec: {containers: [{name: theirs, image: example/theirs:v1}]}
---
apiVersion: v1
kind: Service
metadata:
  name: helmet-cloud
spec:
  selector: {app: theirs}
  ports: [{port: 80}]
";

#[tokio::test(start_paused = true)]
async fn an_object_with_the_name_of_a_child_is_not_touched_and_is_named() {
    let world = World::start().await;
    world.apply(THEIRS).await;
    let before = [
        world.object::<Deployment>(EDGE).await,
        world.object::<Service>("helmet-cloud").await,
    ];
    world.apply(SERVICE).await;
    let told = world.condition::<JointInferenceService>("helmet", "Ready").await;
    let named = |title: &str| told.contains(&format!("{title} exists and is not this resource's"));
    assert!(told.starts_with("False NameTaken: "), "{told}");
    assert!(
        named("Deployment helmet-deployment-edge") && named("Service helmet-cloud"),
        "{told}"
    );
    assert_eq!(
        world.names::<Deployment>().await,
        [CLOUD, EDGE],
        "the free name is used"
    );
    world
        .edit::<JointInferenceService>("helmet", image("edgeWorker", "little", "example/little:v2"))
        .await;
    world.restart_manager().await;
    world.settle().await;
    let after = [
        world.object::<Deployment>(EDGE).await,
        world.object::<Service>("helmet-cloud").await,
    ];
    assert_eq!(after, before);
    world
        .delete::<JointInferenceService>("helmet", &DeleteParams::background())
        .await;
    assert_eq!(world.names::<Deployment>().await, [EDGE]);
    assert_eq!(world.names::<Service>().await, ["helmet-cloud"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_becomes_free_is_used_at_once() {
    let world = World::start().await;
    world.apply(THEIRS).await;
    world.apply(SERVICE).await;
    // By now the wait between two attempts is long.
    world.pass(std::time::Duration::from_secs(1800)).await;
    world
        .view::<Deployment>()
        .delete(EDGE, &DeleteParams::default())
        .await
        .unwrap();
    world
        .view::<Service>()
        .delete("helmet-cloud", &DeleteParams::default())
        .await
        .unwrap();
    world.pass(std::time::Duration::from_secs(10)).await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

#[tokio::test(start_paused = true)]
async fn a_child_stripped_of_all_that_makes_it_ours_is_left_alone_and_is_named() {
    let world = serving().await;
    let strip = json!({"metadata": {"ownerReferences": null, "labels": null}});
    world.edit::<Deployment>(EDGE, strip).await;
    let told = world.condition::<JointInferenceService>("helmet", "Ready").await;
    assert!(
        told.starts_with("False NameTaken: Deployment helmet-deployment-edge exists and is not this"),
        "{told}"
    );
    let edge = world.object::<Deployment>(EDGE).await;
    assert!(edge["metadata"]["ownerReferences"].is_null());
}

#[tokio::test(start_paused = true)]
async fn only_what_carries_our_label_and_our_owner_reference_is_pruned() {
    let world = training().await;
    let job = world.uid::<FederatedLearningJob>("surface").await;
    let owner = json!([{"apiVersion": "sedna.io/v1alpha1", "kind": "FederatedLearningJob", "name": "surface",
        "uid": job, "controller": true}]);
    let labels = json!({"federatedlearningjob.sedna.io/name": "surface", "federatedlearningjob.sedna.io/uid": job});
    let stray = |name: &str, labels: &Value, owners: &Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels,
            "ownerReferences": owners}, "spec": {"containers": [{"name": "c", "image": "example/stray:v1"}]}})
        .to_string()
    };
    world.apply(&stray("labelled", &labels, &Value::Null)).await;
    world.apply(&stray("owned", &json!({"team": "red"}), &owner)).await;
    world.apply(&stray("both", &labels, &owner)).await;
    world
        .apply(&edited(JOB, "example/trainer-1:v1", "example/trainer-1:v2"))
        .await;
    let mut strays = world.names::<Pod>().await;
    strays.retain(|name| !name.starts_with("surface-"));
    assert_eq!(strays, ["labelled", "owned"]);
    assert_eq!(
        world.object::<FederatedLearningJob>("surface").await["status"]["active"],
        3
    );
}

#[tokio::test(start_paused = true)]
async fn a_deployment_and_a_service_of_ours_that_have_no_place_go() {
    let world = serving().await;
    let service = world.uid::<JointInferenceService>("helmet").await;
    let metadata = json!({
        "name": "helmet-of-old",
        "labels": {"jointinferenceservice.sedna.io/name": "helmet", "jointinferenceservice.sedna.io/uid": service},
        "ownerReferences": [{"apiVersion": "sedna.io/v1alpha1", "kind": "JointInferenceService", "name": "helmet",
            "uid": service, "controller": true}],
    });
    for (version, kind, spec) in [
        (
            "apps/v1",
            "Deployment",
            json!({"selector": {"matchLabels": {"app": "old"}}, "template": {"metadata": {"labels": {"app": "old"}},
                "spec": {"containers": [{"name": "old", "image": "example/old:v1"}]}}}),
        ),
        (
            "v1",
            "Service",
            json!({"selector": {"app": "old"}, "ports": [{"port": 80}]}),
        ),
    ] {
        let stray = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        world.apply(&stray.to_string()).await;
    }
    world.settle().await;
    assert_eq!(world.names::<Deployment>().await, [CLOUD, EDGE]);
    assert_eq!(world.names::<Service>().await, ["helmet-cloud"]);
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

async fn accept_anything(world: &World, plural: &str) {
    definitions::accept_anything(&world.api.client_as(USER), plural).await;
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_does_not_parse_harms_no_other() {
    let world = serving().await;
    for plural in ["jointinferenceservices", "federatedlearningjobs", "models", "datasets"] {
        accept_anything(&world, plural).await;
    }
    for kind in ["JointInferenceService", "FederatedLearningJob", "Model", "Dataset"] {
        let broken = json!({"apiVersion": "sedna.io/v1alpha1", "kind": kind, "metadata": {"name": "broken"},
            "spec": {"edgeWorker": 7, "aggregationWorker": [], "url": {"not": "text"}, "nodeName": 1}});
        world.apply(&broken.to_string()).await;
    }
    // With a manager that lists them at its start, too.
    world.restart_manager().await;
    world.settle().await;
    world.apply(JOB).await;
    assert_eq!(
        world.condition::<FederatedLearningJob>("surface", "Ready").await,
        RUNNING
    );
    let edit = image("edgeWorker", "little", "example/little:v2");
    world.edit::<JointInferenceService>("helmet", edit).await;
    let edge = world.object::<Deployment>(EDGE).await;
    assert_eq!(
        edge["spec"]["template"]["spec"]["containers"][0]["image"],
        "example/little:v2"
    );
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
    // Its node has that version, too, and nothing of those.
    let held = world.held.on("edge-1", ObjectKind::JOINT_INFERENCE_SERVICE, "helmet");
    let held = held.expect("the node holds it");
    assert!(held.to_string().contains("example/little:v2"), "{held}");
    assert!(
        world
            .held
            .all()
            .iter()
            .all(|(resource, ..)| !resource.contains("broken"))
    );
    let events = world.events_about("broken").await;
    let told = "Warning Unparsable: the resource does not parse and is left as it is: ";
    assert!(
        !events.is_empty() && events.iter().all(|event| event.starts_with(told)),
        "{events:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_no_longer_parses_keeps_what_it_has() {
    let world = serving().await;
    accept_anything(&world, "jointinferenceservices").await;
    let node = world.held.on("edge-1", ObjectKind::JOINT_INFERENCE_SERVICE, "helmet");
    assert!(node.is_some());
    let mark = world.mark();
    world
        .edit::<JointInferenceService>("helmet", json!({"metadata": {"labels": {"seen": "yes"}}}))
        .await;
    let raw: Api<kube::core::DynamicObject> = Api::namespaced_with(
        world.api.client_as(USER),
        skerry_tests::NAMESPACE,
        &kube::api::ApiResource::erase::<JointInferenceService>(&()),
    );
    let broken = json!({"spec": {"edgeWorker": {"model": "small"}}});
    raw.patch("helmet", &PatchParams::default(), &Patch::Merge(broken))
        .await
        .unwrap();
    world.settle().await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    assert_eq!(world.names::<Deployment>().await, [CLOUD, EDGE]);
    assert_eq!(
        world.held.on("edge-1", ObjectKind::JOINT_INFERENCE_SERVICE, "helmet"),
        node
    );
    let mended = json!({"spec": {"edgeWorker": {"model": {"name": "small"}}}});
    raw.patch("helmet", &PatchParams::default(), &Patch::Merge(mended))
        .await
        .unwrap();
    world.settle().await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

#[tokio::test(start_paused = true)]
async fn what_admission_cannot_know_is_told_in_a_condition_that_names_the_object() {
    let world = World::start().await;
    // A volume that is mounted and is not there: right by the schema, and refused in a Deployment.
    let mount = "image: example/big:v1\n            volumeMounts: [{name: absent, mountPath: /scratch}]";
    let manifest = edited(SERVICE, "image: example/big:v1", mount);
    world.apply(&manifest).await;
    let told = world.condition::<JointInferenceService>("helmet", "Ready").await;
    assert!(
        told.starts_with("False ChildInvalid: Deployment helmet-deployment-cloud: ") && told.contains("volumeMounts"),
        "{told}"
    );
    assert_eq!(world.names::<Deployment>().await, [EDGE], "the other worker is made");
    let service = world.object::<JointInferenceService>("helmet").await;
    assert_eq!(text(&service, "/status/workers/edge/name"), EDGE);
    world.apply(SERVICE).await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

/// Some API servers take a Service whose name begins with a digit, so it cannot be refused at admission.
#[tokio::test(start_paused = true)]
async fn a_name_that_no_service_can_begin_with_is_told() {
    let world = World::start().await;
    world.apply(&SERVICE.replace("name: helmet\n", "name: 3d\n")).await;
    let told = world.condition::<JointInferenceService>("3d", "Ready").await;
    let likewise = "{apiVersion: v1, kind: Service, metadata: {name: 3d}, spec: {ports: [{port: 80}]}}";
    if world.try_apply(likewise).await.is_ok() {
        return assert_eq!(told, READY);
    }
    let expected = "False ChildInvalid: Service 3d-cloud: ";
    assert!(
        told.starts_with(expected) && told.contains("start with an alphabetic"),
        "{told}"
    );
}
