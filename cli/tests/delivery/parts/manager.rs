//! A manager as a process.

use std::{
    path::{Path, PathBuf},
    process::ExitStatus,
};

use nix::sys::signal::Signal;
use skerry_tests::loopback::{asked_again, free_port};

use super::process::{Counted, Link, Running, Version};

/// A manager.
pub struct Manager {
    /// Where nodes connect.
    pub port: u16,
    /// What it says.
    pub log: PathBuf,
    link: Link,
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
            link: Link::Plain,
            admin: free_port(),
            kubeconfig: kubeconfig.to_owned(),
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

    /// The same, which nodes reach by this.
    pub fn by(self, link: Link) -> Self {
        Self { link, ..self }
    }

    /// One that is to run where this one does, with another API server.
    pub fn replaced_by(&self, folder: &Path, kubeconfig: &Path) -> Self {
        Self {
            port: self.port,
            link: self.link,
            ..Self::new(folder, "manager", kubeconfig).of(self.process.version.clone())
        }
    }

    pub fn start(&mut self) {
        let (port, admin) = (self.port.to_string(), format!("127.0.0.1:{}", self.admin));
        let (plain, tls) = (free_port().to_string(), format!("127.0.0.1:{port}"));
        let link: &[&str] = match self.link {
            Link::Plain => &["--websocket-port", &port],
            Link::Tls => &["--websocket-port", &plain, "--edge-tls-address", &tls],
        };
        let args = [
            "globalmanager",
            "--kubeconfig",
            self.kubeconfig.to_str().unwrap(),
            "--websocket-address",
            "127.0.0.1",
            "--admin-address",
            &admin,
            "--lease-namespace",
            "default",
        ];
        self.process.start(&[&args, link].concat(), &self.log);
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
