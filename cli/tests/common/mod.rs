//! `skerry sandbox` as a process of the built binary, on a state folder of its own.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// The built binary.
pub const SKERRY: &str = env!("CARGO_BIN_EXE_skerry");

/// A sandbox that is usable. Where a test fails, its guard ends what it started.
pub struct Sandbox {
    child: Child,
    /// What `export KUBECONFIG=` names.
    pub kubeconfig: PathBuf,
}

impl Sandbox {
    /// Starts `skerry sandbox` with these arguments and reads what it says, up to `ready`.
    pub fn start(home: &Path, args: &[&str]) -> Self {
        let errors = home.join("stderr");
        let mut child = Command::new(SKERRY)
            .arg("sandbox")
            .args(args)
            .env("XDG_STATE_HOME", home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = said.map(Result::unwrap);
        let up_to_ready: Vec<_> = said.by_ref().take_while(|line| line != "ready").collect();
        let kubeconfig = up_to_ready
            .iter()
            .find_map(|line| line.strip_prefix("export KUBECONFIG="));
        let Some(kubeconfig) = kubeconfig.map(PathBuf::from) else {
            let _ = child.kill();
            panic!("{up_to_ready:?}\n{}", std::fs::read_to_string(&errors).unwrap());
        };
        assert!(child.try_wait().unwrap().is_none(), "ready, and over");
        Self { child, kubeconfig }
    }

    /// Sends it a signal and waits until it has ended.
    pub fn end(mut self, signal: Signal) -> ExitStatus {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap());
        kill(pid, signal).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // It has ended, or a test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
