//! Several managers, one after the other and side by side: only the holder of the Lease writes, and the next one takes
//! over everything.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease};
use serde_json::json;
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, JointInferenceService};
use skerry_sandbox::api::{Fault, Match};
use skerry_tests::{
    World,
    look::text,
    manager::{Held, LEASE, Manager},
};
use skerry_workloads::ObjectKind;

use crate::{CLOUD, EDGE, JOB, READY, RUNNING, SERVICE, Service, image, serving, training};

/// Longer than a Lease stands that nobody renews.
const TERM: Duration = Duration::from_secs(20);

async fn until_holds(world: &World, claimant: &str) {
    let what = format!("{claimant} as the Lease's holder");
    let holds = async || (world.find::<Lease>(LEASE).await.is_some() && holder(world).await == claimant).then_some(());
    world.until(&what, holds).await;
}

async fn holder(world: &World) -> String {
    let lease = world.object::<Lease>(LEASE).await;
    let identity = text(&lease, "/spec/holderIdentity").to_owned();
    identity
        .split_once('_')
        .map(|(claimant, _)| claimant.to_owned())
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_standby_writes_nothing_and_takes_over_everything() {
    let world = World::without_manager().await;
    let (first_held, second_held) = (Held::default(), Held::default());
    let first = Manager::contend(&world.api, "first", &first_held);
    until_holds(&world, "first").await;
    let second = Manager::contend(&world.api, "second", &second_held);
    let mark = world.mark();
    world.apply(SERVICE).await;
    world.apply(JOB).await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
    assert_eq!(holder(&world).await, "first");
    assert_eq!(world.writes_of("second", mark), Vec::<String>::new());
    assert_eq!(second_held.all(), vec![], "the standby tells no node anything");

    // Killed: what happens while nobody holds the Lease is made good by the next one.
    first.kill().await;
    let mark = world.mark();
    world
        .view::<JointInferenceService>()
        .patch(
            "helmet",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(image("edgeWorker", "little", "example/little:v2")),
        )
        .await
        .unwrap();
    world.outlast(TERM).await;
    assert_eq!(holder(&world).await, "second");
    let mut writes = world.writes_of("second", mark);
    writes.retain(|write| !write.contains("/status "));
    assert_eq!(writes, ["patch deployments helmet-deployment-edge"], "that and no more");
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
    for (node, kind, name) in [
        ("edge-1", ObjectKind::JOINT_INFERENCE_SERVICE, "helmet"),
        ("edge-1", ObjectKind::FEDERATED_LEARNING_JOB, "surface"),
        ("edge-2", ObjectKind::FEDERATED_LEARNING_JOB, "surface"),
        ("edge-2", ObjectKind::DATASET, "share-1"),
    ] {
        assert!(second_held.on(node, kind, name).is_some(), "{node} {name}");
    }
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_stops_writing_before_another_begins() {
    let world = World::without_manager().await;
    let (first_held, second_held) = (Held::default(), Held::default());
    let first = Manager::contend(&world.api, "first", &first_held);
    until_holds(&world, "first").await;
    let second = Manager::contend(&world.api, "second", &second_held);
    world.apply(SERVICE).await;
    assert_eq!(holder(&world).await, "first");
    // The first one reaches everything but the Lease.
    let mark = world.mark();
    let cut = world.api.faults().inject(
        Match::any().user("first").resource("leases"),
        Fault::Timeout { applied: false },
    );
    // A change every second keeps whoever may write busy, for some time after the second has begun, too.
    let (mut number, mut after) = (0, 0);
    while after < 5 {
        number += 1;
        assert!(number < 60, "the second one never began");
        after += i32::from(holder(&world).await == "second");
        let edit = json!({"spec": {"edgeWorker": {"hpa": {"maxReplicas": number}}}});
        world
            .view::<JointInferenceService>()
            .patch(
                "helmet",
                &kube::api::PatchParams::default(),
                &kube::api::Patch::Merge(edit),
            )
            .await
            .unwrap();
        world.pass(Duration::from_secs(1)).await;
    }
    assert_eq!(holder(&world).await, "second");
    let log = world.api.requests().writes_since(mark);
    let of = |user: &'static str| {
        let writes = log.iter().filter(move |entry| entry.request.user == user);
        writes.filter(|entry| !matches!(entry.request.resource.as_str(), "leases" | "events"))
    };
    let last = of("first").next_back().unwrap().sequence;
    let begun = of("second").next().unwrap().sequence;
    assert!(last < begun, "the first one wrote after the second began");
    // And does not begin again while the second holds on.
    cut.remove();
    let mark = world.mark();
    world.settle().await;
    world.apply(JOB).await;
    assert_eq!(holder(&world).await, "second");
    assert_eq!(world.writes_of("first", mark), Vec::<String>::new());
    assert_eq!(
        world.condition::<FederatedLearningJob>("surface", "Ready").await,
        RUNNING
    );
    first.kill().await;
    second.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_manager_changes_nothing() {
    let world = training().await;
    world.apply(SERVICE).await;
    let before = world.outcome().await;
    let mark = world.mark();
    for _ in 0..3 {
        world.restart_manager().await;
        world.settle().await;
    }
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    assert_eq!(world.outcome().await, before);
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_starts_decides_nothing_before_it_has_seen_everything() {
    let world = serving().await;
    world.kill_manager().await;
    let mark = world.mark();
    // The list of Deployments takes long; until then they must not be taken for missing.
    let slow = world.api.faults().inject(
        Match::any().user("manager").resource("deployments"),
        Fault::Latency(Duration::from_secs(120)),
    );
    world.start_manager();
    world.settle().await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    assert!(!world.engine().missing().is_empty());
    slow.remove();
    world.pass(Duration::from_secs(180)).await;
    assert!(world.engine().missing().is_empty());
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    assert_eq!(world.names::<Deployment>().await, [CLOUD, EDGE]);
    assert_eq!(world.names::<Service>().await, ["helmet-cloud"]);
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_loses_the_lease_writes_nothing_and_makes_it_good_later() {
    let world = serving().await;
    world.leads.send_replace(false);
    let mark = world.mark();
    world
        .edit::<JointInferenceService>("helmet", image("edgeWorker", "little", "example/little:v2"))
        .await;
    world.edit::<Deployment>(CLOUD, json!({"spec": {"replicas": 2}})).await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    world.leads.send_replace(true);
    world.settle().await;
    assert_eq!(world.object::<Deployment>(CLOUD).await["spec"]["replicas"], 1);
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}
