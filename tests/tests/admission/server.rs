//! An API server with our definitions, and the two requests that the tests make of it.

use std::ffi::OsStr;

use http::{Method, Request};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::Status,
    runtime::{conditions, wait::await_condition},
};
use serde_json::{Value, json};
use skerry_sandbox::ApiServer;
use tokio::sync::OnceCell;

/// The sandbox that the tests share, with our definitions; none where they run on a cluster.
static SANDBOX: OnceCell<Option<ApiServer>> = OnceCell::const_new();

/// An API server that knows our kinds, seen from one namespace.
pub(crate) struct Server {
    client: Client,
    namespace: String,
}

impl Server {
    /// The sandbox, or the cluster that `SKERRY_TEST_KUBECONFIG` names; a namespace of its own in either.
    pub(crate) async fn start() -> Self {
        let cluster = std::env::var_os("SKERRY_TEST_KUBECONFIG");
        let sandbox = SANDBOX.get_or_init(|| async {
            let sandbox = cluster.is_none().then(ApiServer::new);
            install(&connect(sandbox.as_ref(), cluster.as_deref()).await).await;
            sandbox
        });
        let client = connect(sandbox.await.as_ref(), cluster.as_deref()).await;
        let namespace: Value = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "admission-"},
        });
        let made = send(&client, Method::POST, "/api/v1/namespaces", &namespace).await;
        let namespace = made.unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        Self { client, namespace }
    }

    /// Creates the resource; what is stored, or why it is refused.
    pub(crate) async fn create(&self, manifest: &Value) -> Result<Value, Status> {
        self.send(Method::POST, manifest, "?fieldValidation=Strict").await
    }

    /// The same without storing anything.
    pub(crate) async fn try_create(&self, manifest: &Value) -> Result<Value, Status> {
        self.send(Method::POST, manifest, "?fieldValidation=Strict&dryRun=All")
            .await
    }

    /// Replaces the resource's status.
    pub(crate) async fn replace_status(&self, manifest: &Value) -> Result<Value, Status> {
        let name = manifest["metadata"]["name"].as_str().unwrap();
        self.send(Method::PUT, manifest, &format!("/{name}/status?fieldValidation=Strict"))
            .await
    }

    async fn send(&self, method: Method, manifest: &Value, rest: &str) -> Result<Value, Status> {
        let mut manifest = manifest.clone();
        manifest["metadata"].as_object_mut().unwrap().remove("namespace");
        let kind = manifest["kind"].as_str().unwrap();
        let definition = skerry_crds::all()
            .iter()
            .find(|crd| crd.spec.names.kind == kind)
            .unwrap();
        let (group, plural) = (&definition.spec.group, &definition.spec.names.plural);
        let namespace = &self.namespace;
        let path = format!("/apis/{group}/v1alpha1/namespaces/{namespace}/{plural}{rest}");
        send(&self.client, method, &path, &manifest).await
    }
}

async fn send(client: &Client, method: Method, path: &str, body: &Value) -> Result<Value, Status> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(body).unwrap()).unwrap();
    match client.request(request).await {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err(*status),
        Err(other) => panic!("{path}: {other}"),
    }
}

async fn connect(sandbox: Option<&ApiServer>, cluster: Option<&OsStr>) -> Client {
    if let Some(sandbox) = sandbox {
        return sandbox.client();
    }
    // Another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = Kubeconfig::read_from(cluster.unwrap()).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

async fn install(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in skerry_crds::all() {
        let name = definition.metadata.name.as_deref().unwrap();
        let params = PatchParams::apply("skerry-tests").force();
        definitions
            .patch(name, &params, &Patch::Apply(definition))
            .await
            .unwrap();
    }
    for definition in skerry_crds::all() {
        let name = definition.metadata.name.as_deref().unwrap();
        let established = conditions::is_crd_established();
        await_condition(definitions.clone(), name, established).await.unwrap();
    }
}
