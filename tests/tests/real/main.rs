//! What only a real control plane can show. Each scenario borrows one (see `skerry_tests::cluster`); where none is lent,
//! they are ignored: `tests/cluster/run` lends some.

// A set-up that fails is the test's verdict.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod autoscalers;
mod deletion;
mod edits;
mod evictions;
mod history;
mod identity;
mod outages;
mod rights;
mod users;

use std::ops::Deref;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, JointInferenceService};
use skerry_tests::{
    NAMESPACE, World,
    kubectl::Kubectl,
    look::text,
    planes::Plane,
    samples::{self, CLOUD, EDGE, JOB, READY, RUNNING, SERVICE},
    server::Server,
};

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
        let kubeconfig = std::fs::read_to_string(&lent(&world).kubeconfig).unwrap();
        let kubectl = Kubectl::new(&kubeconfig, NAMESPACE);
        Self { world, kubectl }
    }

    /// The control plane itself, which can be taken down.
    fn plane(&self) -> &Plane {
        lent(&self.world)
    }

    async fn is_well(&self) {
        assert_eq!(self.condition::<JointInferenceService>("helmet", "Ready").await, READY);
        assert_eq!(
            self.condition::<FederatedLearningJob>("surface", "Ready").await,
            RUNNING
        );
    }

    /// The same under a whole manager: nobody here sees that it is about to write a status, the first one included.
    async fn becomes_well(&self) {
        self.until("a status of each that says that it is well", async || {
            let service = self
                .condition_if_told::<JointInferenceService>("helmet", "Ready")
                .await?;
            let job = self
                .condition_if_told::<FederatedLearningJob>("surface", "Ready")
                .await?;
            (service == READY && job == RUNNING).then_some(())
        })
        .await;
    }

    /// `kubectl patch --type=merge` of `kind/name`.
    async fn patch(&self, object: &str, patch: &str) {
        self.kubectl.ok(&["patch", object, "--type=merge", "-p", patch]).await;
    }

    /// The same of the image of the service's worker at the edge.
    async fn patch_edge_image(&self, image: &str) {
        let patch = samples::image("edgeWorker", "little", image);
        self.patch("ji/helmet", &patch.to_string()).await;
    }

    /// `kubectl edit` of `kind/name` by an editor that replaces a text; it has to succeed.
    async fn edit_text(&self, object: &str, old: &str, new: &str) {
        let edited = self.kubectl.edit(object, old, new).await;
        assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    }

    /// The image of a Deployment.
    async fn image(&self, deployment: &str) -> String {
        let deployment = self.object::<Deployment>(deployment).await;
        text(&deployment, "/spec/template/spec/containers/0/image").to_owned()
    }

    /// `kubectl rollout status` of a Deployment, to its end: what it tells.
    async fn rolled_out(&self, deployment: &str) -> String {
        let deployment = format!("deployment/{deployment}");
        self.kubectl
            .ok(&["rollout", "status", &deployment, "--timeout=60s"])
            .await
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
        // The columns are as wide as the longest name, which is another one later.
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        names.lines().map(words).collect()
    }
}

/// The control plane of a world.
fn lent(world: &World) -> &Plane {
    let Server::Cluster(borrowed) = &world.api else {
        panic!("no control plane is lent; tests/cluster/run lends some");
    };
    &borrowed.plane
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

#[test]
fn the_page_of_scenarios_names_each_of_these() {
    skerry_cluster::table::names_all_of_this_program("real").unwrap();
}
