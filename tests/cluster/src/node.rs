//! A node: containerd, the kubelet and kube-proxy on a host, from Debian's packages and the one program.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context;
use serde_json::json;

use crate::{
    control_plane::{ControlPlane, command},
    network::Host,
    process::{Process, output, until},
};

/// How long containerd may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The image of the container that holds a pod's namespaces.
pub const PAUSE: &str = "skerry.example/pause:1";

/// A node that runs.
pub struct Node {
    host: Host,
    folder: PathBuf,
    kubernetes: PathBuf,
    kubeconfig: PathBuf,
    containerd: Process,
    kubelet: Process,
    _proxy: Process,
}

impl Node {
    /// Starts a node on `host` with some images.
    pub fn start(
        plane: &ControlPlane,
        host: Host,
        kubernetes: &Path,
        folder: &Path,
        images: &[PathBuf],
        name_server: Ipv4Addr,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(folder.join("cni"))?;
        write(folder, "cni/10.conflist", &network(host, folder).to_string())?;
        write(folder, "containerd.toml", &containerd(folder))?;
        let ca = plane.pki().file("ca.crt");
        write(folder, "kubelet.yaml", &kubelet(folder, &ca, name_server).to_string())?;
        let user = format!("system:node:{}", host.name);
        let kubeconfig = plane.pki().kubeconfig(&plane.server(), &user, &["system:nodes"])?;

        let mut run = command(Some(host.name), Path::new("containerd"));
        run.arg("-c").arg(folder.join("containerd.toml"));
        let mut process = Process::start("containerd", folder, run)?;
        let ready = until(PATIENCE, || {
            process.check()?;
            Ok(ctr(folder, &["version"]).ok())
        });
        ready.with_context(|| format!("waiting for containerd on {}", host.name))?;
        for image in images {
            let path = image.to_str().context("an image's path is text")?;
            ctr(folder, &["images", "import", path]).with_context(|| format!("importing {path}"))?;
        }
        let kubelet = start_kubelet(host, kubernetes, folder, &kubeconfig)?;
        let mut run = command(Some(host.name), kubernetes);
        run.arg("kube-proxy")
            .arg(format!("--kubeconfig={}", plane.access().admin.display()))
            .arg(format!("--hostname-override={}", host.name))
            .args(["--proxy-mode=iptables", "--conntrack-max-per-core=0"])
            .args([
                "--conntrack-tcp-timeout-established=0",
                "--conntrack-tcp-timeout-close-wait=0",
            ]);
        let proxy = Process::start("kube-proxy", folder, run)?;
        Ok(Self {
            host,
            folder: folder.to_owned(),
            kubernetes: kubernetes.to_owned(),
            kubeconfig,
            containerd: process,
            kubelet,
            _proxy: proxy,
        })
    }

    /// Its host.
    pub fn host(&self) -> Host {
        self.host
    }

    /// Kills the kubelet, so that the node gives no sign of life; its containers run on.
    pub fn kill_kubelet(&mut self) -> anyhow::Result<()> {
        self.kubelet.kill().map(drop)
    }

    /// Starts it again.
    pub fn restore_kubelet(&mut self) -> anyhow::Result<()> {
        self.kubelet = start_kubelet(self.host, &self.kubernetes, &self.folder, &self.kubeconfig)?;
        Ok(())
    }

    /// Fails if what it consists of has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        self.containerd.check()?;
        self.kubelet.check()
    }

    /// What `ctr` says about the node's containers.
    pub fn ctr(&self, arguments: &[&str]) -> anyhow::Result<String> {
        ctr(&self.folder, arguments)
    }
}

fn start_kubelet(host: Host, kubernetes: &Path, folder: &Path, kubeconfig: &Path) -> anyhow::Result<Process> {
    let mut run = command(Some(host.name), kubernetes);
    run.arg("kubelet")
        .arg(format!("--config={}", folder.join("kubelet.yaml").display()))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--root-dir={}", folder.join("kubelet").display()))
        .arg(format!("--cert-dir={}", folder.join("pki").display()))
        .arg(format!("--hostname-override={}", host.name))
        .arg(format!("--node-ip={}", host.address));
    Process::start("kubelet", folder, run)
}

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
state = "{state}"
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
        state = at("state"),
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
    })
}

fn write(folder: &Path, name: &str, content: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    fs::write(&path, content).with_context(|| format!("writing {}", path.display()))
}
