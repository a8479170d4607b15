//! What only a real control plane can show. Each scenario borrows one (see `skerry_tests::cluster`); where none is lent,
//! they are ignored: `tests/cluster/run` lends some.

// A set-up that fails is the test's verdict.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod autoscalers;
mod deletion;
mod edits;
mod evictions;
mod history;
mod outages;
mod users;

use std::ops::Deref;

use serde_json::Value;
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, JointInferenceService};
use skerry_tests::{NAMESPACE, World, kubectl::Kubectl, look::text, server::Server};

/// Two Models and the service `helmet`.
const SERVICE: &str = include_str!("../manifests/joint-inference.yaml");
/// A Model, two Datasets and the job `surface`.
const JOB: &str = include_str!("../manifests/federated-learning.yaml");

const EDGE: &str = "helmet-deployment-edge";
const CLOUD: &str = "helmet-deployment-cloud";

const READY: &str = "True WorkersAvailable: both workers are available";
const RUNNING: &str = "True WorkersRunning: all workers run";

/// The kinds of what is made for a service or a job, and of what is made for that.
const CHILDREN: &str = "deployments,replicasets,pods,services,hpa";

/// What holds an object back that is deleted: a finalizer that is nobody's here.
const HOLD: &str = r#"{"metadata":{"finalizers":["example.org/hold"]}}"#;
const RELEASE: &str = r#"{"metadata":{"finalizers":null}}"#;

/// A real control plane with a manager, and what users type.
struct Cluster {
    world: World,
    kubectl: Kubectl,
}

impl Deref for Cluster {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Cluster {
    /// With nothing to do.
    async fn idle() -> Self {
        Self::of(World::start().await)
    }

    /// With the service and the job, both at work.
    async fn at_work() -> Self {
        let cluster = Self::idle().await;
        cluster.kubectl.apply(SERVICE).await;
        cluster.kubectl.apply(JOB).await;
        cluster.settle().await;
        cluster.is_well().await;
        cluster
    }

    fn of(world: World) -> Self {
        let Server::Cluster(borrowed) = &world.api else {
            panic!("no control plane is lent; tests/cluster/run lends some");
        };
        let kubeconfig = std::fs::read_to_string(&borrowed.plane.kubeconfig).unwrap();
        let kubectl = Kubectl::new(&kubeconfig, NAMESPACE);
        Self { world, kubectl }
    }

    async fn is_well(&self) {
        assert_eq!(self.condition::<JointInferenceService>("helmet", "Ready").await, READY);
        assert_eq!(
            self.condition::<FederatedLearningJob>("surface", "Ready").await,
            RUNNING
        );
    }

    /// `kubectl patch --type=merge` of `kind/name`.
    async fn patch(&self, object: &str, patch: &str) {
        self.kubectl.ok(&["patch", object, "--type=merge", "-p", patch]).await;
    }

    /// Waits until of all that is made for a service or a job of this name just these are left: `pod/surface-train-0-…`.
    /// The garbage collector learns of new kinds every thirty seconds.
    async fn is_all_there_is(&self, left: &[&str], name: &str) {
        let what = format!("nothing but {left:?} of {name:?}");
        self.until(&what, async || {
            let names = self.kubectl.ok(&["get", CHILDREN, "-o", "name"]).await;
            let mut found = names.lines().filter(|found| found.contains(name));
            found.all(|found| left.contains(&found)).then_some(())
        })
        .await;
        self.settle().await;
        let names = self.kubectl.ok(&["get", CHILDREN, "-o", "name"]).await;
        let found: Vec<_> = names.lines().filter(|found| found.contains(name)).collect();
        assert_eq!(found, left);
    }

    /// All that is made for services and jobs, with their uids: the very objects.
    async fn very_children(&self) -> Vec<String> {
        let columns = "custom-columns=KIND:.kind,NAME:.metadata.name,UID:.metadata.uid";
        let names = self.kubectl.ok(&["get", CHILDREN, "--no-headers", "-o", columns]).await;
        names.lines().map(str::to_owned).collect()
    }
}

/// The names of an object's finalizers.
fn finalizers(object: &Value) -> Vec<&str> {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether an object is on its way out.
fn is_deleted(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}
