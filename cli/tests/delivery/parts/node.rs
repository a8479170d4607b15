//! A node as a process, and what its store holds.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use skerry_tests::loopback::{asked_again, free_port};

use super::{
    Datasets,
    process::{Counted, Link, Running, Version},
};

/// Makes a token by which a node joins, once that can be had; whether it ever could.
async fn invite(kubeconfig: &Path, node: &str, token: &Path) -> bool {
    let made = || async {
        let args = ["nodes", "join-token", node, "--namespace", "default"];
        let mut command = Command::new(&Version::built().0);
        let made = command.args(args).env("KUBECONFIG", kubeconfig).output().unwrap();
        made.status.success().then_some(made.stdout)
    };
    let Some(made) = asked_again(made).await else {
        return false;
    };
    std::fs::write(token, made).unwrap();
    true
}

/// A node.
pub struct Node {
    /// What it is called.
    pub name: String,
    /// What it says.
    pub log: PathBuf,
    manager: u16,
    link: Link,
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
            link: Link::Plain,
            workers: free_port(),
            root: folder.join(name),
            process: Running::of(Version::built()),
        }
    }

    /// The same of another version.
    pub fn of(self, version: Version) -> Self {
        Self {
            process: Running::of(version),
            ..self
        }
    }

    /// The same, which reaches managers by this; it is invited by whoever has this kubeconfig.
    pub async fn by(self, link: Link, kubeconfig: &Path) -> Self {
        if link == Link::Tls {
            assert!(
                invite(kubeconfig, &self.name, &self.token()).await,
                "there is no authority"
            );
        }
        Self { link, ..self }
    }

    /// Where it finds the token by which it joins.
    fn token(&self) -> PathBuf {
        self.log.with_extension("token")
    }

    pub fn start(&mut self) {
        let scheme = match self.link {
            Link::Plain => "",
            Link::Tls => "wss://",
        };
        let (manager, workers) = (format!("{scheme}127.0.0.1:{}", self.manager), self.workers.to_string());
        let token = self.token();
        let joins: &[&str] = match self.link {
            Link::Plain => &[],
            Link::Tls => &["--join-token-file", token.to_str().unwrap()],
        };
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
        self.process.start(&[&args, joins].concat(), &self.log);
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Whether it is the process that was started.
    pub fn runs(&mut self) -> bool {
        self.process.runs()
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
