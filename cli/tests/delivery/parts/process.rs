//! A process of the program.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Which version of the program runs.
#[derive(Clone)]
pub struct Version(pub(super) PathBuf);

impl Version {
    /// The one that was built with this test.
    pub fn built() -> Self {
        Self(env!("CARGO_BIN_EXE_skerry").into())
    }

    /// The one before, whose program `SKERRY_OLDER` names.
    pub fn older() -> Self {
        Self(std::env::var_os("SKERRY_OLDER").expect("SKERRY_OLDER").into())
    }
}

/// How nodes reach a manager.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// In plain.
    Plain,
    /// Over mutual TLS.
    Tls,
}

/// A process, which is killed when this is dropped.
pub(super) struct Running {
    pub(super) version: Version,
    child: Option<Child>,
}

impl Running {
    /// One that is not started yet.
    pub(super) fn of(version: Version) -> Self {
        Self { version, child: None }
    }

    /// Starts one; what it says is added to `log`.
    pub(super) fn start(&mut self, args: &[&str], log: &Path) {
        self.kill();
        let log = File::options().create(true).append(true).open(log).unwrap();
        let child = Command::new(&self.version.0)
            .args(args)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.child = Some(child.unwrap());
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Whether it is the process that was started.
    pub(super) fn runs(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    pub(super) fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub(super) async fn end(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        let mut child = self.child.take().expect("it runs");
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

/// The metrics of a part.
pub struct Counted(String);

impl Counted {
    pub(super) async fn at(port: u16) -> Option<Self> {
        let answer = reqwest::get(format!("http://127.0.0.1:{port}/metrics")).await;
        answer.ok()?.text().await.ok().map(Self)
    }

    /// The value of one.
    pub fn value(&self, name: &str) -> Option<u64> {
        let value = |line: &str| line.strip_prefix("skerry_")?.strip_prefix(name)?.trim().parse().ok();
        self.0.lines().find_map(value)
    }
}
