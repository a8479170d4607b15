//! One part of Skerry as a process of this same binary, in a process group of its own, its output in a file;
//! and where such a part may listen.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use crate::failure::Failure;

/// How long a part may take to drain when it is asked to end.
const DRAIN: Duration = Duration::from_secs(10);

/// A part that was started. It is killed when this is dropped.
pub(crate) struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts `skerry` with these arguments and variables; its output goes to `<logs>/<name>.log`.
    pub(crate) fn start(name: &str, args: &[&str], variables: &[(&str, &str)], logs: &Path) -> Result<Self, Failure> {
        Self::start_program(&this()?, name, args, variables, logs)
    }

    /// The same on these processors alone, as `taskset` names them.
    pub(crate) fn start_on(processors: &str, name: &str, args: &[&str], logs: &Path) -> Result<Self, Failure> {
        let this = this()?.display().to_string();
        let args = [&["--cpu-list", processors, &this], args].concat();
        Self::start_program(Path::new("taskset"), name, &args, &[], logs)
    }

    /// Starts another program in the same way.
    pub(crate) fn start_program(
        program: &Path,
        name: &str,
        args: &[&str],
        variables: &[(&str, &str)],
        logs: &Path,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(
                format!("{name} cannot be started: {error}"),
                "see whether the disk is full or the temporary directory forbids writing",
            )
        };
        let log = File::options()
            .create(true)
            .append(true)
            .open(logs.join(format!("{name}.log")))
            .map_err(failed)?;
        let errors = log.try_clone().map_err(failed)?;
        let child = Command::new(program)
            .args(args)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        Ok(Self {
            name: name.to_owned(),
            child,
        })
    }

    /// Its process id, until it has ended and was seen to.
    #[cfg(target_os = "linux")]
    pub(crate) fn pid(&self) -> Option<i32> {
        i32::try_from(self.child.id()?).ok()
    }

    /// Asks it to drain, and kills it where it does not.
    pub(crate) async fn end(mut self) {
        self.signal(Signal::SIGTERM);
        if timeout(DRAIN, self.child.wait()).await.is_err() {
            tracing::warn!(part = self.name, "did not drain within {DRAIN:?} and is killed");
            self.kill().await;
        }
    }

    /// Kills it as SIGKILL does.
    pub(crate) async fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        // Only a process that was reaped already cannot be waited for.
        let _ = self.child.wait().await;
    }

    /// Why it ended, where it ended by itself.
    pub(crate) fn ended(&mut self) -> Option<Failure> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(Failure::new(
            format!("{} ended by itself: {status}", self.name),
            "its log says why",
        ))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            // The only error that can be met is that it has ended in between.
            let _ = killpg(Pid::from_raw(pid), signal);
        }
    }
}

/// The program that runs.
fn this() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::new(error, "start skerry by its path"))
}

/// A port of loopback that nobody listens on.
pub(crate) fn free_port() -> Result<u16, Failure> {
    skerry_sandbox::free_port().map_err(|error| Failure::new(error, "no port of 127.0.0.1 is free"))
}
