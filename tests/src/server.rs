//! The API server of a scenario: the one in memory, or a real one that is borrowed for the time of the scenario.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use skerry_sandbox::{
    ApiServer, Faults, RequestLog,
    api::{Clock, Options},
    cluster::NodeSpec,
};

use crate::{
    cluster::{Borrowed, let_time_pass},
    planes::is_lent,
    world::NAMESPACE,
};

/// An API server.
pub enum Server {
    /// In memory, with time that passes at once.
    Sandbox(ApiServer),
    /// A real control plane.
    Cluster(Box<Borrowed>),
}

impl Server {
    /// A real one where there is one to be borrowed (see [`crate::cluster`]), or else one in memory.
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// The same for whoever makes these nodes known: there they stay as they are.
    pub async fn with(nodes: &[NodeSpec]) -> Self {
        if is_lent() {
            let_time_pass();
        }
        if let Some(borrowed) = Borrowed::take(nodes).await {
            return Self::Cluster(Box::new(borrowed));
        }
        let server = ApiServer::with_options(&Options {
            // A whole second: two runs of a scenario then round alike.
            start: "2026-01-01T00:00:00Z".parse().expect("it is a time"),
            ..Options::default()
        });
        make_namespace(&server.client()).await;
        Self::Sandbox(server)
    }

    /// Takes our kinds away, which an earlier scenario may have made known.
    pub async fn forget_us(&self) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.admin());
        let all = ListParams::default();
        crds.delete_collection(&DeleteParams::default(), &all)
            .await
            .expect("definitions can be deleted");
        while !crds
            .list(&all)
            .await
            .expect("definitions can be listed")
            .items
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Makes known definitions that somebody else made: these, and no trace of what they were before.
    pub async fn define(&self, definitions: &[CustomResourceDefinition]) {
        match self {
            Self::Sandbox(server) => {
                let api: Api<CustomResourceDefinition> = Api::all(server.client());
                for definition in definitions {
                    let made = api.create(&PostParams::default(), definition).await;
                    made.expect("the definition is accepted");
                }
            }
            Self::Cluster(borrowed) => borrowed.define(definitions).await,
        }
    }

    /// A client that speaks as `user`.
    pub fn client_as(&self, user: &str) -> Client {
        match self {
            Self::Sandbox(server) => server.client_as(user),
            Self::Cluster(borrowed) => borrowed.client_as(user),
        }
    }

    /// A client that speaks as a manager, known as `name`. On a real control plane it may do what the chart's role allows.
    pub fn manager(&self, name: &str) -> Client {
        match self {
            Self::Sandbox(server) => server.client_as(name),
            Self::Cluster(borrowed) => borrowed.manager(name),
        }
    }

    /// A client whose requests are nobody's.
    pub fn admin(&self) -> Client {
        match self {
            Self::Sandbox(server) => server.client(),
            Self::Cluster(borrowed) => borrowed.admin.clone(),
        }
    }

    /// The faults to inject.
    pub fn faults(&self) -> &Faults {
        match self {
            Self::Sandbox(server) => server.faults(),
            Self::Cluster(borrowed) => borrowed.wire.faults(),
        }
    }

    /// What was asked by the scenario's own clients.
    pub fn requests(&self) -> &RequestLog {
        match self {
            Self::Sandbox(server) => server.requests(),
            Self::Cluster(borrowed) => borrowed.wire.requests(),
        }
    }

    /// The clock by which objects are dated.
    pub fn clock(&self) -> Clock {
        match self {
            Self::Sandbox(server) => server.clock(),
            Self::Cluster(_) => Clock::starting_at(Timestamp::now()),
        }
    }

    /// The revision of the last change.
    pub async fn revision(&self) -> u64 {
        let namespaces: Api<Namespace> = Api::all(self.client_as("observer"));
        // Of a consistent read, which tells the newest one of all.
        let list = namespaces.list(&ListParams::default()).await;
        let version = list.expect("namespaces can be listed").metadata.resource_version;
        let version = version.expect("a list has a version");
        version.parse().expect("a version is a number")
    }

    /// Forgets all history, so that whoever comes back with an older revision is answered 410.
    pub async fn compact(&self) {
        match self {
            Self::Sandbox(server) => server.compact(),
            Self::Cluster(borrowed) => borrowed.plane.compact(self.revision().await).await,
        }
    }
}

/// Makes the scenarios' namespace, unless it is there.
pub(crate) async fn make_namespace(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    namespaces
        .patch(NAMESPACE, &PatchParams::apply("skerry-tests"), &Patch::Apply(namespace))
        .await
        .expect("the namespace is accepted");
}
