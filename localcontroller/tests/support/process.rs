//! The local controller as a process of its own, to be killed.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use skerry_edge::Row;
use skerry_localcontroller::store::{self, OutboxLimits, Store};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::watch,
    task::JoinHandle,
};

use super::NODE;

const PROGRAM: &str = env!("CARGO_BIN_EXE_skerry-localcontroller");

/// The root of a node's host.
pub struct Root(TempDir);

impl Root {
    /// An empty one.
    pub fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The file of the node's store.
    pub fn store_path(&self) -> PathBuf {
        self.path().join(store::PATH)
    }

    /// The node's store, while no process has it.
    pub async fn store(&self) -> Store {
        Store::open(&self.store_path(), OutboxLimits::default()).await.unwrap()
    }

    /// Makes the node's store so old, while no process has it.
    pub fn age(&self, age: Duration) {
        let aged = self.database().execute("UPDATE age SET seconds = ?1", [age.as_secs()]);
        assert_eq!(aged.unwrap(), 1);
    }

    /// Makes the node's store one of this version of its tables, while no process has it.
    pub fn set_schema(&self, version: u32) {
        let database = self.database();
        database.pragma_update(None, "user_version", version).unwrap();
        // All of it in the one file.
        let folded = "PRAGMA wal_checkpoint(TRUNCATE)";
        let folded: i64 = database.query_row(folded, [], |row| row.get(0)).unwrap();
        assert_eq!(folded, 0, "somebody else has it open");
    }

    fn database(&self) -> Connection {
        Connection::open_with_flags(self.store_path(), OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap()
    }

    /// What the node's store holds, in order, while no process has it.
    pub async fn rows(&self) -> Vec<Row> {
        let store = self.store().await;
        let mut rows = store.rows().await.unwrap();
        store.close().await;
        rows.sort();
        rows
    }
}

/// A running local controller. Dropping it kills it.
pub struct Process {
    child: Child,
    /// Where workers are served; none until they are.
    workers: watch::Receiver<Option<String>>,
    log: watch::Receiver<Vec<String>>,
    reading: JoinHandle<()>,
}

impl Process {
    /// Starts it on this root, with the manager there.
    pub fn start(root: &Root, manager: &str) -> Self {
        Self::start_with(root, manager, "info")
    }

    /// Starts it with this much in its log.
    pub fn start_with(root: &Root, manager: &str, log: &str) -> Self {
        let mut program = Command::new(PROGRAM);
        program.env_clear();
        Self::start_as(program, root, manager, log)
    }

    /// Starts it with a disk of its own of so many MiB as this root, which is gone with it; nothing where this machine does
    /// not allow that.
    pub async fn start_on_disk(root: &Root, manager: &str, mebibytes: u32) -> Option<Self> {
        const ALONE: [&str; 3] = ["--map-root-user", "--mount", "--"];
        let allowed = Command::new("unshare").args(ALONE).arg("true").status().await;
        if !allowed.is_ok_and(|status| status.success()) {
            eprintln!("skipped: this machine does not allow a disk of its own");
            return None;
        }
        let mount = format!("mount -t tmpfs -o size={mebibytes}m tmpfs \"$ROOTFS_MOUNT_DIR\" && exec \"$0\"");
        let mut program = Command::new("unshare");
        program.args(ALONE).args(["sh", "-c", &mount, PROGRAM]);
        Some(Self::start_as(program, root, manager, "info"))
    }

    fn start_as(mut program: Command, root: &Root, manager: &str, log: &str) -> Self {
        let mut child = program
            .env("GM_ADDRESS", manager)
            .env("NODENAME", NODE)
            .env("BIND_ADDRESS", "127.0.0.1")
            .env("BIND_PORT", "0")
            .env("ROOTFS_MOUNT_DIR", root.path())
            .env("LOG_FORMAT", "json")
            .env("RUST_LOG", log)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, workers) = watch::channel(None);
        let (said, log) = watch::channel(Vec::new());
        let reading = tokio::spawn(read(lines, sender, said));
        Self {
            child,
            workers,
            log,
            reading,
        }
    }

    /// Its root, as it sees it itself.
    pub fn disk(&self, root: &Root) -> PathBuf {
        let path = root.path().strip_prefix("/").unwrap();
        Path::new(&format!("/proc/{}/root", self.child.id().unwrap())).join(path)
    }

    /// Kills it, wherever it is.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Asks it to end, as Kubernetes does, and expects that it ends well; its log.
    pub async fn terminate(mut self) -> Vec<String> {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
        let status = self.child.wait().await.unwrap();
        (&mut self.reading).await.unwrap();
        let log = self.log.borrow().clone();
        assert!(status.success(), "{status}: {log:#?}");
        log
    }

    /// How it ended by itself, and its log.
    pub async fn ended(mut self) -> (ExitStatus, Vec<String>) {
        let status = self.child.wait().await.unwrap();
        (&mut self.reading).await.unwrap();
        let log = self.log.borrow().clone();
        (status, log)
    }

    /// Waits until its log says this.
    pub async fn says(&self, what: &str) {
        let mut log = self.log.clone();
        let said = log.wait_for(|log| log.iter().any(|line| line.contains(what)));
        said.await.expect("the local controller has ended");
    }

    /// Where workers are served.
    pub async fn workers(&self) -> String {
        let mut workers = self.workers.clone();
        let workers = workers.wait_for(Option::is_some).await;
        workers.expect("the local controller has ended").clone().unwrap()
    }

    /// What it answers under this path.
    pub async fn get(&self, path: &str) -> String {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = format!("http://{}{path}", self.workers().await);
        let answer = reqwest::get(url).await.unwrap();
        answer.text().await.unwrap()
    }

    /// Posts a worker's message; whether it was taken.
    pub async fn post(&self, worker: &str, message: &Value) -> bool {
        self.status_of_post(worker, message).await == Some(200)
    }

    /// The status with which a worker's message is answered, if it is.
    pub async fn status_of_post(&self, worker: &str, message: &Value) -> Option<u16> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = format!("http://{}/sedna/workers/{worker}/info", self.workers().await);
        let posted = reqwest::Client::new()
            .post(url)
            .header("Content-Type", "application/json")
            .body(message.to_string())
            .send()
            .await;
        posted.ok().map(|response| response.status().as_u16())
    }
}

async fn read<R: tokio::io::AsyncBufRead + Unpin>(
    mut lines: tokio::io::Lines<R>,
    workers: watch::Sender<Option<String>>,
    log: watch::Sender<Vec<String>>,
) {
    while let Ok(Some(line)) = lines.next_line().await {
        let address = serde_json::from_str::<Value>(&line)
            .ok()
            .and_then(|line| line["fields"]["workers"].as_str().map(ToOwned::to_owned));
        if address.is_some() {
            workers.send_replace(address);
        }
        log.send_modify(|log| log.push(line));
    }
}
