//! Managers and nodes as processes of the built binary, which can be killed at any moment.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use skerry_crds::sedna::v1alpha1::Dataset;
use skerry_tests::loopback::{asked_again, free_port};

/// The Lease of managers.
pub const LEASE: &str = "skerry-globalmanager";

/// What a node holds, or should: name to the Dataset's uid and url.
pub type Datasets = BTreeMap<String, (String, String)>;

/// A process, which is killed when this is dropped.
struct Running(Option<Child>);

impl Running {
    /// Starts one; what it says is added to `log`.
    fn start(&mut self, args: &[&str], log: &Path) {
        self.kill();
        let log = File::options().create(true).append(true).open(log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_skerry"))
            .args(args)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.0 = Some(child.unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.0.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn signal(&self, signal: Signal) {
        let child = self.0.as_ref().expect("it runs");
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Asks it to end, and waits until it has.
    async fn end(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        let mut child = self.0.take().expect("it runs");
        let ended = tokio::task::spawn_blocking(move || child.wait());
        ended.await.unwrap().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last words of a process.
pub fn last_words(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let mut last: Vec<_> = log.lines().rev().take(15).collect();
    last.reverse();
    last.join("\n")
}

/// A manager.
pub struct Manager {
    /// Where nodes connect.
    pub port: u16,
    /// What it says.
    pub log: PathBuf,
    admin: u16,
    kubeconfig: PathBuf,
    process: Running,
}

impl Manager {
    /// One that is not started yet.
    pub fn new(folder: &Path, name: &str, kubeconfig: &Path) -> Self {
        Self {
            port: free_port(),
            log: folder.join(format!("{name}.log")),
            admin: free_port(),
            kubeconfig: kubeconfig.to_owned(),
            process: Running(None),
        }
    }

    /// One that is to run where this one does, with another API server.
    pub fn replaced_by(&self, folder: &Path, kubeconfig: &Path) -> Self {
        Self {
            port: self.port,
            ..Self::new(folder, "manager", kubeconfig)
        }
    }

    pub fn start(&mut self) {
        let (port, admin) = (self.port.to_string(), format!("127.0.0.1:{}", self.admin));
        let args = [
            "globalmanager",
            "--kubeconfig",
            self.kubeconfig.to_str().unwrap(),
            "--websocket-address",
            "127.0.0.1",
            "--websocket-port",
            &port,
            "--admin-address",
            &admin,
            "--lease-namespace",
            "default",
        ];
        self.process.start(&args, &self.log);
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Asks it to end, and waits until it has.
    pub async fn end(&mut self) -> ExitStatus {
        self.process.end().await
    }

    /// Waits until its metrics are as `are` wants, and tells whether they ever were.
    pub async fn until(&self, are: impl Fn(&Counted) -> bool) -> bool {
        asked_again(|| async { self.counted().await.filter(&are) })
            .await
            .is_some()
    }

    /// Waits until so many nodes have acknowledged so many objects, and nothing is outstanding; whether they did.
    pub async fn all_acknowledged(&self, nodes: u64, objects: usize) -> bool {
        self.until(|counted| {
            counted.value("edge_sessions") == Some(nodes)
                && counted.value("edge_objects_assigned") == Some(objects as u64)
                && counted.value("edge_objects_unacked") == Some(0)
        })
        .await
    }

    /// Its metrics, if it answers.
    pub async fn counted(&self) -> Option<Counted> {
        Counted::at(self.admin).await
    }
}

/// The metrics of a part.
pub struct Counted(String);

impl Counted {
    async fn at(port: u16) -> Option<Self> {
        let answer = reqwest::get(format!("http://127.0.0.1:{port}/metrics")).await;
        answer.ok()?.text().await.ok().map(Self)
    }

    /// The value of one.
    pub fn value(&self, name: &str) -> Option<u64> {
        let value = |line: &str| line.strip_prefix("skerry_")?.strip_prefix(name)?.trim().parse().ok();
        self.0.lines().find_map(value)
    }
}

/// A node.
pub struct Node {
    /// What it is called.
    pub name: String,
    /// What it says.
    pub log: PathBuf,
    manager: u16,
    /// Where its workers report.
    pub workers: u16,
    root: PathBuf,
    process: Running,
}

impl Node {
    /// One that is not started yet, and connects to this port.
    pub fn new(folder: &Path, name: &str, manager: u16) -> Self {
        Self {
            name: name.to_owned(),
            log: folder.join(format!("{name}.log")),
            manager,
            workers: free_port(),
            root: folder.join(name),
            process: Running(None),
        }
    }

    pub fn start(&mut self) {
        let (manager, workers) = (format!("127.0.0.1:{}", self.manager), self.workers.to_string());
        let args = [
            "localcontroller",
            "--gm-address",
            &manager,
            "--node-name",
            &self.name,
            "--bind-address",
            "127.0.0.1",
            "--bind-port",
            &workers,
            "--rootfs-mount-dir",
            self.root.to_str().unwrap(),
        ];
        self.process.start(&args, &self.log);
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Whether it is the process that was started.
    pub fn runs(&mut self) -> bool {
        let child = self.process.0.as_mut();
        child.is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// Its metrics, if it answers.
    pub async fn counted(&self) -> Option<Counted> {
        Counted::at(self.workers).await
    }

    /// A copy of its store. The node is killed first: it does not share it.
    pub fn copy(&mut self) -> Vec<u8> {
        self.fold_journal();
        std::fs::read(self.store_path()).unwrap()
    }

    /// Puts this in the place of its store. The node is killed first.
    pub fn put_back(&mut self, copy: &[u8]) {
        self.fold_journal();
        std::fs::write(self.store_path(), copy).unwrap();
    }

    /// Leaves all that is stored in the one file.
    fn fold_journal(&mut self) {
        let folded: i64 = self
            .store()
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
            .unwrap();
        assert_eq!(folded, 0, "somebody else has it open");
    }

    fn store_path(&self) -> PathBuf {
        self.root.join("var/lib/skerry/localcontroller.db")
    }

    /// Has its store write down, from now on, in which order objects come. The node is killed first: it does not share it.
    pub fn write_down(&mut self) {
        // What is deleted has come to its last version.
        let what = |event: &str, row: &str, generation: &str| {
            format!(
                "CREATE TRIGGER came_by_{event} AFTER {event} ON items BEGIN
                     INSERT INTO came (uid, generation) VALUES ({row}.uid, {generation});
                 END;"
            )
        };
        let last = i64::MAX.to_string();
        let came = [
            "CREATE TABLE came (at INTEGER PRIMARY KEY, uid TEXT NOT NULL, generation INTEGER NOT NULL) STRICT;",
            &what("INSERT", "new", "new.generation"),
            &what("UPDATE", "new", "new.generation"),
            &what("DELETE", "old", &last),
        ];
        self.store().execute_batch(&came.concat()).unwrap();
    }

    /// How many versions came to it since then, and how many of them after a newer one of the same object.
    pub fn came(&mut self) -> (u64, u64) {
        let sql = "SELECT count(*), coalesce(sum(before > generation), 0) FROM (
                       SELECT generation, lag(generation) OVER (PARTITION BY uid ORDER BY at) AS before FROM came
                   )";
        let counted = self.store().query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
        counted.unwrap()
    }

    /// Its store. The node is killed first: it does not share it.
    fn store(&mut self) -> rusqlite::Connection {
        self.kill();
        let path = self.store_path();
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
        rusqlite::Connection::open_with_flags(path, flags).unwrap()
    }

    /// The Datasets that its store holds. The node is killed first: it does not share it.
    pub fn held(&mut self) -> Datasets {
        let store = self.store();
        let mut rows = store
            .prepare("SELECT name, uid, body FROM items WHERE kind = 'dataset'")
            .unwrap();
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

/// Has the Lease of managers run out a second after it was renewed last, so that nobody waits for a quarter of a minute.
pub async fn expire(leases: &Api<Lease>) {
    let patch = Patch::Merge(json!({"spec": {"leaseDurationSeconds": 1}}));
    let patched = leases.patch(LEASE, &PatchParams::default(), &patch).await;
    patched.unwrap();
}

/// What is declared for a node.
pub async fn declared(datasets: &Api<Dataset>, node: &str) -> Datasets {
    let listed = datasets.list(&ListParams::default()).await.unwrap();
    let placed = listed.into_iter().filter(|dataset| dataset.spec.node_name == node);
    placed
        .map(|dataset| (dataset.name_any(), (dataset.uid().unwrap(), dataset.spec.url.clone())))
        .collect()
}

/// Where two differ, in numbers: objects that are missing or old, and objects too many.
pub fn differences(declared: &Datasets, held: &Datasets) -> (usize, usize) {
    let wrong = declared.iter().filter(|(name, what)| held.get(*name) != Some(what));
    let extra = held.keys().filter(|name| !declared.contains_key(*name));
    (wrong.count(), extra.count())
}
