//! The real process against an API server on loopback: what it says of itself, and how it ends.

// A set-up that fails is the test's verdict.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::{
    io::Read as _,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Namespace},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, api::PostParams};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use skerry_sandbox::{
    cluster::{Options, Sandbox},
    free_port,
};
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    time::{sleep, timeout},
};

const PATIENCE: Duration = Duration::from_secs(40);

/// A manager and the cluster that it looks after.
struct World {
    cluster: Sandbox,
    manager: Child,
    admin: String,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        // Fails only where one is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            nodes: vec![],
            ..Options::new(folder.path().join("state"))
        };
        let cluster = Sandbox::start(options).await.unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, cluster.kubeconfig()).unwrap();
        let config = folder.path().join("config.yaml");
        let port = || free_port().unwrap();
        let admin = format!("127.0.0.1:{}", port());
        let text = format!(
            "websocket: {{address: 127.0.0.1, port: {}}}\nadminAddress: {admin}\nleaseNamespace: sedna\nlogFormat: json\nedgeTlsAddress: 127.0.0.1:{}\n",
            port(),
            port()
        );
        std::fs::write(&config, text).unwrap();
        let manager = Command::new(env!("CARGO_BIN_EXE_skerry-globalmanager"))
            .args(["--kubeconfig", kubeconfig.to_str().unwrap()])
            .args(["--config", config.to_str().unwrap()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            cluster,
            manager,
            admin,
            _folder: folder,
        }
    }

    /// Makes what a manager cannot do without.
    async fn furnish(&self) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.cluster.client());
        for crd in skerry_crds::all() {
            crds.create(&PostParams::default(), crd).await.unwrap();
        }
        let namespaces: Api<Namespace> = Api::all(self.cluster.client());
        let namespace = serde_json::from_value(json!({"metadata": {"name": "sedna"}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let Ok(answer) = reqwest::get(format!("http://{}{path}", self.admin)).await else {
            return (0, String::new());
        };
        (answer.status().as_u16(), answer.text().await.unwrap_or_default())
    }

    /// Waits for an answer of which `holds`.
    async fn until(&self, path: &str, holds: impl Fn(&(u16, String)) -> bool) -> String {
        let waited = timeout(PATIENCE, async {
            loop {
                let answer = self.get(path).await;
                if holds(&answer) {
                    return answer.1;
                }
                sleep(Duration::from_millis(50)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("{path} did not come to say it"))
    }

    async fn lease(&self) -> Lease {
        let leases: Api<Lease> = Api::namespaced(self.cluster.client(), "sedna");
        leases.get("skerry-globalmanager").await.unwrap()
    }

    /// Ends the manager with SIGTERM and waits until it has ended.
    async fn terminate(&mut self) -> Option<i32> {
        kill(
            Pid::from_raw(i32::try_from(self.manager.id()).unwrap()),
            Signal::SIGTERM,
        )
        .unwrap();
        let ended = timeout(PATIENCE, async {
            loop {
                if let Some(status) = self.manager.try_wait().unwrap() {
                    return status.code();
                }
                sleep(Duration::from_millis(20)).await;
            }
        });
        ended.await.expect("it does not end")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.manager.kill();
        let ended = self.manager.wait();
        // Why a test fails is in the manager's log.
        if let (true, Some(log)) = (std::thread::panicking(), &mut self.manager.stderr) {
            let mut text = String::new();
            let _ = log.read_to_string(&mut text);
            eprintln!("{ended:?}\n{text}");
        }
    }
}

#[tokio::test]
async fn it_says_what_it_lacks_counts_what_it_does_and_drains() {
    let mut world = World::start().await;
    world.until("/healthz", |answer| *answer == (200, "ok\n".into())).await;
    let lacks = |(code, text): &(u16, String)| {
        let crds = "jointinferenceservices.sedna.io";
        *code == 503 && text.contains(crds) && text.contains("Lease sedna/skerry-globalmanager: ")
    };
    let missing = world.until("/readyz", lacks).await;
    assert!(missing.contains("namespaces \"sedna\" not found"), "{missing}");
    assert!(missing.contains("EdgeNodes are not yet listed"), "{missing}");
    let standby = (503, "this manager does not serve nodes now\n".to_owned());
    assert_eq!(world.get("/nodes").await, standby);
    world.furnish().await;
    world.until("/readyz", |answer| *answer == (200, "ok\n".into())).await;

    let leads = |answer: &(u16, String)| answer.1.lines().any(|line| line == "skerry_leader 1");
    let counted = world.until("/metrics", leads).await;
    for name in [
        "api_requests_total{",
        "edge_acks_total",
        "edge_lag_seconds",
        "edge_sessions",
        "queue_depth",
        "reconcile_seconds_count",
        "watch_errors_total{",
    ] {
        assert!(counted.contains(&format!("\nskerry_{name}")), "{name} in {counted}");
    }
    world.until("/nodes", |answer| *answer == (200, "[]".into())).await;
    assert!(world.lease().await.spec.unwrap().holder_identity.is_some());

    assert_eq!(world.terminate().await, Some(0));
    let left = world.lease().await.spec.unwrap();
    assert_eq!(left.holder_identity, None, "the next need not wait");
    let mut log = String::new();
    world.manager.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).expect("each line is an object");
        assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
    }
    assert!(log.contains("draining"), "{log}");
}

#[tokio::test]
async fn it_drains_even_if_nobody_reads_its_log() {
    let mut world = World::start().await;
    world.furnish().await;
    world.until("/readyz", |answer| answer.0 == 200).await;
    drop(world.manager.stderr.take());
    assert_eq!(world.terminate().await, Some(0));
}

#[tokio::test]
async fn a_request_of_which_half_is_sent_holds_up_neither_its_end_nor_the_next_manager() {
    let mut world = World::start().await;
    world.furnish().await;
    let leads = |answer: &(u16, String)| answer.1.lines().any(|line| line == "skerry_leader 1");
    world.until("/metrics", leads).await;
    let mut half = TcpStream::connect(&world.admin).await.unwrap();
    half.write_all(b"GET /healthz HTTP/1.1\r\nhost: admin\r\n")
        .await
        .unwrap();
    // What is asked after it is answered, so it has been taken up.
    world.until("/healthz", |answer| answer.0 == 200).await;

    let began = Instant::now();
    assert_eq!(world.terminate().await, Some(0));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(world.lease().await.spec.unwrap().holder_identity, None);
    drop(half);
}
