//! The two hosts with all that runs on them: the control plane and the name server in the cloud, a node on each.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow};
use skerry_dist::{
    Arch,
    oci::{self, Config, Entry},
};

use crate::{
    artifacts::Kubernetes,
    control_plane::ControlPlane,
    network::{self, CLOUD, EDGE},
    node::{Booted, Node, PAUSE},
    process::{Process, install, until},
    processors::Processors,
    real::SEDNA,
    site::{Patience, Site, WITH_HOSTS, command},
};

/// How long nodes may take to be ready.
const PATIENCE: Duration = Duration::from_secs(120);

/// What hosts are made of.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Kubernetes, with its kubelet.
    pub kubernetes: Kubernetes,
    /// The name server.
    pub coredns: PathBuf,
    /// The program of a pod's own container.
    pub pause: PathBuf,
}

/// Both hosts.
pub struct Hosts {
    /// The control plane, on the host in the cloud.
    pub plane: ControlPlane,
    /// The node in the cloud.
    pub cloud: Node,
    /// The node at the edge.
    pub edge: Node,
    name_server: Process,
}

impl Hosts {
    /// Starts both, with images on each, and waits until their nodes are ready.
    pub fn start(programs: &Programs, folder: &Path, images: &[PathBuf]) -> anyhow::Result<Self> {
        network::make()?;
        // Where hosts see it, wherever it was built.
        let components = folder.join("kubernetes");
        install(&programs.kubernetes.components, &components)?;
        let site = Site {
            kubernetes: Kubernetes {
                components: components.clone(),
                kubectl: programs.kubernetes.kubectl.clone(),
            },
            folder: folder.join("control-plane"),
            address: CLOUD.address,
            port: 6443,
            processors: Processors::All,
            netns: Some(CLOUD.name.to_owned()),
            known: None,
            patience: Patience::WithHosts,
            memory: WITH_HOSTS,
            without: &[],
            manager_in: Some(SEDNA),
            strict: false,
        };
        let mut images = images.to_vec();
        images.push(pause_image(programs, folder)?);
        let boot = |host: network::Host| Booted::boot(host, &components, &folder.join(host.name), &images);
        // Machines are switched on by this thread, with which they end; the control plane ends when it is told to.
        let (plane, cloud, edge) = thread::scope(|scope| {
            let plane = scope.spawn(|| ControlPlane::start(site));
            let nodes = boot(CLOUD).and_then(|cloud| Ok((cloud, boot(EDGE)?)));
            let plane = plane
                .join()
                .map_err(|_| anyhow!("starting the control plane panicked"))??;
            let (cloud, edge) = nodes?;
            Ok::<_, anyhow::Error>((plane, cloud, edge))
        })?;
        let name_server = serve_names(&plane, programs, folder)?;
        let join = |host: Booted| host.join(&plane, CLOUD.address);
        let (cloud, edge) = (join(cloud)?, join(edge)?);
        let mut hosts = Self {
            plane,
            cloud,
            edge,
            name_server,
        };
        hosts.wait().context("waiting for the nodes")?;
        Ok(hosts)
    }

    /// Fails if anything has ended of what they run by themselves.
    pub fn check(&mut self) -> anyhow::Result<()> {
        self.plane.check()?;
        self.name_server.check()?;
        self.cloud.check()?;
        self.edge.check()
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let ready = r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#;
        until(PATIENCE, || {
            self.check()?;
            let nodes = self.plane.kubectl(&["get", "nodes", "-o", ready])?;
            Ok((nodes.lines().filter(|ready| *ready == "True").count() == 2).then_some(()))
        })?;
        // As KubeEdge labels its nodes.
        self.plane
            .kubectl(&["label", "node", EDGE.name, "node-role.kubernetes.io/edge="])
            .map(drop)
    }
}

/// The name server listens where pods ask: on the host in the cloud.
fn serve_names(plane: &ControlPlane, programs: &Programs, folder: &Path) -> anyhow::Result<Process> {
    let file = folder.join("Corefile");
    let kubeconfig = plane.access().admin;
    fs::write(
        &file,
        format!(
            "cluster.local:53 {{\n  bind {}\n  errors\n  kubernetes cluster.local {{\n    kubeconfig {} tests\n  }}\n}}\n",
            CLOUD.address,
            kubeconfig.display()
        ),
    )?;
    let mut run = command(CLOUD.name, &programs.coredns);
    run.arg("-conf").arg(&file);
    Process::start("coredns", folder, run)
}

fn pause_image(programs: &Programs, folder: &Path) -> anyhow::Result<PathBuf> {
    let entry = Entry {
        path: "pause".to_owned(),
        executable: true,
        content: fs::read(&programs.pause)?,
    };
    let config = Config {
        user: "65532:65532".to_owned(),
        ports: vec![],
        entrypoint: vec!["/pause".to_owned()],
    };
    let path = folder.join("pause.tar");
    fs::write(&path, oci::archive(PAUSE, Arch::HERE, &config, &[entry])?)?;
    Ok(path)
}
