//! What docs/edge-nodes.md says, with real processes: a node joins by a token, has its certificate renewed without losing the
//! session, is turned away, and joins again.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::{
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, api::PostParams};
use skerry_crds::{
    sedna::v1alpha1::Dataset,
    skerry::v1alpha1::{Certificate, EdgeNode},
};
use skerry_sandbox::ApiServer;
use skerry_tests::{
    definitions::KINDS,
    loopback::{free_port, serve},
};
use tokio::time::{interval, timeout};

/// Longer than anything here takes: a node that was refused comes back within half a minute.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a revocation may take.
const REVOKED: Duration = Duration::from_secs(5);

struct World {
    folder: tempfile::TempDir,
    api: ApiServer,
    tls: u16,
    admin: u16,
    manager: Child,
    node: Option<Child>,
}

impl World {
    /// A manager whose certificates live for six seconds.
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let api = serve(folder.path(), &[&KINDS[..], &["EdgeNode"]].concat()).await;
        let (plain, tls, admin) = (free_port(), free_port(), free_port());
        let manager = Command::new(env!("CARGO_BIN_EXE_skerry"))
            .arg("globalmanager")
            .args(["--kubeconfig", folder.path().join("kubeconfig").to_str().unwrap()])
            .args([
                "--websocket-address",
                "127.0.0.1",
                "--websocket-port",
                &plain.to_string(),
            ])
            .args(["--edge-tls-address", &format!("127.0.0.1:{tls}")])
            .args(["--edge-certificate-lifetime", "6s", "--lease-namespace", "default"])
            .args(["--admin-address", &format!("127.0.0.1:{admin}")])
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(log(folder.path(), "manager"))
            .stderr(log(folder.path(), "manager"))
            .spawn()
            .unwrap();
        Self {
            folder,
            api,
            tls,
            admin,
            manager,
            node: None,
        }
    }

    /// Runs `skerry nodes` with these arguments.
    fn nodes(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_skerry"))
            .arg("nodes")
            .args(args)
            .args(["--namespace", "default"])
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .output()
            .unwrap()
    }

    /// Makes a token, once that can be had, and puts it where the node looks for it.
    async fn invite(&self) {
        self.until("an authority", || async {
            self.nodes(&["join-token", "edge-1"]).status.success()
        })
        .await;
        let token = self.nodes(&["join-token", "edge-1", "--expires", "10m"]).stdout;
        std::fs::write(self.folder.path().join("join.token"), token).unwrap();
    }

    fn node_command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skerry"));
        command
            .arg("localcontroller")
            .args([
                "--gm-address",
                &format!("wss://127.0.0.1:{}", self.tls),
                "--node-name",
                "edge-1",
            ])
            .args(["--bind-address", "127.0.0.1", "--bind-port", "0"])
            .args(["--rootfs-mount-dir", self.folder.path().join("root").to_str().unwrap()])
            .stdin(Stdio::null());
        command
    }

    fn start_node(&mut self) {
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

    fn stop_node(&mut self) {
        if let Some(mut node) = self.node.take() {
            node.kill().unwrap();
            node.wait().unwrap();
        }
    }

    /// A figure of the manager.
    async fn figure(&self, name: &str) -> Option<f64> {
        let answer = reqwest::get(format!("http://127.0.0.1:{}/metrics", self.admin))
            .await
            .ok()?;
        let text = answer.text().await.ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("skerry_{name} ")));
        line.and_then(|value| value.parse().ok())
    }

    async fn sessions(&self, wanted: f64) {
        let what = format!("{wanted} sessions");
        self.until(&what, || async { self.figure("edge_sessions").await == Some(wanted) })
            .await;
    }

    /// When the node's newest certificate was issued.
    async fn issued(&self) -> Time {
        self.certificate().await.issued
    }

    async fn certificate(&self) -> Certificate {
        let nodes: Api<EdgeNode> = Api::namespaced(self.api.client(), "default");
        nodes.get("edge-1").await.unwrap().status.unwrap().certificate.unwrap()
    }

    /// Stops the node until its certificate has expired.
    async fn sleeps_through_expiry(&mut self) {
        self.stop_node();
        let expires = self.certificate().await.expires;
        self.until("end of the certificate", || async { Timestamp::now() > expires.0 })
            .await;
    }

    /// The samples that the node has counted of its Dataset.
    async fn samples(&self, wanted: i64) {
        let datasets: Api<Dataset> = Api::namespaced(self.api.client(), "default");
        let what = format!("{wanted} samples");
        self.until(&what, || async {
            let status = datasets.get("images").await.unwrap().status;
            status.and_then(|status| status.number_of_samples) == Some(wanted)
        })
        .await;
    }

    /// What the Dataset is about.
    fn write_data(&self, lines: usize) {
        let data = self.folder.path().join("root/data");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("images.txt"), "line\n".repeat(lines)).unwrap();
    }

    /// Asks again and again: another process raises no event here.
    async fn until<F: Future<Output = bool>>(&self, what: &str, mut holds: impl FnMut() -> F) {
        let mut often = interval(Duration::from_millis(50));
        let waited = timeout(PATIENCE, async {
            while !holds().await {
                often.tick().await;
            }
        });
        assert!(
            waited.await.is_ok(),
            "no {what}\nmanager:\n{}\nnode:\n{}",
            self.said("manager"),
            self.said("node")
        );
    }

    fn said(&self, part: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{part}.log"))).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop_node();
        let _ = self.manager.kill();
        let _ = self.manager.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_stays_is_turned_away_and_joins_again() {
    let mut world = World::start().await;
    let uninvited = world.node_command().output().unwrap();
    let said = String::from_utf8_lossy(&uninvited.stderr).into_owned();
    assert!(
        !uninvited.status.success() && said.contains("skerry nodes join-token edge-1"),
        "{said}"
    );

    // It waits for the token, takes what workers report meanwhile, and says what it waits for.
    world.start_node();
    world
        .until("sentence", || async {
            world.said("node").contains("skerry nodes join-token edge-1")
        })
        .await;
    world.invite().await;
    world.sessions(1.0).await;
    let first = world.issued().await;
    world.until("renewal", || async { world.issued().await > first }).await;
    // With the second one it is sure that the first did not cost the session.
    let second = world.issued().await;
    world
        .until("second renewal", || async { world.issued().await > second })
        .await;
    assert_eq!(
        world.figure("edge_connections_total").await,
        Some(1.0),
        "the session went on"
    );

    // The token is of no more use, and the identity outlives the process.
    std::fs::remove_file(world.folder.path().join("join.token")).unwrap();
    world.start_node();
    world
        .until("second connection", || async {
            world.figure("edge_connections_total").await == Some(2.0)
        })
        .await;
    world.sessions(1.0).await;
    let listed = String::from_utf8(world.nodes(&[]).stdout).unwrap();
    assert!(listed.lines().any(|line| line.starts_with("edge-1  ")), "{listed}");

    assert!(world.nodes(&["revoke", "edge-1"]).status.success());
    timeout(REVOKED, world.sessions(0.0))
        .await
        .expect("its session goes on");
    world
        .until("sentence", || async { world.said("node").contains("was turned away") })
        .await;

    // It goes on by itself, and takes the new token as it finds it.
    world.invite().await;
    world.sessions(1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_certificate_expired_while_it_was_off_is_back_unless_it_was_turned_away() {
    let mut world = World::start().await;
    world.start_node();
    world.invite().await;
    world.sessions(1.0).await;
    std::fs::remove_file(world.folder.path().join("join.token")).unwrap();

    world.sleeps_through_expiry().await;
    let expired = world.issued().await;
    world.start_node();
    world.sessions(1.0).await;
    world
        .until("renewal", || async { world.issued().await > expired })
        .await;

    world.sleeps_through_expiry().await;
    world.sessions(0.0).await;
    assert!(world.nodes(&["revoke", "edge-1"]).status.success());
    let expired = world.issued().await;
    world.start_node();
    world
        .until("sentence", || async { world.said("node").contains("was turned away") })
        .await;
    assert_eq!(world.figure("edge_sessions").await, Some(0.0));
    assert_eq!(world.issued().await, expired, "nothing was issued to it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_installed_anew_under_its_name_joins_anew_and_gets_back_what_it_held() {
    let mut world = World::start().await;
    world.write_data(3);
    let spec = serde_json::json!({"url": "/data/images.txt", "format": "txt", "nodeName": "edge-1"});
    let dataset = Dataset::new("images", serde_json::from_value(spec).unwrap());
    let datasets: Api<Dataset> = Api::namespaced(world.api.client(), "default");
    datasets.create(&PostParams::default(), &dataset).await.unwrap();
    world.start_node();
    world.invite().await;
    world.samples(3).await;

    world.stop_node();
    std::fs::remove_dir_all(world.folder.path().join("root")).unwrap();
    world.write_data(5);
    world.start_node();
    world
        .until("refusal of the token that was used", || async {
            world.said("node").contains("was used before")
        })
        .await;
    world.invite().await;
    world.samples(5).await;
    world.sessions(1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_about_nodes_say_what_is_wrong() {
    let world = World::start().await;
    for (args, sentence) in [
        (&["join-token", "Edge 1"] as &[_], "is not a node name"),
        (&["revoke", "../edge"], "is not a node name"),
        (&["join-token", "edge-1", "--expires", "1y"], "720h"),
    ] {
        let output = world.nodes(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(sentence), "{args:?}: {said}");
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
