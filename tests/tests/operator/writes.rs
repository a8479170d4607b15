//! What the manager writes, counted: one write for each child, one for an edit, one for each actual change of a status,
//! and none for nothing. Events apart.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
    core::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::{Dataset, FederatedLearningJob, JointInferenceService, Model};
use skerry_globalmanager::engine::Taken;
use skerry_sandbox::{
    api::{Fault, Match},
    cluster::Behaviour,
};
use skerry_tests::{
    NAMESPACE, World,
    look::Seen,
    world::{MANAGER, USER},
};
use skerry_workloads::Payload;
use tokio::time::Instant;

use crate::{CLOUD, EDGE, JOB, READY, SERVICE, Service, edited, image, name, pod, serving, training};

/// Writes to children, and statuses apart.
fn split(writes: Vec<String>) -> (Vec<String>, Vec<String>) {
    writes.into_iter().partition(|write| !write.contains("/status "))
}

#[tokio::test(start_paused = true)]
async fn creating_a_service_costs_one_write_per_child() {
    let world = World::start().await;
    let mark = world.mark();
    let scaled = edited(
        SERVICE,
        "    model:\n      name: large",
        "    hpa: {maxReplicas: 2}\n    model:\n      name: large",
    );
    world.apply(&scaled).await;
    let (mut children, _) = split(world.writes_since(mark));
    children.sort();
    assert_eq!(
        children,
        [
            "patch deployments helmet-deployment-cloud",
            "patch deployments helmet-deployment-edge",
            "patch horizontalpodautoscalers hpa-helmet-deployment-cloud",
            "patch services helmet-cloud",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn creating_a_job_costs_one_write_per_child() {
    let world = World::start().await;
    let mark = world.mark();
    world.apply(JOB).await;
    let (children, _) = split(world.writes_since(mark));
    let pods = [
        pod(&world, "surface-aggregation-").await,
        pod(&world, "surface-train-0-").await,
        pod(&world, "surface-train-1-").await,
    ];
    let mut expected: Vec<_> = pods.iter().map(|pod| format!("create pods {}", name(pod))).collect();
    expected.insert(0, "patch services surface-aggregation".to_owned());
    assert_eq!(children, expected);
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_one_worker_costs_one_write_and_of_a_pod_its_replacement() {
    let world = serving().await;
    world.apply(JOB).await;
    let mark = world.mark();
    world
        .edit::<JointInferenceService>("helmet", image("edgeWorker", "little", "example/little:v2"))
        .await;
    let (children, _) = split(world.writes_since(mark));
    assert_eq!(children, ["patch deployments helmet-deployment-edge"]);
    let mark = world.mark();
    world
        .apply(&edited(JOB, "example/trainer-0:v1", "example/trainer-0:v2"))
        .await;
    let (children, _) = split(world.writes_since(mark));
    let trainer = pod(&world, "surface-train-0-").await;
    assert_eq!(
        children,
        [
            format!("delete pods {}", name(&trainer)),
            format!("create pods {}", name(&trainer))
        ]
    );
}

/// The statuses that a kind's resources went through, one after the other.
#[derive(Clone, Default)]
struct Statuses(Arc<Mutex<Vec<(String, Value)>>>);

impl Statuses {
    /// Follows the resources of a kind from now on.
    async fn follow<K: Seen>(world: &World) -> Self {
        let statuses = Self::default();
        let seen = statuses.clone();
        let resource = kube::api::ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(world.api.client_as(USER), NAMESPACE, &resource);
        tokio::spawn(async move {
            let objects = watcher(api, watcher::Config::default())
                .default_backoff()
                .applied_objects();
            let objects = objects.map_ok(|object| {
                let name = object.metadata.name.clone().unwrap_or_default();
                seen.see(name, object.data.get("status").cloned().unwrap_or_default());
            });
            objects.for_each(|_| std::future::ready(())).await;
        });
        world.settle().await;
        statuses
    }

    fn see(&self, name: String, status: Value) {
        let mut seen = self.0.lock().unwrap();
        let last = seen.iter().rev().find(|(known, _)| *known == name);
        if last.is_none_or(|(_, last)| *last != status) {
            seen.push((name, status));
        }
    }

    /// How often a status changed.
    fn changes(&self) -> usize {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter(|(_, status)| !status.is_null())
            .count()
    }
}

/// Each write of a status changed it.
#[tokio::test(start_paused = true)]
async fn a_status_costs_one_write_per_actual_change() {
    let world = World::start().await;
    let services = Statuses::follow::<JointInferenceService>(&world).await;
    let jobs = Statuses::follow::<FederatedLearningJob>(&world).await;
    let models = Statuses::follow::<Model>(&world).await;
    let datasets = Statuses::follow::<Dataset>(&world).await;
    let mark = world.mark();
    world.kubelet.behave(|pod| {
        let image = pod.spec.as_ref()?.containers.first()?.image.as_deref()?;
        match image.rsplit(':').next()? {
            "typo" => Some(Behaviour::BadImage),
            "crash" => Some(Behaviour::fail_after(Duration::from_secs(7))),
            _ => None,
        }
    });
    world.apply(SERVICE).await;
    world.apply(JOB).await;
    for version in ["typo", "crash", "v2"] {
        let edit = image("edgeWorker", "little", &format!("example/little:{version}"));
        world.edit::<JointInferenceService>("helmet", edit).await;
        let edit = edited(JOB, "example/trainer-0:v1", &format!("example/trainer-0:{version}"));
        world.apply(&edit).await;
        world.pass(Duration::from_secs(600)).await;
    }
    world.delete::<Model>("large", &DeleteParams::default()).await;
    world.delete::<Deployment>(EDGE, &DeleteParams::default()).await;
    world
        .delete::<Service>("surface-aggregation", &DeleteParams::default())
        .await;
    world.apply(SERVICE).await;
    world.lose_node("edge-1").await;
    world.pass(Duration::from_secs(120)).await;
    world.restore_node("edge-1").await;
    let uid = world.uid::<Dataset>("share-1").await;
    for samples in [7, 7, 8] {
        let samples = Payload::Samples(samples);
        let taken = world
            .engine()
            .take_report("edge-2", "dataset", NAMESPACE, "share-1", &uid, samples)
            .await;
        assert_eq!(taken, Taken::Accepted);
    }
    for place in ["surface-train-0-", "surface-train-1-", "surface-aggregation-"] {
        world.kubelet.exit(NAMESPACE, name(&pod(&world, place).await), 0);
        world.settle().await;
    }
    let (_, writes) = split(world.changes_since(mark));
    for (resource, statuses) in [
        ("jointinferenceservices", services),
        ("federatedlearningjobs", jobs),
        ("models", models),
        ("datasets", datasets),
    ] {
        let written = writes
            .iter()
            .filter(|write| write.starts_with(&format!("patch {resource}/status")))
            .count();
        assert_eq!(written, statuses.changes(), "{resource}: {writes:#?}");
    }
    assert!(writes.len() > 15, "{writes:#?}");
}

/// A pod that comes and goes many times a second costs a write a second, and the last one tells how it is.
#[tokio::test(start_paused = true)]
async fn a_status_is_written_once_a_second_at_most() {
    let world = serving().await;
    world.tell_seldom();
    world.restart_manager().await;
    world.settle().await;
    let (mark, begun) = (world.mark(), Instant::now());
    for change in 0..20 {
        let behaviour = [Behaviour::NeverReady, Behaviour::Run][change % 2].clone();
        world.kubelet.behave(move |_| Some(behaviour.clone()));
        world.pass(Duration::from_millis(200)).await;
    }
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    world.settle().await;
    let written = world.changes_since(mark).len();
    assert!(written > 1, "nothing was told");
    assert!(written <= seconds + 2, "{written} writes in {seconds} s");
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}

const DATASET: &str = "
apiVersion: sedna.io/v1alpha1
kind: Dataset
metadata: {name: samples}
spec: {url: /data/samples.txt, format: txt, nodeName: edge-1}
";

/// Of one edit it is told at once that it was seen; of edits that follow each other without end, now and then.
#[tokio::test(start_paused = true)]
async fn of_a_resource_that_is_edited_without_end_little_is_told() {
    let world = World::without_manager().await;
    world.tell_seldom();
    world.start_manager();
    world.apply(DATASET).await;
    world.outlast(Duration::from_secs(6)).await;
    let (mark, begun) = (world.mark(), Instant::now());
    let datasets = world.view::<Dataset>();
    for edit in 0..30 {
        let change = json!({"spec": {"url": format!("/data/{edit}.txt")}});
        let how = PatchParams::default();
        datasets.patch("samples", &how, &Patch::Merge(change)).await.unwrap();
        world.pass(Duration::from_millis(200)).await;
        if edit == 0 {
            assert_eq!(world.changes_since(mark).len(), 1, "the first is told at once");
        }
    }
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    world.rest().await;
    let written = world.changes_since(mark).len();
    assert!(written <= seconds / 5 + 2, "{written} writes in {seconds} s");
    let dataset = world.object::<Dataset>("samples").await;
    assert_eq!(
        dataset["status"]["observedGeneration"],
        dataset["metadata"]["generation"]
    );
}

/// Of many that are edited at once it is told by and by, so that those who edit have the API server to themselves.
#[tokio::test(start_paused = true)]
async fn of_many_resources_that_are_edited_at_once_it_is_told_by_and_by() {
    const MANY: usize = 60;
    let world = World::without_manager().await;
    world.tell_seldom();
    world.start_manager();
    for number in 0..MANY {
        world
            .apply(&edited(DATASET, "name: samples", &format!("name: samples-{number}")))
            .await;
    }
    world.outlast(Duration::from_secs(6)).await;
    let (mark, begun) = (world.mark(), Instant::now());
    let datasets = world.view::<Dataset>();
    for number in 0..MANY {
        let change = Patch::Merge(json!({"spec": {"url": "/data/others.txt"}}));
        datasets
            .patch(&format!("samples-{number}"), &PatchParams::default(), &change)
            .await
            .unwrap();
    }
    world.pass(Duration::from_secs(1)).await;
    let written = world.changes_since(mark).len();
    let allowed = begun.elapsed().as_millis() / 50 + 2;
    assert!(written > 0, "nothing was told");
    assert!(written as u128 <= allowed, "{written} writes where {allowed} may be");
    world.rest().await;
    assert_eq!(world.changes_since(mark).len(), MANY);
    for number in 0..MANY {
        let dataset = world.object::<Dataset>(&format!("samples-{number}")).await;
        assert_eq!(dataset["status"]["observedGeneration"], 2, "{dataset:#}");
    }
}

/// What is put off is told soon, also where something else of the resource fails and is tried again minutes later.
#[tokio::test(start_paused = true)]
async fn a_status_does_not_wait_for_what_fails() {
    let world = World::start().await;
    let cloud = Match::writes().user(MANAGER).resource("deployments").name(CLOUD);
    world.api.faults().inject(cloud, Fault::InternalError);
    world.apply(SERVICE).await;
    world.pass(Duration::from_secs(600)).await;
    for behaviour in [Behaviour::NeverReady, Behaviour::Run] {
        world.kubelet.behave(move |_| Some(behaviour.clone()));
        world.pass(Duration::from_millis(300)).await;
    }
    world.pass(Duration::from_secs(5)).await;
    let status = &world.object::<JointInferenceService>("helmet").await["status"];
    assert_eq!(status["active"], 1, "{status:#}");
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_nothing_costs_nothing() {
    let world = serving().await;
    world.apply(JOB).await;
    // A job that has ended.
    world.apply(&edited(JOB, "name: surface", "name: ended")).await;
    for place in ["ended-train-0-", "ended-train-1-", "ended-aggregation-"] {
        world.kubelet.exit(NAMESPACE, name(&pod(&world, place).await), 0);
        world.settle().await;
    }
    // One that is paused, one that lacks its Model, one whose image cannot be pulled, and one whose name is taken.
    world.kubelet.behave(|pod| {
        let image = pod.spec.as_ref()?.containers.first()?.image.as_deref()?;
        image.ends_with(":typo").then_some(Behaviour::BadImage)
    });
    let paused = "name: paused\n  annotations:\n    skerry.io/paused: \"true\"";
    for manifest in [
        edited(SERVICE, "name: helmet", paused),
        edited(
            &edited(SERVICE, "name: helmet", "name: lacking"),
            "      name: large",
            "      name: absent",
        ),
        edited(
            &edited(SERVICE, "name: helmet", "name: typo"),
            "example/big:v1",
            "example/big:typo",
        ),
        "{apiVersion: v1, kind: Service, metadata: {name: taken-cloud}, spec: {ports: [{port: 1}]}}".to_owned(),
        edited(SERVICE, "name: helmet", "name: taken"),
    ] {
        world.apply(&manifest).await;
    }
    // A rollout that makes no progress says so after ten minutes.
    world.pass(Duration::from_secs(700)).await;
    let mark = world.mark();
    world.pass(Duration::from_secs(3600)).await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_report_that_says_nothing_new_costs_nothing() {
    let world = training().await;
    let uid = world.uid::<Dataset>("share-0").await;
    let report = async || {
        world
            .engine()
            .take_report("edge-1", "dataset", NAMESPACE, "share-0", &uid, Payload::Samples(9))
            .await
    };
    let mark = world.mark();
    assert_eq!(report().await, Taken::Accepted);
    world.settle().await;
    let of_count_and_conditions = ["patch datasets/status share-0"; 2];
    assert_eq!(world.writes_since(mark), of_count_and_conditions);
    assert_eq!(report().await, Taken::Accepted);
    world.settle().await;
    assert_eq!(world.writes_since(mark), of_count_and_conditions);
    assert_eq!(world.object::<Dataset>("share-0").await["status"]["numberOfSamples"], 9);
    let pods = world.all::<Pod>().await;
    assert_eq!(pods.len(), 3);
}
