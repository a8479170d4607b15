//! The whole sandbox in one process: the API server over HTTP, the controllers, a kubelet per node, the service proxy,
//! and each node's links to the cloud.
//!
//! ```text
//! kubectl ──HTTP──▶ API server ◀── controllers, scheduler, service proxy (in process)
//!                      ▲
//!               link per node (can be cut)
//!                      │
//!                   kubelet ──▶ processes on 127.B.n.0/24, n being the node, B the sandbox
//! ```

use std::net::{Ipv4Addr, SocketAddr, TcpListener as Claim};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt;
use kube::Client;
use nix::fcntl::{Flock, FlockArg};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::kubelet::{Images, Kubelet, KubeletOptions};
use super::leftovers::{self, Guard};
use super::node::NodeSpec;
use super::site_node::SandboxNode;
use super::{Controllers, proxy};
use crate::{ApiServer, api};

/// The second byte of the nodes' and pods' addresses is one of these, the first that no other sandbox has.
const BLOCKS: std::ops::RangeInclusive<u8> = 32..=63;

/// The second byte of the Services' addresses is higher by this.
const TO_SERVICES: u8 = 64;

/// A port on the block's first address that stands for the block: who listens there has it.
const CLAIM_PORT: u16 = 10250;

/// The port of a node's local controller, which its pods find by `LC_SERVER`.
const LOCAL_CONTROLLER_PORT: u16 = 9100;

/// How a sandbox is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its nodes, at most 200.
    pub nodes: Vec<NodeSpec>,
    /// Which command stands for which image.
    pub images: Images,
    /// Where the API server listens; a free port of 127.0.0.1 where absent.
    pub listen: Option<SocketAddr>,
    /// The folder for all files; it is made where it does not exist. Two sandboxes need two.
    pub state_dir: PathBuf,
    /// The first wait before a container that fails is started again.
    pub back_off: Duration,
}

impl Options {
    /// Two edge nodes and one in the cloud, no images, Kubernetes' back-off.
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            nodes: vec![
                NodeSpec::cloud("cloud-1"),
                NodeSpec::edge("edge-1"),
                NodeSpec::edge("edge-2"),
            ],
            images: Images::default(),
            listen: None,
            state_dir: state_dir.into(),
            back_off: Duration::from_secs(10),
        }
    }
}

/// Why a sandbox could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state folder cannot be used.
    #[error("state folder {}: {error}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// Another sandbox uses the state folder.
    #[error("state folder {} is in use by another sandbox", .0.display())]
    InUse(PathBuf),
    /// No block of loopback addresses is free.
    #[error("no free addresses in 127.{}-{}.0.0", BLOCKS.start(), BLOCKS.end())]
    NoAddresses,
    /// The address of the API server is taken or not ours.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        error: std::io::Error,
    },
    /// Two nodes have one name.
    #[error("there are two nodes named {0}")]
    SameNode(String),
    /// There are more nodes than addresses for them.
    #[error("{0} nodes; a sandbox has at most 200")]
    TooManyNodes(usize),
    /// A link of a node cannot be made.
    #[error("node {node}: {error}")]
    Link {
        /// The node.
        node: String,
        /// Why not.
        error: std::io::Error,
    },
    /// A node cannot be made known.
    #[error("node {node}: {error}")]
    Node {
        /// The node.
        node: String,
        /// Why not.
        error: kube::Error,
    },
}

/// A running sandbox. All that it started ends when this is dropped, in better order by [`Sandbox::shutdown`].
pub struct Sandbox {
    server: ApiServer,
    address: SocketAddr,
    nodes: Vec<Arc<SandboxNode>>,
    controllers: Controllers,
    tasks: JoinSet<()>,
    mark: (String, String),
    guard: Guard,
    _claim: Claim,
    _lock: Flock<std::fs::File>,
}

impl Sandbox {
    /// Starts a sandbox. When this returns, its nodes are known and pods can be made.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        check_nodes(&options.nodes)?;
        let state_dir = options.state_dir.clone();
        let folder_error = |error| StartError::Folder {
            folder: state_dir.clone(),
            error,
        };
        let lock = lock(&options.state_dir)?;
        let mark = leftovers::mark(&options.state_dir).map_err(folder_error)?;
        let left = leftovers::clear(&mark).await;
        if left > 0 {
            tracing::info!(left, "ended processes of a sandbox that was killed");
        }
        let guard = Guard::start(&mark).map_err(folder_error)?;
        let (block, claim) = claim_block().ok_or(StartError::NoAddresses)?;

        // Each sandbox is a cluster of its own: its uids are not those of the one before.
        let server = ApiServer::with_options(&api::Options {
            seed: rand::random(),
            service_block: block + TO_SERVICES,
            ..api::Options::default()
        });
        let wanted = options
            .listen
            .unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let listen_error = |error| StartError::Listen { address: wanted, error };
        let listener = TcpListener::bind(wanted).await.map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, server.router()));
        let controllers = Controllers::spawn(server.client_as("system:kube-controller-manager"), server.clock());
        tasks.spawn(proxy::run(server.client_as("system:kube-proxy")));

        let mut nodes = vec![];
        for (number, spec) in (1_u8..).zip(&options.nodes) {
            let own = Ipv4Addr::new(127, block, number, 1);
            nodes.push(Arc::new(
                start_node(&options, spec, own, address, &server, &mark).await?,
            ));
        }
        Ok(Self {
            server,
            address,
            nodes,
            controllers,
            tasks,
            mark,
            guard,
            _claim: claim,
            _lock: lock,
        })
    }

    /// The API server, for faults and the log of requests.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// A client of the API server, without a network.
    pub fn client(&self) -> Client {
        self.server.client()
    }

    /// Where the API server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig for `kubectl`.
    pub fn kubeconfig(&self) -> String {
        let address = self.address;
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: skerry-sandbox\n\
             clusters:\n- name: skerry-sandbox\n  cluster: {{server: \"http://{address}\"}}\n\
             users:\n- name: skerry-sandbox\n  user: {{}}\n\
             contexts:\n- name: skerry-sandbox\n  context: {{cluster: skerry-sandbox, user: skerry-sandbox}}\n"
        )
    }

    /// The variable, name and value, that every process of this sandbox carries. Whoever starts further ones gives it to
    /// them too, so that they end with the sandbox whatever ends it.
    pub fn mark(&self) -> (&str, &str) {
        (&self.mark.0, &self.mark.1)
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&Arc<SandboxNode>> {
        self.nodes.iter().find(|node| node.name() == name)
    }

    /// All nodes, in the order in which they were named.
    pub fn nodes(&self) -> &[Arc<SandboxNode>] {
        &self.nodes
    }

    /// Ends all that was started, and waits until it has ended.
    pub async fn shutdown(self) {
        let Self {
            nodes,
            controllers,
            mut tasks,
            mark,
            guard,
            ..
        } = self;
        // First who would start something again.
        controllers.stop().await;
        for node in nodes {
            node.shutdown().await;
        }
        tasks.shutdown().await;
        leftovers::clear(&mark).await;
        drop(guard);
    }
}

async fn start_node(
    options: &Options,
    spec: &NodeSpec,
    address: Ipv4Addr,
    api: SocketAddr,
    server: &ApiServer,
    mark: &(String, String),
) -> Result<SandboxNode, StartError> {
    let link_error = |error| StartError::Link {
        node: spec.name.clone(),
        error,
    };
    let node_error = |error| StartError::Node {
        node: spec.name.clone(),
        error,
    };
    let folder = options.state_dir.join("nodes").join(&spec.name);
    fresh(&folder).map_err(link_error)?;
    let node = SandboxNode::new(spec.clone(), address, folder.clone());
    let link = node.open_link(api).await.map_err(link_error)?;
    let client = client_through(link, &spec.name).map_err(node_error)?;
    let kubelet = KubeletOptions {
        node: spec.clone(),
        address,
        images: options.images.clone(),
        folder,
        local_controller: Some(format!("http://{}", node.local_controller())),
        back_off: options.back_off,
        mark: mark.clone(),
    };
    let kubelet = Kubelet::spawn(client, server.clock(), kubelet)
        .await
        .map_err(node_error)?;
    server.set_log_source(node.name(), kubelet.log_source());
    node.run(kubelet);
    Ok(node)
}

/// A client that reaches the API server by a node's link.
fn client_through(link: SocketAddr, node: &str) -> Result<Client, kube::Error> {
    let url = format!("http://{link}")
        .parse()
        .map_err(|error: http::uri::InvalidUri| kube::Error::Service(error.into()))?;
    let mut config = kube::Config::new(url);
    config.auth_info.token = Some(format!("system:node:{node}").into());
    Client::try_from(config)
}

async fn serve(listener: TcpListener, router: axum::Router) {
    let listener = listener.tap_io(|connection| {
        // Where this cannot be set, small answers wait a little.
        let _ = connection.set_nodelay(true);
    });
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the API server ended");
    }
}

/// Makes a node's folder; what pods of an earlier sandbox left there goes, what stands for the node's disk stays.
fn fresh(folder: &Path) -> std::io::Result<()> {
    for part in ["pods", "logs"] {
        match std::fs::remove_dir_all(folder.join(part)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    std::fs::create_dir_all(folder.join("host"))
}

fn lock(state_dir: &Path) -> Result<Flock<std::fs::File>, StartError> {
    let failed = |error| StartError::Folder {
        folder: state_dir.to_owned(),
        error,
    };
    std::fs::create_dir_all(state_dir).map_err(failed)?;
    let file = std::fs::File::create(state_dir.join("lock")).map_err(failed)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| StartError::InUse(state_dir.to_owned()))
}

fn claim_block() -> Option<(u8, Claim)> {
    BLOCKS.into_iter().find_map(|block| {
        let claim = Claim::bind((Ipv4Addr::new(127, block, 0, 1), CLAIM_PORT)).ok()?;
        Some((block, claim))
    })
}

fn check_nodes(nodes: &[NodeSpec]) -> Result<(), StartError> {
    if nodes.len() > 200 {
        return Err(StartError::TooManyNodes(nodes.len()));
    }
    let mut names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    names.sort_unstable();
    match names
        .windows(2)
        .find(|pair| pair.first() == pair.last())
        .and_then(<[&str]>::first)
    {
        Some(twice) => Err(StartError::SameNode((*twice).to_owned())),
        None => Ok(()),
    }
}

/// Where a node's local controller listens.
pub(super) fn local_controller(address: Ipv4Addr) -> SocketAddr {
    SocketAddr::from((address, LOCAL_CONTROLLER_PORT))
}
