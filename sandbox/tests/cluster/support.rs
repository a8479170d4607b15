//! Worlds to test in, and how to wait in them.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use skerry_sandbox::ApiServer;
use skerry_sandbox::cluster::{Controllers, FakeKubelet, NodeSpec};

/// A cluster in virtual time.
pub(crate) struct World {
    pub(crate) server: ApiServer,
    pub(crate) kubelet: FakeKubelet,
    _controllers: Controllers,
}

/// The users that the cluster's own requests come from.
pub(crate) const CONTROLLERS: &str = "system:kube-controller-manager";

/// A cluster with one cloud node and one edge node.
pub(crate) async fn world() -> World {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    // Another test of this process may have done so before.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_test_writer()
        .try_init();
    let server = ApiServer::new();
    let controllers = Controllers::spawn(server.client_as(CONTROLLERS), server.clock());
    let nodes = [NodeSpec::cloud("cloud-1"), NodeSpec::edge("edge-1")];
    let kubelet = FakeKubelet::spawn(server.client_as("system:node"), server.clock(), nodes)
        .await
        .unwrap();
    World {
        server,
        kubelet,
        _controllers: controllers,
    }
}

impl World {
    pub(crate) fn client(&self) -> Client {
        self.server.client()
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client(), "default")
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.api::<K>().create(&PostParams::default(), &object).await.unwrap()
    }

    pub(crate) async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        list(&self.client()).await
    }

    /// The reasons of all events about an object, in the order in which they were recorded.
    pub(crate) async fn events(&self, about: &str) -> Vec<(String, String)> {
        events(&self.client(), about).await
    }
}

pub(crate) async fn list<K>(client: &Client) -> Vec<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    Api::<K>::namespaced(client.clone(), "default")
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
}

pub(crate) async fn events(client: &Client, about: &str) -> Vec<(String, String)> {
    let mut events = list::<Event>(client).await;
    events.retain(|event| event.involved_object.name.as_deref() == Some(about));
    events.sort_by_key(|event| event.resource_version().and_then(|version| version.parse::<u64>().ok()));
    events
        .into_iter()
        .map(|event| (event.reason.unwrap(), event.message.unwrap()))
        .collect()
}

/// A Deployment with one container, changed by a merge patch of its spec.
pub(crate) fn deployment(name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "example/main:1"}]},
            },
        },
    });
    json_patch::merge(&mut object["spec"], spec);
    object
}

/// A pod with one container, changed by a merge patch of its spec.
pub(crate) fn pod(name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "example/main:1"}]},
    });
    json_patch::merge(&mut object["spec"], spec);
    object
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

pub(crate) fn condition(pod: &Pod, of: &str) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|known| known.type_ == of)
        .map(|known| known.status.clone())
}

/// Waits until `check` holds; fails with what it said last after five minutes, which in virtual time pass at once.
pub(crate) async fn eventually<T>(mut check: impl AsyncFnMut() -> Result<T, String>) -> T {
    within(Duration::from_secs(300), Duration::from_millis(100), &mut check).await
}

/// The same in real time, more often and not so long.
pub(crate) async fn soon<T>(mut check: impl AsyncFnMut() -> Result<T, String>) -> T {
    within(Duration::from_secs(30), Duration::from_millis(20), &mut check).await
}

async fn within<T>(limit: Duration, pause: Duration, check: &mut impl AsyncFnMut() -> Result<T, String>) -> T {
    let end = tokio::time::Instant::now() + limit;
    loop {
        match check().await {
            Ok(done) => return done,
            Err(why) => assert!(tokio::time::Instant::now() < end, "not within {limit:?}: {why}"),
        }
        tokio::time::sleep(pause).await;
    }
}

/// A pod that satisfies `wanted`, once it does.
pub(crate) async fn pod_when(client: &Client, name: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    soon_or_virtually(async || {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        if wanted(&pod) {
            Ok(pod)
        } else {
            Err(serde_json::to_string(&pod.status).unwrap())
        }
    })
    .await
}

/// Waits in whatever time the test runs in: five minutes of it at most.
async fn soon_or_virtually<T>(mut check: impl AsyncFnMut() -> Result<T, String>) -> T {
    within(Duration::from_secs(60), Duration::from_millis(20), &mut check).await
}
