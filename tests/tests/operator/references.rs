//! What a resource names: what is missing is named in a condition and heals when it appears; what changes counts as a
//! change of whoever uses it.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Pod, Secret},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use skerry_crds::sedna::v1alpha1::{Dataset, FederatedLearningJob, JointInferenceService, Model};
use skerry_sandbox::cluster::Behaviour;
use skerry_tests::{
    World,
    look::{env, text},
    world::USER,
};

use crate::{CLOUD, EDGE, JOB, READY, RUNNING, SERVICE, edited, find_pod, image, pod, serving, training, uid};

const SECRET: &str = "
apiVersion: v1
kind: Secret
metadata:
  name: storage
  annotations:
    s3-endpoint: minio.example:9000
    s3-usehttps: \"0\"
stringData:
  ACCESS_KEY_ID: the-access-key-id
  SECRET_ACCESS_KEY: the-secret-access-key
";

/// The service, its small model in object storage.
fn with_small_model_in_storage() -> String {
    edited(
        SERVICE,
        "url: /var/models/small.pb",
        "url: s3://models/small.pb\n  credentialName: storage",
    )
}

/// The manifest without its document of this kind and name.
fn without(manifest: &str, kind: &str, name: &str) -> String {
    let meant = |document: &&str| document.contains(&format!("kind: {kind}\nmetadata:\n  name: {name}\n"));
    assert!(manifest.split("---\n").any(|document| meant(&document)));
    let rest: Vec<_> = manifest.split("---\n").filter(|document| !meant(document)).collect();
    rest.join("---\n")
}

async fn ready(world: &World) -> String {
    world.condition::<JointInferenceService>("helmet", "Ready").await
}

#[tokio::test(start_paused = true)]
async fn a_missing_model_is_named_and_heals() {
    let world = World::start().await;
    world.apply(&without(SERVICE, "Model", "small")).await;
    assert_eq!(
        ready(&world).await,
        "False ModelMissing: Model small does not exist; the edge worker needs it"
    );
    assert_eq!(world.state::<JointInferenceService>("helmet").await, "Failed");
    assert_eq!(
        world.names::<Deployment>().await,
        [CLOUD],
        "the other worker does not wait for it"
    );
    world.apply(SERVICE).await;
    assert_eq!(ready(&world).await, READY);
    assert_eq!(world.state::<JointInferenceService>("helmet").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_goes_missing_leaves_its_worker_alone() {
    let world = serving().await;
    let before = world.uid::<Deployment>(EDGE).await;
    let mark = world.mark();
    world.delete::<Model>("small", &DeleteParams::default()).await;
    assert_eq!(
        ready(&world).await,
        "False ModelMissing: Model small does not exist; the edge worker needs it"
    );
    assert_eq!(
        world.state::<JointInferenceService>("helmet").await,
        "Running",
        "it still serves"
    );
    world.apply(SERVICE).await;
    assert_eq!(ready(&world).await, READY);
    assert_eq!(world.uid::<Deployment>(EDGE).await, before);
    let touched: Vec<_> = world
        .writes_since(mark)
        .into_iter()
        .filter(|write| write.contains("deployments"))
        .collect();
    assert_eq!(touched, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_missing_dataset_is_named_and_heals() {
    let world = World::start().await;
    world.apply(&without(JOB, "Dataset", "share-1")).await;
    assert_eq!(
        world.condition::<FederatedLearningJob>("surface", "Ready").await,
        "False DatasetMissing: Dataset share-1 does not exist; trainer 1 needs it"
    );
    assert!(find_pod(&world, "surface-train-0-").await.is_some());
    assert!(find_pod(&world, "surface-train-1-").await.is_none());
    world.apply(JOB).await;
    assert_eq!(
        world.condition::<FederatedLearningJob>("surface", "Ready").await,
        RUNNING
    );
}

#[tokio::test(start_paused = true)]
async fn a_missing_secret_and_one_without_annotations_are_named_and_heal() {
    let world = World::start().await;
    world.apply(&with_small_model_in_storage()).await;
    assert_eq!(
        ready(&world).await,
        "False SecretMissing: Secret storage does not exist; Model small names it, and the edge worker needs it"
    );
    world
        .apply("{apiVersion: v1, kind: Secret, metadata: {name: storage}}")
        .await;
    assert_eq!(
        ready(&world).await,
        "False SecretIncomplete: Secret storage of Model small lacks annotation s3-endpoint, data key ACCESS_KEY_ID, \
         data key SECRET_ACCESS_KEY"
    );
    world.apply(SECRET).await;
    assert_eq!(ready(&world).await, READY);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_scheduled_is_named_and_heals() {
    let world = World::start().await;
    let manifest = edited(SERVICE, "nodeName: cloud-1", "nodeSelector: {accelerator: \"yes\"}");
    world.apply(&manifest).await;
    let told = ready(&world).await;
    assert!(
        told.starts_with("False Unschedulable: Pod helmet-deployment-cloud-") && told.contains("cannot be scheduled: "),
        "{told}"
    );
    assert_eq!(world.state::<JointInferenceService>("helmet").await, "Failed");
    let nodes: Api<Node> = Api::all(world.api.client_as(USER));
    let label = json!({"metadata": {"labels": {"accelerator": "yes"}}});
    nodes
        .patch("cloud-1", &PatchParams::default(), &Patch::Merge(label))
        .await
        .unwrap();
    world.settle().await;
    assert_eq!(ready(&world).await, READY);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_pulled_is_named_and_heals() {
    let world = World::start().await;
    world.kubelet.behave(|pod| {
        let image = pod.spec.as_ref()?.containers.first()?.image.as_deref()?;
        image.ends_with(":typo").then_some(Behaviour::BadImage)
    });
    world
        .apply(&edited(SERVICE, "example/little:v1", "example/little:typo"))
        .await;
    let told = ready(&world).await;
    assert!(
        told.starts_with("False ImagePullFailed: Pod helmet-deployment-edge-")
            && told.ends_with("cannot start: the image example/little:typo of container little cannot be pulled"),
        "{told}"
    );
    assert_eq!(world.state::<JointInferenceService>("helmet").await, "Failed");
    world.apply(SERVICE).await;
    assert_eq!(ready(&world).await, READY);
    // The old pods go on serving while the new one cannot start: that is degraded, not failed.
    let edit = image("cloudWorker", "big", "example/big:typo");
    world.edit::<JointInferenceService>("helmet", edit).await;
    assert_eq!(world.state::<JointInferenceService>("helmet").await, "Running");
    let told = world.condition::<JointInferenceService>("helmet", "Degraded").await;
    assert!(
        told.starts_with("True ImagePullFailed: Pod helmet-deployment-cloud-"),
        "{told}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_jobs_pod_that_cannot_start_is_named_and_heals() {
    let world = World::start().await;
    world.kubelet.behave(|pod| {
        let image = pod.spec.as_ref()?.containers.first()?.image.as_deref()?;
        image.ends_with(":typo").then_some(Behaviour::BadImage)
    });
    world
        .apply(&edited(JOB, "example/trainer-1:v1", "example/trainer-1:typo"))
        .await;
    let told = world.condition::<FederatedLearningJob>("surface", "Ready").await;
    assert!(
        told.starts_with("False ImagePullFailed: Pod surface-train-1-") && told.contains("example/trainer-1:typo"),
        "{told}"
    );
    world.apply(JOB).await;
    assert_eq!(
        world.condition::<FederatedLearningJob>("surface", "Ready").await,
        RUNNING
    );
}

#[tokio::test(start_paused = true)]
async fn a_models_url_counts_as_a_change_of_whoever_uses_it() {
    let world = serving().await;
    let mark = world.mark();
    let edit = json!({"spec": {"url": "/var/models/smaller.pb"}});
    world.edit::<Model>("small", edit).await;
    let template = world.object::<Deployment>(EDGE).await["spec"]["template"]["spec"].take();
    assert_eq!(env(&template)["MODEL_URL"], "/home/data/var/models/smaller.pb");
    assert_eq!(children(&world, mark), ["patch deployments helmet-deployment-edge"]);
    assert_eq!(ready(&world).await, READY);
    // What has nothing to do with the worker touches nobody.
    let mark = world.mark();
    let edit = json!({"metadata": {"labels": {"team": "red"}}});
    world.edit::<Model>("small", edit).await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_datasets_url_replaces_the_trainer_that_uses_it() {
    let world = training().await;
    let before = [
        pod(&world, "surface-aggregation-").await,
        pod(&world, "surface-train-0-").await,
    ];
    let old = pod(&world, "surface-train-1-").await;
    let edit = json!({"spec": {"url": "/var/data/cleaned.txt"}});
    world.edit::<Dataset>("share-1", edit).await;
    let new = pod(&world, "surface-train-1-").await;
    assert_ne!(uid(&new), uid(&old));
    assert_eq!(
        env(&new["spec"])["TRAIN_DATASET_URL"],
        "/home/data/var/data/cleaned.txt"
    );
    let after = [
        pod(&world, "surface-aggregation-").await,
        pod(&world, "surface-train-0-").await,
    ];
    assert_eq!(after.each_ref().map(uid), before.each_ref().map(uid));
}

#[tokio::test(start_paused = true)]
async fn a_secrets_content_counts_as_a_change_of_whoever_uses_it() {
    let world = World::start().await;
    world.apply(SECRET).await;
    world.apply(&with_small_model_in_storage()).await;
    assert_eq!(ready(&world).await, READY);
    let mark = world.mark();
    world
        .apply(&edited(SECRET, "the-secret-access-key", "another-key"))
        .await;
    assert_eq!(
        children(&world, mark),
        ["patch deployments helmet-deployment-edge"],
        "the worker that uses it"
    );
    assert_eq!(ready(&world).await, READY);
    let mark = world.mark();
    let note = json!({"metadata": {"annotations": {"example.org/note": "rotated"}}});
    world.edit::<Secret>("storage", note).await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new(), "a note changes nothing");
}

/// The manager's writes but those to statuses.
fn children(world: &World, mark: skerry_sandbox::api::Mark) -> Vec<String> {
    let mut writes = world.writes_since(mark);
    writes.retain(|write| !write.contains("/status "));
    writes
}

/// A log that a test can read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_reach_workers_by_reference_and_nowhere_in_clear() {
    let log = Log::default();
    let written = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || written.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    tracing::info!("what is logged is seen");
    let world = World::start().await;
    world.apply(SECRET).await;
    world.apply(&with_small_model_in_storage()).await;
    let dataset = edited(
        JOB,
        "url: /var/data/share-0.txt",
        "url: s3://samples/share-0.txt\n  credentialName: storage",
    );
    world.apply(&dataset).await;
    assert_eq!(ready(&world).await, READY);

    let edge = world.object::<Deployment>(EDGE).await;
    let fetcher = &edge["spec"]["template"]["spec"]["initContainers"][0];
    assert_eq!(fetcher["image"], "skerry/storage-initializer:v1");
    assert_eq!(fetcher["args"], json!(["s3://models/small.pb", "/downloads/models/"]));
    let told = env(&json!({"containers": [fetcher]}));
    let key = |key: &str| json!({"secretKeyRef": {"name": "storage", "key": key}});
    assert_eq!(told["SECRET_ACCESS_KEY"], key("SECRET_ACCESS_KEY"));
    assert_eq!(told["ACCESS_KEY_ID"], key("ACCESS_KEY_ID"));
    assert_eq!(told["S3_ENDPOINT_URL"], "http://minio.example:9000");

    // The node that counts the samples gets it with its part, in a frame of its own, and never in print.
    let parts = world.held.parts(skerry_workloads::ObjectKind::DATASET, "share-0");
    let (part, credential) = &parts["edge-1"];
    let fields = &credential.as_ref().unwrap().fields;
    assert_eq!(fields["SECRET_ACCESS_KEY"], "the-secret-access-key");

    let everything = [
        ("objects", world.outcome().await.to_string()),
        ("the service's events", world.events_about("helmet").await.join("\n")),
        ("the job's events", world.events_about("surface").await.join("\n")),
        ("the part in print", format!("{part:?} {credential:?}")),
        ("the log", String::from_utf8(log.0.lock().unwrap().clone()).unwrap()),
    ];
    for (name, place) in &everything {
        assert!(!place.is_empty(), "{name}");
        for secret in [
            "the-access-key-id",
            "the-secret-access-key",
            "dGhlLWFjY2Vzcy1rZXktaWQ",
            "dGhlLXNlY3JldC1hY2Nlc3Mta2V5",
        ] {
            assert!(!place.contains(secret), "{secret} in {name}: {place}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_forced_host_network_keeps_the_clusters_names() {
    let world = training().await;
    let trainer = pod(&world, "surface-train-0-").await;
    assert_eq!(
        (&trainer["spec"]["hostNetwork"], text(&trainer, "/spec/dnsPolicy")),
        (&json!(true), "ClusterFirstWithHostNet")
    );
    assert_eq!(env(&trainer["spec"])["LC_SERVER"], "http://localhost:9100");
    let pods = world.all::<Pod>().await;
    assert_eq!(pods.len(), 3);
}
