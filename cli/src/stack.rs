//! A whole Skerry on loopback: the sandbox, and the manager and the local controllers as processes.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api, Client,
    api::{ApiResource, ListParams, Patch, PatchParams},
    core::{DynamicObject, GroupVersionKind},
};
use serde_json::Value;
use skerry_crds::names;
use skerry_sandbox::cluster::{self, NodeSpec, Sandbox, SandboxNode, StartError};
use tokio::time::{interval, timeout};

use crate::{
    failure::Failure,
    furnish,
    process::{Process, free_port},
    scrape::scrape,
};

/// How long all parts together may take to become usable.
const START: Duration = Duration::from_secs(60);
/// How often another process is asked whether it is: no event of it can be had.
const LOOK: Duration = Duration::from_millis(50);
/// Kubernetes' ten seconds before a failed container is started again are long for somebody who watches.
const BACK_OFF: Duration = Duration::from_secs(1);

/// What to start.
pub(crate) struct Options {
    pub(crate) nodes: Vec<NodeSpec>,
    /// A file of further images.
    pub(crate) images: Option<PathBuf>,
    pub(crate) listen: Option<SocketAddr>,
    /// Where the kubeconfig goes; into the state folder where absent.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Leave out the manager and the local controllers.
    pub(crate) control_plane_only: bool,
    /// Whether nodes can join over TLS as well. The parts themselves are connected in plain, over loopback.
    pub(crate) tls: bool,
    pub(crate) state: PathBuf,
}

impl Options {
    /// One node in the cloud and two at the edge, with everything on them.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            nodes: vec![
                NodeSpec::cloud("cloud-1"),
                NodeSpec::edge("edge-1"),
                NodeSpec::edge("edge-2"),
            ],
            images: None,
            listen: None,
            kubeconfig: None,
            control_plane_only: false,
            tls: false,
            state: state_folder(name),
        }
    }
}

/// Where this user's files of that name live.
fn state_folder(name: &str) -> PathBuf {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or(home);
    state.unwrap_or_else(std::env::temp_dir).join("skerry").join(name)
}

/// What runs.
pub(crate) struct Stack {
    sandbox: Sandbox,
    kubeconfig: PathBuf,
    logs: PathBuf,
    /// Where the manager listens for nodes, and for whoever asks how it is.
    ports: (u16, u16),
    /// Where it listens for nodes over TLS.
    tls: Option<SocketAddr>,
    manager: Option<Process>,
    controllers: BTreeMap<String, Process>,
}

impl Stack {
    /// Starts everything and waits until it is usable.
    pub(crate) async fn start(options: Options) -> Result<Self, Failure> {
        let control_plane_only = options.control_plane_only;
        let mut stack = Self::start_sandbox(options).await?;
        furnish::definitions(&stack.client()).await?;
        if !control_plane_only {
            stack.start_manager()?;
            for node in stack.edge_nodes() {
                stack.start_controller(&node).await?;
            }
        }
        let all = stack.usable(control_plane_only);
        let usable = timeout(START, all).await;
        usable.map_err(|_| {
            let hint = format!("the logs in {} say more", stack.logs.display());
            Failure::new(format!("not all parts were usable within {START:?}"), hint)
        })??;
        Ok(stack)
    }

    async fn start_sandbox(options: Options) -> Result<Self, Failure> {
        let Options {
            nodes,
            images,
            listen,
            kubeconfig,
            control_plane_only: _,
            tls,
            state,
        } = options;
        let logs = state.join("logs");
        std::fs::create_dir_all(&logs).map_err(|error| unusable(&logs, &error))?;
        let sandbox_options = cluster::Options {
            nodes,
            images: furnish::images(images.as_deref())?,
            listen,
            back_off: BACK_OFF,
            ..cluster::Options::new(&state)
        };
        let sandbox = Sandbox::start(sandbox_options)
            .await
            .map_err(|error| Failure::new(&error, not_started(&error)))?;
        let kubeconfig = kubeconfig.unwrap_or_else(|| state.join("kubeconfig"));
        let kubeconfig = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
        std::fs::write(&kubeconfig, sandbox.kubeconfig()).map_err(|error| {
            let sentence = format!("{} cannot be written: {error}", kubeconfig.display());
            Failure::new(sentence, "name a file in a folder that exists with --kubeconfig")
        })?;
        for node in sandbox.nodes() {
            furnish::node(node).await?;
        }
        Ok(Self {
            sandbox,
            kubeconfig,
            logs,
            ports: (free_port()?, free_port()?),
            tls: tls
                .then(free_port)
                .transpose()?
                .map(|port| SocketAddr::from(([127, 0, 0, 1], port))),
            manager: None,
            controllers: BTreeMap::new(),
        })
    }

    /// A client of the API server, as an administrator.
    pub(crate) fn client(&self) -> Client {
        self.sandbox.client()
    }

    /// The kubeconfig's file.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The folder of the parts' logs.
    pub(crate) fn logs(&self) -> &Path {
        &self.logs
    }

    /// Starts the manager.
    pub(crate) fn start_manager(&mut self) -> Result<(), Failure> {
        let (nodes, admin) = (self.ports.0.to_string(), format!("127.0.0.1:{}", self.ports.1));
        let kubeconfig = self.kubeconfig.display().to_string();
        let tls = self.tls.map(|address| address.to_string());
        let mut args = vec![
            "globalmanager",
            "--kubeconfig",
            &kubeconfig,
            "--websocket-address",
            "127.0.0.1",
            "--websocket-port",
            &nodes,
            "--admin-address",
            &admin,
            "--lease-namespace",
            "kube-system",
        ];
        args.extend(tls.iter().flat_map(|address| ["--edge-tls-address", address]));
        self.manager = Some(Process::start(
            "globalmanager",
            &args,
            &[self.sandbox.mark()],
            &self.logs,
        )?);
        Ok(())
    }

    /// Kills the manager as SIGKILL does.
    pub(crate) async fn kill_manager(&mut self) {
        if let Some(manager) = self.manager.take() {
            manager.kill().await;
        }
    }

    async fn start_controller(&mut self, node: &SandboxNode) -> Result<(), Failure> {
        let manager = SocketAddr::from(([127, 0, 0, 1], self.ports.0));
        let link = node.open_link(manager).await.map_err(|error| {
            Failure::new(
                format!("{} cannot be linked: {error}", node.name()),
                "end other sandboxes",
            )
        })?;
        let (link, root) = (link.to_string(), node.host_folder().display().to_string());
        let (address, port) = (
            node.local_controller().ip().to_string(),
            node.local_controller().port().to_string(),
        );
        let args = [
            "localcontroller",
            "--gm-address",
            &link,
            "--node-name",
            node.name(),
            "--bind-address",
            &address,
            "--bind-port",
            &port,
            "--rootfs-mount-dir",
            &root,
        ];
        let name = format!("localcontroller-{}", node.name());
        let process = Process::start(&name, &args, &[self.sandbox.mark()], &self.logs)?;
        self.controllers.insert(node.name().to_owned(), process);
        Ok(())
    }

    fn edge_nodes(&self) -> Vec<Arc<SandboxNode>> {
        self.sandbox
            .nodes()
            .iter()
            .filter(|node| node.is_edge())
            .cloned()
            .collect()
    }

    /// A node that has to exist.
    pub(crate) fn node(&self, name: &str) -> Result<&Arc<SandboxNode>, Failure> {
        self.sandbox
            .node(name)
            .ok_or_else(|| Failure::defect(format!("there is no node {name}")))
    }

    /// Waits until nodes are ready and, if they are ours, the parts are connected.
    async fn usable(&mut self, control_plane_only: bool) -> Result<(), Failure> {
        let nodes: Api<Node> = Api::all(self.client());
        let wanted = self.sandbox.nodes().len();
        let mut look = interval(LOOK);
        loop {
            look.tick().await;
            let parts = self.manager.iter_mut().chain(self.controllers.values_mut());
            if let Some(failure) = parts.into_iter().find_map(Process::ended) {
                return Err(failure);
            }
            let found = nodes.list(&ListParams::default()).await.map_err(refused)?;
            let nodes_ready = found.iter().filter(|node| is_ready(node)).count() == wanted;
            if nodes_ready && (control_plane_only || self.all_connected().await) {
                return Ok(());
            }
        }
    }

    async fn all_connected(&self) -> bool {
        let manager = SocketAddr::from(([127, 0, 0, 1], self.ports.1));
        let Some(counted) = scrape(manager).await else {
            return false;
        };
        if self.tls.is_some() && !matches!(self.authority().await, Ok(Some(_))) {
            return false;
        }
        let sessions = u32::try_from(self.controllers.len()).ok().map(f64::from);
        (counted.total("skerry_edge_sessions"), counted.total("skerry_leader")) == (sessions, Some(1.0))
    }

    /// What nodes know the manager by over TLS, once it is there.
    async fn authority(&self) -> kube::Result<Option<Secret>> {
        let secrets: Api<Secret> = Api::namespaced(self.client(), "kube-system");
        secrets.get_opt(names::identity::AUTHORITY).await
    }

    /// Applies a manifest of one or more documents, as `kubectl apply --server-side` does.
    pub(crate) async fn apply(&self, manifest: &str) -> Result<(), Failure> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).map_err(Failure::defect)?;
        for document in documents {
            let object: DynamicObject =
                serde_json::from_value(document).map_err(|error| Failure::new(error, "the example is broken"))?;
            let types = object.types.clone().unwrap_or_default();
            let kind =
                GroupVersionKind::try_from(&types).map_err(|error| Failure::new(error, "the example is broken"))?;
            let api: Api<DynamicObject> = Api::namespaced_with(self.client(), "default", &ApiResource::from_gvk(&kind));
            let name = object.metadata.name.clone().unwrap_or_default();
            api.patch(&name, &PatchParams::apply("demo"), &Patch::Apply(&object))
                .await
                .map_err(refused)?;
        }
        Ok(())
    }

    /// How many reports of workers the local controller of `node` has taken since it started.
    pub(crate) async fn worker_reports(&self, node: &str) -> Result<f64, Failure> {
        let controller = self.node(node)?.local_controller();
        let counted = scrape(controller).await;
        let taken = counted.and_then(|counted| counted.total("skerry_localcontroller_worker_messages_total"));
        taken.ok_or_else(|| {
            Failure::new(
                format!("the local controller of {node} does not answer"),
                "its log says more",
            )
        })
    }

    /// Ends everything, in the order in which nothing is started again. `keep_logs` for whoever wants to know why.
    pub(crate) async fn shutdown(self) {
        let Self {
            sandbox,
            manager,
            controllers,
            ..
        } = self;
        if let Some(manager) = manager {
            manager.end().await;
        }
        futures::future::join_all(controllers.into_values().map(Process::end)).await;
        sandbox.shutdown().await;
    }
}

/// What helps where a sandbox does not start.
fn not_started(error: &StartError) -> &'static str {
    match error {
        StartError::InUse(_) => "end that one, or name another folder by XDG_STATE_HOME",
        StartError::NoAddresses => "end other sandboxes; on anything but Linux, only 127.0.0.1 can be used",
        StartError::Listen { .. } => "name another address with --listen",
        StartError::Folder { .. } => "name another folder by XDG_STATE_HOME",
        _ => "`skerry sandbox --help` lists what can be set",
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A file or folder of the state could not be written.
pub(crate) fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        format!("{} cannot be written: {error}", path.display()),
        "name another folder by XDG_STATE_HOME",
    )
}

/// The sandbox's API server refused what ought to be right.
#[expect(clippy::needless_pass_by_value, reason = "in the shape that `map_err` takes")]
pub(crate) fn refused(error: kube::Error) -> Failure {
    Failure::defect(format!("the sandbox's API server refused: {error}"))
}
