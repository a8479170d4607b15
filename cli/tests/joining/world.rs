//! The manager and its node as processes, and an API server in memory.

use std::{
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, api::PostParams};
use skerry_crds::{
    sedna::v1alpha1::Dataset,
    skerry::v1alpha1::{Certificate, EdgeNode},
};
use skerry_sandbox::ApiServer;
use skerry_tests::{
    definitions::KINDS,
    loopback::{asked_again, free_port, serve},
};

/// A manager, and a node when it is started.
pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) api: ApiServer,
    plain: u16,
    tls: u16,
    admin: u16,
    /// Where the node's workers report.
    pub(crate) workers: u16,
    /// What the manager is told beside.
    terms: Vec<String>,
    manager: Option<Child>,
    node: Option<Child>,
}

impl World {
    /// A manager whose certificates live for six seconds, and can be renewed for long after.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// One that is told this beside.
    pub(crate) async fn start_with(terms: &[&str]) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let api = serve(folder.path(), &[&KINDS[..], &["EdgeNode"]].concat()).await;
        let mut world = Self {
            folder,
            api,
            plain: free_port(),
            tls: free_port(),
            admin: free_port(),
            workers: free_port(),
            terms: terms.iter().map(ToString::to_string).collect(),
            manager: None,
            node: None,
        };
        world.start_manager();
        world
    }

    pub(crate) fn start_manager(&mut self) {
        let folder = self.folder.path();
        let manager = Command::new(env!("CARGO_BIN_EXE_skerry"))
            .arg("globalmanager")
            .args(["--kubeconfig", folder.join("kubeconfig").to_str().unwrap()])
            .args([
                "--websocket-address",
                "127.0.0.1",
                "--websocket-port",
                &self.plain.to_string(),
            ])
            .args(["--edge-tls-address", &format!("127.0.0.1:{}", self.tls)])
            .args(["--edge-certificate-lifetime", "6s", "--lease-namespace", "default"])
            .args(["--admin-address", &format!("127.0.0.1:{}", self.admin)])
            .args(&self.terms)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(log(folder, "manager"))
            .stderr(log(folder, "manager"))
            .spawn();
        self.manager = Some(manager.unwrap());
    }

    pub(crate) fn stop_manager(&mut self) {
        end(&mut self.manager);
    }

    /// Runs `skerry nodes` with these arguments.
    pub(crate) fn nodes(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_skerry"))
            .arg("nodes")
            .args(args)
            .args(["--namespace", "default"])
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .output()
            .unwrap()
    }

    /// Makes a token, once that can be had, and puts it where the node looks for it.
    pub(crate) async fn invite(&self) {
        self.until("an authority", || async {
            self.nodes(&["join-token", "edge-1"]).status.success()
        })
        .await;
        let token = self.nodes(&["join-token", "edge-1", "--expires", "10m"]).stdout;
        std::fs::write(self.folder.path().join("join.token"), token).unwrap();
    }

    /// A node that connects over TLS.
    pub(crate) fn node_command(&self) -> Command {
        self.node_of(&format!("wss://127.0.0.1:{}", self.tls))
    }

    fn node_of(&self, manager: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skerry"));
        command
            .arg("localcontroller")
            .args(["--gm-address", manager, "--node-name", "edge-1"])
            .args(["--bind-address", "127.0.0.1", "--bind-port", &self.workers.to_string()])
            .args(["--rootfs-mount-dir", self.folder.path().join("root").to_str().unwrap()])
            .stdin(Stdio::null());
        command
    }

    /// Starts a node that connects in plain.
    pub(crate) fn start_plain_node(&mut self) {
        self.stop_node();
        let node = self
            .node_of(&format!("127.0.0.1:{}", self.plain))
            .stdout(log(self.folder.path(), "node"))
            .stderr(log(self.folder.path(), "node"))
            .spawn();
        self.node = Some(node.unwrap());
    }

    pub(crate) fn start_node(&mut self) {
        self.stop_node();
        let node = self
            .node_command()
            .args([
                "--join-token-file",
                self.folder.path().join("join.token").to_str().unwrap(),
            ])
            .stdout(log(self.folder.path(), "node"))
            .stderr(log(self.folder.path(), "node"))
            .spawn();
        self.node = Some(node.unwrap());
    }

    pub(crate) fn stop_node(&mut self) {
        end(&mut self.node);
    }

    /// A figure of the manager.
    pub(crate) async fn figure(&self, name: &str) -> Option<f64> {
        let answer = reqwest::get(format!("http://127.0.0.1:{}/metrics", self.admin))
            .await
            .ok()?;
        let text = answer.text().await.ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("skerry_{name} ")));
        line.and_then(|value| value.parse().ok())
    }

    pub(crate) async fn sessions(&self, wanted: f64) {
        let what = format!("{wanted} sessions");
        self.until(&what, || async { self.figure("edge_sessions").await == Some(wanted) })
            .await;
    }

    /// When the node's newest certificate was issued.
    pub(crate) async fn issued(&self) -> Time {
        self.certificate().await.issued
    }

    /// The node's newest certificate.
    pub(crate) async fn certificate(&self) -> Certificate {
        let nodes: Api<EdgeNode> = Api::namespaced(self.api.client(), "default");
        nodes.get("edge-1").await.unwrap().status.unwrap().certificate.unwrap()
    }

    /// Stops the node until its certificate has expired.
    pub(crate) async fn sleeps_through_expiry(&mut self) {
        self.sleeps_until_after_expiry(SignedDuration::ZERO).await;
    }

    /// Stops it until its certificate has expired for so long.
    pub(crate) async fn sleeps_until_after_expiry(&mut self, ago: SignedDuration) {
        self.stop_node();
        let until = self.certificate().await.expires.0 + ago;
        self.until("end of the certificate", || async { Timestamp::now() > until })
            .await;
    }

    /// The samples that the node has counted of its Dataset.
    pub(crate) async fn samples(&self, wanted: i64) {
        let datasets: Api<Dataset> = Api::namespaced(self.api.client(), "default");
        let what = format!("{wanted} samples");
        self.until(&what, || async {
            let status = datasets.get("images").await.unwrap().status;
            status.and_then(|status| status.number_of_samples) == Some(wanted)
        })
        .await;
    }

    /// Places a Dataset of this name on a node.
    pub(crate) async fn place(&self, name: &str, node: &str) {
        let spec = serde_json::json!({"url": "/data/images.txt", "format": "txt", "nodeName": node});
        let dataset = Dataset::new(name, serde_json::from_value(spec).unwrap());
        let datasets: Api<Dataset> = Api::namespaced(self.api.client(), "default");
        datasets.create(&PostParams::default(), &dataset).await.unwrap();
    }

    /// Where the manager serves `/nodes`.
    pub(crate) fn admin_address(&self) -> String {
        format!("127.0.0.1:{}", self.admin)
    }

    /// What the Dataset is about.
    pub(crate) fn write_data(&self, lines: usize) {
        let data = self.folder.path().join("root/data");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("images.txt"), "line\n".repeat(lines)).unwrap();
    }

    /// Asks again and again: another process raises no event here.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, what: &str, mut holds: impl FnMut() -> F) {
        let waited = asked_again(|| {
            let held = holds();
            async { held.await.then_some(()) }
        });
        assert!(
            waited.await.is_some(),
            "no {what}\nmanager:\n{}\nnode:\n{}",
            self.said("manager"),
            self.said("node")
        );
    }

    pub(crate) fn said(&self, part: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{part}.log"))).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop_node();
        self.stop_manager();
    }
}

/// Kills it, if it is there.
fn end(process: &mut Option<Child>) {
    if let Some(mut child) = process.take() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn log(folder: &Path, part: &str) -> std::fs::File {
    let mut options = std::fs::File::options();
    options
        .create(true)
        .append(true)
        .open(folder.join(format!("{part}.log")))
        .unwrap()
}
