//! The operator ring: the real engine against the in-memory API server, on paused time. One module for each subject of
//! what was decided; each test is named after the sentence that it holds the manager to.

// A set-up that fails is the test's verdict.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod adoption;
mod deletion;
mod drift;
mod faults;
mod federated_learning;
mod foreign;
mod joint_inference;
mod managers;
mod pause;
mod references;
mod reports;
mod rollout;
mod writes;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, JointInferenceService};
use skerry_tests::{
    World,
    look::text,
    samples::{CLOUD, EDGE, JOB, READY, RUNNING, SERVICE, image},
};

type Service = k8s_openapi::api::core::v1::Service;

/// The manifest with one edit.
fn edited(manifest: &str, from: &str, to: &str) -> String {
    assert!(manifest.contains(from), "{from} is not in the manifest");
    manifest.replacen(from, to, 1)
}

/// A world in which the service runs.
async fn serving() -> World {
    let world = World::start().await;
    world.apply(SERVICE).await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
    world
}

/// A world in which the job trains.
async fn training() -> World {
    let world = World::start().await;
    world.apply(JOB).await;
    let ready = world.condition::<FederatedLearningJob>("surface", "Ready").await;
    assert_eq!(ready, RUNNING);
    world
}

/// The one pod of a job whose container has this name prefix: `surface-aggregation-`, `surface-train-0-`.
async fn pod(world: &World, prefix: &str) -> Value {
    let found = find_pod(world, prefix).await;
    found.unwrap_or_else(|| panic!("there is no pod {prefix}…"))
}

/// The same, where there may be none. There never are two.
async fn find_pod(world: &World, prefix: &str) -> Option<Value> {
    let mut pods = world.all::<Pod>().await;
    pods.retain(|pod| text(pod, "/metadata/name").starts_with(prefix));
    assert!(pods.len() <= 1, "two pods in one place: {pods:#?}");
    pods.pop()
}

/// The name of an object.
fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The uid of an object.
fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

#[test]
fn the_page_of_scenarios_names_each_of_these() {
    skerry_cluster::table::names_all_of_this_program("operator").unwrap();
}
