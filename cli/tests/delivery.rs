//! Nothing is lost between manager and node: both as real processes over real sockets, killed by SIGKILL at random
//! moments while a thousand objects are edited in bursts.
//!
//! The seed is printed; `SKERRY_SEED` replays the choice of what is killed after which edit (the operating system's
//! scheduling is not replayed).

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use skerry_crds::sedna::v1alpha1::{Dataset, DatasetSpec};
use skerry_tests::{
    definitions::KINDS,
    loopback::{free_port, serve},
};
use tokio::sync::Notify;

const OBJECTS: usize = 1_000;
const EDITS: usize = 5;
const KILLS: usize = 12;
/// How long convergence may take once the last edit is made: generous, since nothing is measured here.
const PATIENCE: Duration = Duration::from_secs(120);

/// The parts under test.
struct Parts {
    folder: PathBuf,
    port: u16,
    admin: u16,
    manager: Option<Child>,
    node: Option<Child>,
}

impl Parts {
    fn start_manager(&mut self) {
        let (port, admin) = (self.port.to_string(), format!("127.0.0.1:{}", self.admin));
        let kubeconfig = self.folder.join("kubeconfig");
        let args = [
            "globalmanager",
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "--websocket-address",
            "127.0.0.1",
            "--websocket-port",
            &port,
            "--admin-address",
            &admin,
            "--lease-namespace",
            "default",
        ];
        self.manager = Some(spawn(&args, &self.folder, "manager"));
    }

    fn start_node(&mut self) {
        let manager = format!("127.0.0.1:{}", self.port);
        let root = self.folder.join("root");
        let args = [
            "localcontroller",
            "--gm-address",
            &manager,
            "--node-name",
            "edge-1",
            "--bind-address",
            "127.0.0.1",
            "--bind-port",
            "0",
            "--rootfs-mount-dir",
            root.to_str().unwrap(),
        ];
        self.node = Some(spawn(&args, &self.folder, "node"));
    }

    fn kill(child: &mut Option<Child>) {
        if let Some(mut child) = child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Whether the manager says that the node has acknowledged `objects` objects, and that nothing is outstanding.
    async fn all_acknowledged(&self, objects: usize) -> bool {
        let Ok(answer) = reqwest::get(format!("http://127.0.0.1:{}/metrics", self.admin)).await else {
            return false;
        };
        let counted = answer.text().await.unwrap_or_default();
        let says = |name: &str, value: usize| counted.lines().any(|line| line == format!("skerry_{name} {value}"));
        says("edge_sessions", 1) && says("edge_objects_assigned", objects) && says("edge_objects_unacked", 0)
    }

    /// What the node's store holds: name to the Dataset's uid and url. The node is killed first: it does not share it.
    fn held(&mut self) -> BTreeMap<String, (String, String)> {
        Self::kill(&mut self.node);
        let path = self.folder.join("root/var/lib/skerry/localcontroller.db");
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
        let store = rusqlite::Connection::open_with_flags(path, flags).unwrap();
        let mut rows = store.prepare("SELECT name, uid, body FROM items").unwrap();
        let rows = rows
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?)))
            .unwrap();
        rows.filter_map(Result::ok)
            .map(|(name, uid, body): (String, String, String)| {
                let body: serde_json::Value = serde_json::from_str(&body).unwrap();
                (name, (uid, body["spec"]["url"].as_str().unwrap_or_default().to_owned()))
            })
            .collect()
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        Self::kill(&mut self.manager);
        Self::kill(&mut self.node);
    }
}

fn spawn(args: &[&str], folder: &Path, name: &str) -> Child {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join(format!("{name}.log")))
        .unwrap();
    Command::new(env!("CARGO_BIN_EXE_skerry"))
        .args(args)
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_ends_equal_to_what_was_declared() {
    let seed = std::env::var("SKERRY_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(rand::random);
    println!("SKERRY_SEED={seed}");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let api = serve(folder.path(), &KINDS).await;
    let mut parts = Parts {
        folder: folder.path().to_owned(),
        port: free_port(),
        admin: free_port(),
        manager: None,
        node: None,
    };
    parts.start_manager();
    parts.start_node();

    let datasets: Api<Dataset> = Api::namespaced(api.client(), "default");
    let (edited, progress) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let edits = tokio::spawn(edit_all(datasets.clone(), edited.clone(), progress.clone()));
    let mut random = StdRng::seed_from_u64(seed);
    let mut moments: Vec<usize> = (0..KILLS).map(|_| random.random_range(1..OBJECTS * EDITS)).collect();
    moments.sort_unstable();
    for moment in moments {
        while edited.load(Ordering::SeqCst) < moment {
            progress.notified().await;
        }
        if random.random_bool(0.5) {
            Parts::kill(&mut parts.node);
            parts.start_node();
        } else {
            Parts::kill(&mut parts.manager);
            parts.start_manager();
        }
    }
    edits.await.unwrap();

    let declared: BTreeMap<_, _> = datasets
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .map(|dataset| (dataset.name_any(), (dataset.uid().unwrap(), dataset.spec.url.clone())))
        .collect();
    assert_eq!(declared.len(), OBJECTS - OBJECTS / 10);
    // Another process raises no event here: it is asked again and again, for a bounded time.
    let settled = tokio::time::timeout(PATIENCE, async {
        let mut often = tokio::time::interval(Duration::from_millis(200));
        while !parts.all_acknowledged(declared.len()).await {
            often.tick().await;
        }
    });
    let settled = settled.await.is_ok();
    let held = parts.held();
    if !settled || held != declared {
        let wrong = declared
            .iter()
            .filter(|(name, what)| held.get(*name) != Some(what))
            .count();
        let extra = held.keys().filter(|name| !declared.contains_key(*name)).count();
        let tail = |name: &str| {
            let log = std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
            log.lines().rev().take(15).collect::<Vec<_>>().join("\n")
        };
        panic!(
            "seed {seed}: all acknowledged: {settled}, {wrong} missing or old, {extra} too many\nmanager:\n{}\nnode:\n{}",
            tail("manager.log"),
            tail("node.log")
        );
    }
}

/// Creates the objects, edits each five times in a burst, and deletes every tenth.
async fn edit_all(datasets: Api<Dataset>, edited: Arc<AtomicUsize>, progress: Arc<Notify>) {
    stream::iter(0..OBJECTS)
        .for_each_concurrent(16, |object| {
            let (datasets, edited, progress) = (datasets.clone(), edited.clone(), progress.clone());
            async move {
                let name = format!("d{object}");
                let spec = DatasetSpec {
                    url: "/data/0".into(),
                    format: "txt".into(),
                    node_name: "edge-1".into(),
                    ..DatasetSpec::default()
                };
                datasets
                    .create(&PostParams::default(), &Dataset::new(&name, spec))
                    .await
                    .unwrap();
                for edit in 1..=EDITS {
                    let patch = json!({"spec": {"url": format!("/data/{edit}")}});
                    datasets
                        .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                        .await
                        .unwrap();
                    edited.fetch_add(1, Ordering::SeqCst);
                    progress.notify_one();
                }
                if object % 10 == 0 {
                    datasets.delete(&name, &DeleteParams::default()).await.unwrap();
                }
            }
        })
        .await;
}
