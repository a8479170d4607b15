//! Where the bench works: a namespace and two stand-in nodes of its own, and a manager that may do there what it likes,
//! and has the rank at the API server that any workload has.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Node},
        rbac::v1::RoleBinding,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{DynamicObject, ObjectMeta},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use serde_json::json;
use skerry_sandbox::{
    api::Clock,
    cluster::{FakeKubelet, NodeSpec},
};
use skerry_workloads::ObjectKind;
use tokio::time::{sleep, timeout};

use super::children::resource;
use crate::failure::Failure;

/// How long the control plane may take to clean up after the bench.
const CLEANING: Duration = Duration::from_secs(600);
/// Between two looks at whether it has: no event tells the end of a namespace to whoever deletes it.
const LOOK: Duration = Duration::from_millis(200);
/// The service account that the manager speaks as.
const ACCOUNT: &str = "globalmanager";

/// A control plane that the bench may use.
pub(super) struct Plane {
    pub(super) client: Client,
    kubeconfig: Kubeconfig,
    /// What tells the namespaces and nodes of this run from others'.
    run: String,
    /// What the nodes are called.
    pub(super) cloud: String,
    pub(super) edge: String,
    _kubelet: FakeKubelet,
}

impl Plane {
    /// Connects, installs the kinds that are missing, and registers nodes.
    pub(super) async fn join(file: &Path) -> Result<Self, Failure> {
        let kubeconfig = Kubeconfig::read_from(file)
            .map_err(|error| Failure::new(format!("{}: {error}", file.display()), "name another with --kubeconfig"))?;
        let unusable = |error: &dyn std::fmt::Display| {
            Failure::new(
                format!("{}: {error}", file.display()),
                "name another file with --kubeconfig",
            )
        };
        let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default())
            .await
            .map_err(|error| unusable(&error))?;
        let client = Client::try_from(config).map_err(|error| unusable(&error))?;
        install_missing(&client).await?;
        let run = format!("skerry-bench-{:05x}", rand::random_range(0..0x10_0000));
        let (cloud, edge) = (format!("{run}-cloud"), format!("{run}-edge"));
        let clock = Clock::starting_at(Timestamp::now());
        let nodes = [NodeSpec::cloud(&cloud), NodeSpec::edge(&edge)];
        let kubelet = FakeKubelet::spawn(client.clone(), clock, nodes)
            .await
            .map_err(refused)?;
        let nodes: Api<Node> = Api::all(client.clone());
        for node in [&cloud, &edge] {
            // What is not the bench's stays away.
            let taint = json!({"spec": {"taints": [{"key": "skerry.io/bench", "effect": "NoSchedule"}]}});
            nodes
                .patch(node, &PatchParams::default(), &Patch::Merge(taint))
                .await
                .map_err(refused)?;
        }
        Ok(Self {
            client,
            kubeconfig,
            run,
            cloud,
            edge,
            _kubelet: kubelet,
        })
    }

    /// A namespace, with a manager's account in it.
    pub(super) async fn namespace(&self, round: u32) -> Result<String, Failure> {
        let name = format!("{}-{round}", self.run);
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            ..ObjectMeta::default()
        };
        let namespace = Namespace {
            metadata,
            ..Namespace::default()
        };
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .map_err(refused)?;
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), &name);
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": name}],
        });
        let how = PatchParams::apply("skerry-bench");
        bindings
            .patch(ACCOUNT, &how, &Patch::Apply(binding))
            .await
            .map_err(refused)?;
        Ok(name)
    }

    /// A kubeconfig with which the manager speaks as the account of a namespace.
    pub(super) fn kubeconfig(&self, namespace: &str, folder: &Path) -> Result<PathBuf, Failure> {
        let mut kubeconfig = self.kubeconfig.clone();
        for user in &mut kubeconfig.auth_infos {
            let user = user.auth_info.get_or_insert_default();
            user.impersonate = Some(format!("system:serviceaccount:{namespace}:{ACCOUNT}"));
            user.impersonate_groups = Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]);
        }
        let path = folder.join("kubeconfig");
        let text = serde_saphyr::to_string(&kubeconfig)
            .map_err(|error| Failure::new(error, "this is a defect: please report it"))?;
        std::fs::write(&path, text).map_err(|error| {
            Failure::new(
                format!("{} cannot be written: {error}", path.display()),
                "see whether the disk is full",
            )
        })?;
        Ok(path)
    }

    /// A view of a kind in a namespace.
    pub(super) fn api(&self, kind: ObjectKind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource(kind))
    }

    /// The version of the API server.
    pub(super) async fn version(&self) -> Result<String, Failure> {
        Ok(self.client.apiserver_version().await.map_err(refused)?.git_version)
    }

    /// Deletes a namespace, and waits until nothing of it is left.
    pub(super) async fn clean(&self, namespace: &str) -> Result<(), Failure> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        match namespaces.delete(namespace, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            deleted => deleted.map_err(refused)?,
        };
        let gone = async {
            while namespaces.get_opt(namespace).await.map_err(refused)?.is_some() {
                sleep(LOOK).await;
            }
            Ok(())
        };
        timeout(CLEANING, gone).await.unwrap_or_else(|_| {
            Err(Failure::new(
                format!("the namespace {namespace} is not gone within {CLEANING:?}"),
                "its status says what is left in it",
            ))
        })
    }

    /// Takes the nodes away, and namespaces that an interrupted round left.
    pub(super) async fn leave(self) -> Result<(), Failure> {
        for round in [1, 2] {
            self.clean(&format!("{}-{round}", self.run)).await?;
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        for node in [&self.cloud, &self.edge] {
            nodes.delete(node, &DeleteParams::default()).await.map_err(refused)?;
        }
        Ok(())
    }
}

/// Installs the definitions that are not there.
pub(super) async fn install_missing(client: &Client) -> Result<(), Failure> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in skerry_crds::all() {
        let name = definition.metadata.name.as_deref().unwrap_or_default();
        if definitions.get_opt(name).await.map_err(refused)?.is_some() {
            continue;
        }
        eprintln!("the definition {name} is missing and is installed; it stays");
        definitions
            .create(&PostParams::default(), definition)
            .await
            .map_err(refused)?;
        await_condition(definitions.clone(), name, is_crd_established())
            .await
            .map_err(|error| Failure::new(error, "see the definition's status"))?;
    }
    Ok(())
}

/// The API server refused what an administrator may do.
#[expect(clippy::needless_pass_by_value, reason = "in the shape that `map_err` takes")]
pub(super) fn refused(error: kube::Error) -> Failure {
    Failure::new(
        format!("the API server refused: {error}"),
        "the bench needs a kubeconfig of an administrator",
    )
}
