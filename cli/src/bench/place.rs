//! Where the bench works: namespaces and two stand-in nodes of its own, and a manager that may do there what it likes,
//! and has the rank at the API server that any workload has.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Node},
        rbac::v1::{ClusterRoleBinding, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, Config, CustomResourceExt as _, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{DynamicObject, ObjectMeta},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use serde_json::{Value, json};
use skerry_crds::skerry::v1alpha1::EdgeNode;
use skerry_globalmanager::run::kinds;
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
    /// The option that names it.
    pub(super) option: &'static str,
    kubeconfig: Kubeconfig,
    /// What tells the namespaces and nodes of this run from others'.
    run: String,
    /// What the nodes are called.
    pub(super) cloud: String,
    pub(super) edge: String,
    /// The only processors that its manager has, as `taskset` names them; all, if none are named.
    pub(super) manager_on: Option<String>,
    _kubelet: FakeKubelet,
}

impl Plane {
    /// Connects, installs the kinds that are missing, and registers nodes.
    pub(super) async fn join(file: &Path, option: &'static str) -> Result<Self, Failure> {
        let unusable = |error: &dyn std::fmt::Display| {
            Failure::new(
                format!("{}: {error}", file.display()),
                format!("name another file with {option}"),
            )
        };
        let kubeconfig = Kubeconfig::read_from(file).map_err(|error| unusable(&error))?;
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
            option,
            kubeconfig,
            run,
            cloud,
            edge,
            manager_on: None,
            _kubelet: kubelet,
        })
    }

    /// The same with a manager on these processors.
    pub(super) fn with_manager_on(self, processors: Option<String>) -> Self {
        Self {
            manager_on: processors,
            ..self
        }
    }

    /// The namespace of a round's manager, with its account, which may do everything in it.
    pub(super) async fn namespace(&self, round: u32) -> Result<String, Failure> {
        let name = self.name(round);
        self.create(&name).await?;
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), &name);
        bindings
            .patch(
                ACCOUNT,
                &PatchParams::apply("skerry-bench"),
                &Patch::Apply(binding("RoleBinding", ACCOUNT, &name)),
            )
            .await
            .map_err(refused)?;
        Ok(name)
    }

    /// So many namespaces for the load of a round, whose manager may do everything everywhere from then on.
    pub(super) async fn namespaces_of_load(&self, manager: &str, number: u32) -> Result<Vec<String>, Failure> {
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        bindings
            .patch(
                manager,
                &PatchParams::apply("skerry-bench"),
                &Patch::Apply(binding("ClusterRoleBinding", manager, manager)),
            )
            .await
            .map_err(refused)?;
        let mut names = Vec::new();
        for index in 0..number {
            let name = format!("{}{index}", load_of(manager));
            self.create(&name).await?;
            names.push(name);
        }
        Ok(names)
    }

    async fn create(&self, namespace: &str) -> Result<(), Failure> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let metadata = ObjectMeta {
            name: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        let namespace = Namespace {
            metadata,
            ..Namespace::default()
        };
        let how = PostParams::default();
        namespaces.create(&how, &namespace).await.map(drop).map_err(refused)
    }

    fn name(&self, round: u32) -> String {
        format!("{}-{round}", self.run)
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
        let text = serde_saphyr::to_string(&kubeconfig).map_err(Failure::defect)?;
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

    /// Since when each of its nodes has been ready, as the control plane has it: nothing where one is not, and another time once
    /// one was given up and is back.
    pub(super) async fn ready_since(&self) -> Result<[Option<Time>; 2], Failure> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let ready_since = async |node: &str| {
            let node = nodes.get(node).await.map_err(refused)?;
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            let ready = conditions
                .into_iter()
                .find(|condition| condition.type_ == "Ready" && condition.status == "True");
            Ok::<_, Failure>(ready.and_then(|condition| condition.last_transition_time))
        };
        Ok([ready_since(&self.cloud).await?, ready_since(&self.edge).await?])
    }

    /// The version of the API server.
    pub(super) async fn version(&self) -> Result<String, Failure> {
        Ok(self.client.apiserver_version().await.map_err(refused)?.git_version)
    }

    /// Deletes what was made for a round, and waits until nothing of it is left.
    pub(super) async fn clean(&self, round: u32) -> Result<(), Failure> {
        let manager = self.name(round);
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let left = async || {
            let all = namespaces
                .list_metadata(&ListParams::default())
                .await
                .map_err(refused)?;
            let names = all.items.into_iter().map(|namespace| namespace.name_any());
            let ours = |name: &String| *name == manager || name.starts_with(&load_of(&manager));
            Ok::<Vec<String>, Failure>(names.filter(ours).collect())
        };
        for namespace in left().await? {
            let how = DeleteParams::background();
            unless_gone(namespaces.delete(&namespace, &how).await)?;
        }
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        unless_gone(bindings.delete(&manager, &DeleteParams::default()).await)?;
        let gone = async {
            while !left().await?.is_empty() {
                sleep(LOOK).await;
            }
            Ok(())
        };
        timeout(CLEANING, gone).await.unwrap_or_else(|_| {
            Err(Failure::new(
                format!("the namespaces of {manager} are not gone within {CLEANING:?}"),
                "the status of each says what is left in it",
            ))
        })
    }

    /// Takes the nodes away, and what an interrupted one of so many rounds left.
    pub(super) async fn leave(self, rounds: u32) -> Result<(), Failure> {
        for round in 1..=rounds {
            self.clean(round).await?;
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        for node in [&self.cloud, &self.edge] {
            nodes.delete(node, &DeleteParams::default()).await.map_err(refused)?;
        }
        Ok(())
    }
}

/// The account of a manager's namespace bound to the role of an administrator.
fn binding(kind: &str, name: &str, manager: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": manager}],
    })
}

/// How the namespaces of a load begin, whose manager is in this one.
pub(super) fn load_of(manager: &str) -> String {
    format!("{manager}-")
}

/// What was to be deleted and was not there is gone.
fn unless_gone<T>(deleted: kube::Result<T>) -> Result<(), Failure> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(drop).map_err(refused),
    }
}

/// Installs the definitions that the manager needs, where they are not there: of the kinds that it looks after, and of the nodes
/// that join it. An API server has much to do for each.
pub(super) async fn install_missing(client: &Client) -> Result<(), Failure> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let watched = kinds().watched();
    let watched = watched.iter().map(|kind| format!("{}.{}", kind.plural, kind.group));
    let needed: BTreeSet<_> = watched.chain([EdgeNode::crd_name().to_owned()]).collect();
    for definition in skerry_crds::all() {
        let name = definition.metadata.name.as_deref().unwrap_or_default();
        if !needed.contains(name) || definitions.get_opt(name).await.map_err(refused)?.is_some() {
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
