//! What docs/old-agents.md says, with real processes at both ends of Sedna's protocol: a local controller that speaks it with a
//! manager that has the listener for old agents.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};
use skerry_sandbox::ApiServer;
use skerry_tests::{
    definitions::KINDS,
    loopback::{free_port, serve},
};
use tokio::time::{interval, timeout};

/// Longer than anything here takes: a manager that was killed leads again once its Lease has run out.
const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    folder: tempfile::TempDir,
    api: ApiServer,
    agents: u16,
    workers: u16,
    manager: Option<Child>,
    node: Option<Child>,
}

impl World {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let api = serve(folder.path(), &KINDS).await;
        let mut world = Self {
            folder,
            api,
            agents: free_port(),
            workers: free_port(),
            manager: None,
            node: None,
        };
        std::fs::create_dir(world.folder.path().join("root")).unwrap();
        world.samples("h\n1\n2\n");
        world.start_manager();
        let mut node = world.node_command();
        world.node = Some(start(node.arg("--manager-plaintext"), world.folder.path(), "node"));
        world
    }

    fn start_manager(&mut self) {
        let kubeconfig = self.folder.path().join("kubeconfig");
        let mut command = Command::new(env!("CARGO_BIN_EXE_skerry"));
        command
            .arg("globalmanager")
            .args([
                "--kubeconfig",
                kubeconfig.to_str().unwrap(),
                "--lease-namespace",
                "default",
            ])
            .args([
                "--websocket-address",
                "127.0.0.1",
                "--websocket-port",
                &free_port().to_string(),
            ])
            .args(["--admin-address", &format!("127.0.0.1:{}", free_port())])
            .args([
                "--sedna-agents-address",
                &format!("127.0.0.1:{}", self.agents),
                "--sedna-agents-plaintext",
            ])
            .env_remove("KUBECONFIG");
        self.manager = Some(start(&mut command, self.folder.path(), "manager"));
    }

    fn node_command(&self) -> Command {
        let root = self.folder.path().join("root");
        let mut command = Command::new(env!("CARGO_BIN_EXE_skerry"));
        command
            .arg("localcontroller")
            .args([
                "--gm-address",
                &format!("127.0.0.1:{}", self.agents),
                "--node-name",
                "edge-1",
            ])
            .args(["--bind-address", "127.0.0.1", "--bind-port", &self.workers.to_string()])
            .args([
                "--rootfs-mount-dir",
                root.to_str().unwrap(),
                "--manager-protocol",
                "sedna",
            ]);
        command
    }

    fn samples(&self, text: &str) {
        std::fs::write(self.folder.path().join("root/d.csv"), text).unwrap();
    }

    fn resources(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("sedna.io", "v1alpha1", kind));
        Api::namespaced_with(self.api.client(), "default", &resource)
    }

    async fn create(&self, kind: &str, name: &str, spec: &Value) {
        let metadata = json!({"name": name, "namespace": "default"});
        let object = json!({"apiVersion": "sedna.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec});
        let object = serde_json::from_value(object).unwrap();
        let created = self.resources(kind).create(&PostParams::default(), &object).await;
        created.unwrap();
    }

    async fn status(&self, kind: &str, name: &str) -> Value {
        self.resources(kind).get(name).await.unwrap().data["status"].clone()
    }

    /// What a trainer says of a round; whether it was taken.
    async fn report_round(&self, round: u64) -> bool {
        let message = json!({
            "name": "w", "namespace": "default", "ownerName": "job", "ownerKind": "federatedlearningjob",
            "kind": "train", "status": "running", "ownerInfo": {"currentRound": round}, "results": [],
        });
        let url = format!("http://127.0.0.1:{}/sedna/workers/w/info", self.workers);
        let posted = reqwest::Client::new()
            .post(url)
            .header("Content-Type", "application/json")
            .body(message.to_string())
            .send()
            .await;
        posted.is_ok_and(|answer| answer.status() == 200)
    }

    async fn rounds(&self) -> Vec<u64> {
        let status = self.status("FederatedLearningJob", "job").await;
        let rounds = status["rounds"].as_array().into_iter().flatten();
        rounds.map(|round| round["round"].as_u64().unwrap()).collect()
    }

    /// Asks again and again: another process raises no event here.
    async fn until<F: Future<Output = bool>>(&self, what: &str, mut holds: impl FnMut() -> F) {
        let mut often = interval(Duration::from_millis(50));
        let waited = timeout(PATIENCE, async {
            while !holds().await {
                often.tick().await;
            }
        });
        let said = |part: &str| std::fs::read_to_string(self.folder.path().join(format!("{part}.log"))).unwrap();
        assert!(
            waited.await.is_ok(),
            "not yet: {what}\nmanager:\n{}\nnode:\n{}",
            said("manager"),
            said("node")
        );
    }

    async fn counted(&self, samples: u64) {
        let counted = || async { self.status("Dataset", "d").await["numberOfSamples"] == samples };
        self.until(&format!("{samples} samples"), counted).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        kill(&mut self.manager);
        kill(&mut self.node);
    }
}

fn start(command: &mut Command, folder: &Path, part: &str) -> Child {
    let log = folder.join(format!("{part}.log"));
    let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn template(node: &str) -> Value {
    json!({"spec": {"nodeName": node, "containers": [{"name": "c", "image": "example/i:v1"}]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_works_over_sednas_protocol_and_by_itself_while_its_manager_is_away() {
    let mut world = World::start().await;
    let once = world.node_command().output().unwrap();
    let said = String::from_utf8_lossy(&once.stderr);
    assert!(
        !once.status.success() && said.contains("MANAGER_PLAINTEXT=true"),
        "{said}"
    );

    world
        .create("Model", "m", &json!({"url": "/m", "format": "ckpt"}))
        .await;
    let dataset = json!({"url": "/d.csv", "format": "csv", "nodeName": "edge-1"});
    world.create("Dataset", "d", &dataset).await;
    let job = json!({
        "aggregationWorker": {"model": {"name": "m"}, "template": template("cloud-1")},
        "trainingWorkers": [{"dataset": {"name": "d"}, "template": template("edge-1")}],
    });
    world.create("FederatedLearningJob", "job", &job).await;
    world.counted(2).await;
    assert!(world.report_round(1).await);
    world.until("round 1", || async { world.rounds().await == [1] }).await;

    kill(&mut world.manager);
    world.samples("h\n1\n2\n3\n");
    for round in 2..=5 {
        assert!(world.report_round(round).await, "it takes reports by itself");
    }
    world.start_manager();
    world.counted(3).await;
    world
        .until("all rounds", || async { world.rounds().await == [1, 2, 3, 4, 5] })
        .await;

    world
        .resources("Dataset")
        .delete("d", &DeleteParams::default())
        .await
        .unwrap();
    let items = || async {
        let metrics = reqwest::get(format!("http://127.0.0.1:{}/metrics", world.workers))
            .await
            .unwrap();
        let metrics = metrics.text().await.unwrap();
        metrics.lines().any(|line| line == "skerry_localcontroller_items 1")
    };
    world.until("the Dataset is forgotten, and the job is not", items).await;
}
