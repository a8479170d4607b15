//! One node of a running sandbox: its place, its links, and what a test or a demo can do to it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::kubelet::Kubelet;
use super::link::Link;
use super::node::NodeSpec;
use super::sandbox::local_controller;

/// A node of a [`Sandbox`](super::Sandbox).
pub struct SandboxNode {
    spec: NodeSpec,
    address: Ipv4Addr,
    folder: PathBuf,
    links: Mutex<Vec<Link>>,
    kubelet: Mutex<Option<Kubelet>>,
}

impl SandboxNode {
    pub(super) fn new(spec: NodeSpec, address: Ipv4Addr, folder: PathBuf) -> Self {
        Self {
            spec,
            address,
            folder,
            links: Mutex::default(),
            kubelet: Mutex::default(),
        }
    }

    pub(super) fn run(&self, kubelet: Kubelet) {
        *self.kubelet.lock().unwrap_or_else(PoisonError::into_inner) = Some(kubelet);
    }

    pub(super) async fn shutdown(&self) {
        let kubelet = self.kubelet.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(kubelet) = kubelet {
            kubelet.shutdown().await;
        }
    }

    /// The name of the Node object.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Whether it is an edge node.
    pub fn is_edge(&self) -> bool {
        self.spec.edge
    }

    /// The node's own address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Where the node's local controller has to listen, for its pods to find it.
    pub fn local_controller(&self) -> SocketAddr {
        local_controller(self.address)
    }

    /// The folder that stands for the node's `/`, in `hostPath` volumes and for the local controller.
    pub fn host_folder(&self) -> PathBuf {
        self.folder.join("host")
    }

    /// The node's folder, for what belongs to it besides.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Opens a link from the node to something in the cloud, such as the manager; where to connect to instead. It is
    /// cut, delayed and restored with the node's others.
    pub async fn open_link(&self, target: SocketAddr) -> io::Result<SocketAddr> {
        let link = Link::open(SocketAddr::from((self.address, 0)), target).await?;
        let address = link.address();
        let cut = self.with_links(|links| {
            let cut = links.iter().any(Link::is_cut);
            links.push(link);
            cut
        });
        if cut {
            self.cut();
        }
        Ok(address)
    }

    /// Cuts the node off the cloud: its kubelet from the API server, and what else goes by links. Its pods and their
    /// connections among each other go on.
    pub fn cut(&self) {
        self.with_links(|links| links.iter().for_each(Link::cut));
    }

    /// Makes all that goes by the node's links so much later, in either direction.
    pub fn delay(&self, delay: Duration) {
        self.with_links(|links| links.iter().for_each(|link| link.delay(delay)));
    }

    /// Ends a cut and a delay.
    pub fn restore(&self) {
        self.with_links(|links| links.iter().for_each(Link::restore));
    }

    /// Kills the processes of a pod's container, or of all its containers, as if they had crashed. Whether the pod runs
    /// here.
    pub fn kill(&self, namespace: &str, pod: &str, container: Option<&str>) -> bool {
        let kubelet = self.kubelet.lock().unwrap_or_else(PoisonError::into_inner);
        kubelet
            .as_ref()
            .is_some_and(|kubelet| kubelet.kill(namespace, pod, container))
    }

    fn with_links<T>(&self, change: impl FnOnce(&mut Vec<Link>) -> T) -> T {
        change(&mut self.links.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
