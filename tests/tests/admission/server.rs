//! An API server with our definitions, and the two requests that the tests make of it.

use std::{
    path::PathBuf,
    sync::{LazyLock, mpsc},
    thread,
    time::Duration,
};

use http::{Method, Request};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config,
    api::{ApiResource, DeleteParams, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{DynamicObject, GroupVersionKind, Status},
    runtime::{conditions, wait::await_condition},
};
use serde_json::{Value, json};
use skerry_sandbox::ApiServer;
use skerry_tests::{NAMESPACE, cluster::Borrowed, planes::is_lent};
use tokio::{
    runtime::Runtime,
    sync::{Mutex, MutexGuard, OnceCell},
    time::sleep,
};

/// The sandbox that the tests share, with our definitions.
static SANDBOX: OnceCell<ApiServer> = OnceCell::const_new();

/// The kubeconfig of a control plane that is lent, with our definitions. One is enough: new definitions cost it much time. It
/// is held on a runtime of its own until the process ends, since that of a test ends with the test.
static LENT: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    if !is_lent() {
        return None;
    }
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        Runtime::new().unwrap().block_on(async {
            let borrowed = Borrowed::take(&[]).await.unwrap();
            borrowed.define(skerry_crds::all()).await;
            tell.send(borrowed.plane.kubeconfig.clone()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    Some(told.recv().unwrap())
});

/// Which test uses the one namespace of a control plane that is cleaned for whoever is lent it next.
static TURN: Mutex<()> = Mutex::const_new(());

/// An API server that knows our kinds, seen from one namespace.
pub(crate) struct Server {
    client: Client,
    namespace: String,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Server {
    /// The sandbox with a namespace of its own, or a real control plane that is lent.
    pub(crate) async fn start() -> Self {
        if let Some(kubeconfig) = LENT.as_ref() {
            let turn = TURN.lock().await;
            let file = Kubeconfig::read_from(kubeconfig).unwrap();
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
            let client = Client::try_from(config.unwrap()).unwrap();
            empty(&client).await;
            return Self {
                client,
                namespace: NAMESPACE.to_owned(),
                _turn: Some(turn),
            };
        }
        let sandbox = SANDBOX.get_or_init(|| async {
            let sandbox = ApiServer::new();
            install(&sandbox.client()).await;
            sandbox
        });
        let client = sandbox.await.client();
        let namespace: Value = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "admission-"},
        });
        let made = send(&client, Method::POST, "/api/v1/namespaces", &namespace).await;
        let namespace = made.unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        Self {
            client,
            namespace,
            _turn: None,
        }
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

/// Takes away what the test before has made.
async fn empty(client: &Client) {
    for definition in skerry_crds::all() {
        let (names, group) = (&definition.spec.names, &definition.spec.group);
        let kind = GroupVersionKind::gvk(group, "v1alpha1", &names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &names.plural);
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
        let all = ListParams::default();
        while !api.list_metadata(&all).await.unwrap().items.is_empty() {
            api.delete_collection(&DeleteParams::default(), &all).await.unwrap();
            sleep(Duration::from_millis(20)).await;
        }
    }
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
