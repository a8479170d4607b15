//! A node: containerd, the kubelet and kube-proxy on a host, from Debian's packages and the one program.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context;
use serde_json::json;

use crate::{
    control_plane::ControlPlane,
    machine::Machine,
    network::Host,
    process::{Process, output, until},
};

/// How long containerd may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The image of the container that holds a pod's namespaces.
pub const PAUSE: &str = "skerry.example/pause:1";

/// A host that is on, with a container runtime and images: no node of any cluster yet.
pub struct Booted {
    host: Host,
    machine: Machine,
    folder: PathBuf,
    kubernetes: PathBuf,
    containerd: Process,
}

impl Booted {
    /// Switches `host` on.
    pub fn boot(host: Host, kubernetes: &Path, folder: &Path, images: &[PathBuf]) -> anyhow::Result<Self> {
        fs::create_dir_all(folder.join("cni"))?;
        write(folder, "cni/10.conflist", &network(host, folder).to_string())?;
        write(folder, "containerd.toml", &containerd(folder))?;
        let mut machine = Machine::new(host, folder.join("disk"));
        machine.boot()?;
        let containerd = start_containerd(&machine, folder)?;
        for image in images {
            let path = image.to_str().context("an image's path is text")?;
            ctr(folder, &["images", "import", path]).with_context(|| format!("importing {path}"))?;
        }
        Ok(Self {
            host,
            machine,
            folder: folder.to_owned(),
            kubernetes: kubernetes.to_owned(),
            containerd,
        })
    }

    /// Makes it a node of a cluster, whose names are asked for at `name_server`.
    pub fn join(self, plane: &ControlPlane, name_server: Ipv4Addr) -> anyhow::Result<Node> {
        let Self {
            host,
            machine,
            folder,
            kubernetes,
            containerd,
        } = self;
        let ca = plane.pki().file("ca.crt");
        write(&folder, "kubelet.yaml", &kubelet(&folder, &ca, name_server).to_string())?;
        let user = format!("system:node:{}", host.name);
        let mut node = Node {
            kubeconfig: plane.pki().kubeconfig(&plane.server(), &user, &["system:nodes"])?,
            admin: plane.access().admin,
            host,
            machine,
            folder,
            kubernetes,
            running: None,
        };
        node.start_kubelet_and_proxy(containerd)?;
        Ok(node)
    }
}

/// A node.
pub struct Node {
    host: Host,
    machine: Machine,
    folder: PathBuf,
    kubernetes: PathBuf,
    kubeconfig: PathBuf,
    /// The kubeconfig of kube-proxy.
    admin: PathBuf,
    running: Option<Running>,
}

/// What a node consists of while its power is on.
struct Running {
    containerd: Process,
    kubelet: Process,
    proxy: Process,
}

impl Node {
    /// Its host.
    pub fn host(&self) -> Host {
        self.host
    }

    /// Pulls the plug: all that runs on it is gone at once, and it gives no sign of life.
    pub fn power_off(&mut self) -> anyhow::Result<()> {
        self.machine.power_off()?;
        self.running = None;
        Ok(())
    }

    /// Switches it on again. It has what was on its disk.
    pub fn power_on(&mut self) -> anyhow::Result<()> {
        self.machine.boot()?;
        self.host.restore()?;
        let containerd = start_containerd(&self.machine, &self.folder)?;
        self.start_kubelet_and_proxy(containerd)
    }

    /// Fails if what it consists of has ended. Without power it runs nothing.
    pub fn check(&mut self) -> anyhow::Result<()> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        running.containerd.check()?;
        running.kubelet.check()?;
        running.proxy.check()
    }

    /// What `ctr` says about the node's containers.
    pub fn ctr(&self, arguments: &[&str]) -> anyhow::Result<String> {
        ctr(&self.folder, arguments)
    }

    /// The containers of pods that run, and the process of each.
    pub fn tasks(&self) -> anyhow::Result<BTreeMap<String, u32>> {
        let containers = self.ctr(&[
            "containers",
            "list",
            "--quiet",
            "labels.\"io.cri-containerd.kind\"==container",
        ])?;
        let containers: BTreeSet<_> = containers.lines().collect();
        let tasks = self.ctr(&["tasks", "list"])?;
        let running = tasks
            .lines()
            .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
                [id, pid, "RUNNING"] if containers.contains(id) => Some((id.to_owned(), pid.parse().ok()?)),
                _ => None,
            });
        Ok(running.collect())
    }

    /// The network of a container's pod, as a file; it runs.
    pub fn network_of(&self, container: &str) -> anyhow::Result<PathBuf> {
        let tasks = self.tasks()?;
        let process = tasks.get(container).context("the container runs")?;
        // The host has process numbers of its own.
        let disk = PathBuf::from(format!("/proc/{}/root", self.init()?));
        Ok(disk.join(format!("proc/{process}/ns/net")))
    }

    /// Kills a container, as the kernel does that is out of memory.
    pub fn kill(&self, container: &str) -> anyhow::Result<()> {
        self.ctr(&["tasks", "kill", "--signal", "SIGKILL", container]).map(drop)
    }

    /// Its process 1, in whose namespaces all of it runs.
    pub fn init(&self) -> anyhow::Result<u32> {
        self.machine.init()
    }

    /// What its disk has, seen from the harness.
    pub fn disk(&self) -> PathBuf {
        self.folder.join("disk")
    }

    fn start_kubelet_and_proxy(&mut self, containerd: Process) -> anyhow::Result<()> {
        let Self {
            host,
            machine,
            folder,
            kubernetes,
            ..
        } = self;
        let mut run = machine.command(kubernetes)?;
        run.arg("kubelet")
            .arg(format!("--config={}", folder.join("kubelet.yaml").display()))
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--root-dir={}", folder.join("kubelet").display()))
            .arg(format!("--cert-dir={}", folder.join("pki").display()))
            .arg(format!("--hostname-override={}", host.name))
            .arg(format!("--node-ip={}", host.address));
        let kubelet = Process::start("kubelet", folder, run)?;
        let mut run = machine.command(kubernetes)?;
        run.arg("kube-proxy")
            .arg(format!("--kubeconfig={}", self.admin.display()))
            .arg(format!("--hostname-override={}", host.name))
            .args(["--proxy-mode=iptables", "--conntrack-max-per-core=0"])
            .args([
                "--conntrack-tcp-timeout-established=0",
                "--conntrack-tcp-timeout-close-wait=0",
            ]);
        let proxy = Process::start("kube-proxy", folder, run)?;
        self.running = Some(Running {
            containerd,
            kubelet,
            proxy,
        });
        Ok(())
    }
}

fn start_containerd(machine: &Machine, folder: &Path) -> anyhow::Result<Process> {
    let mut run = machine.command(Path::new("containerd"))?;
    run.arg("-c").arg(folder.join("containerd.toml"));
    let mut process = Process::start("containerd", folder, run)?;
    let ready = until(PATIENCE, || {
        process.check()?;
        Ok(ctr(folder, &["version"]).ok())
    });
    ready.context("waiting for containerd")?;
    Ok(process)
}

/// What `ctr` says of the containers of the host with this folder.
fn ctr(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut ctr = Command::new("ctr");
    ctr.arg("-a").arg(socket(folder)).args(["-n", "k8s.io"]).args(arguments);
    output(&mut ctr)
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("containerd.sock")
}

fn network(host: Host, folder: &Path) -> serde_json::Value {
    json!({"cniVersion": "0.4.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true, "ipam": {
            "type": "host-local", "dataDir": folder.join("addresses"),
            "ranges": [[{"subnet": host.pods}]], "routes": [{"dst": "0.0.0.0/0"}],
        }},
        {"type": "portmap", "capabilities": {"portMappings": true}},
        {"type": "loopback"},
    ]})
}

fn containerd(folder: &Path) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    format!(
        r#"version = 2
root = "{root}"
# Gone with the power.
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  # Where a negative score may not be set, runc dies without it.
  restrict_oom_score_adj = true
  sandbox_image = "{PAUSE}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cni}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    # Needs nothing of the kernel.
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"#,
        root = at("root"),
        socket = socket(folder).display(),
        cni = at("cni"),
    )
}

fn kubelet(folder: &Path, ca: &Path, name_server: Ipv4Addr) -> serde_json::Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "readOnlyPort": 0,
        "healthzPort": 0,
        "cgroupDriver": "cgroupfs",
        // No cgroups for classes of pods, which not every machine can have.
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "failCgroupV1": false,
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": false}, "x509": {"clientCAFile": ca}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": format!("unix://{}", socket(folder).display()),
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%",
            "nodefs.inodesFree": "0%"},
        "podLogsDir": folder.join("logs"),
        "resolvConf": "/dev/null",
        "clusterDNS": [name_server],
        "clusterDomain": "cluster.local",
        // Quick enough for tests: an edited ConfigMap or Secret is there within seconds.
        "syncFrequency": "10s",
        // A sign of life every three seconds, so that a node without power is missed soon.
        "nodeLeaseDurationSeconds": 12,
        "nodeStatusUpdateFrequency": "3s",
    })
}

fn write(folder: &Path, name: &str, content: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    fs::write(&path, content).with_context(|| format!("writing {}", path.display()))
}
