//! Counts how often a process syncs the disk, by `strace`: the kernel counts system calls of processes for nobody else.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    time::sleep,
};

use crate::failure::Failure;

/// How long it may take to attach: it says nothing when it has.
const ATTACH: Duration = Duration::from_secs(1);

/// A count that goes on.
pub(super) struct Syncs {
    strace: Child,
    trace: PathBuf,
}

impl Syncs {
    /// Begins to count; nothing where that cannot be had on this machine.
    pub(super) async fn count(process: i32, folder: &Path) -> Option<Self> {
        let trace = folder.join("syncs.trace");
        let mut strace = Command::new("strace")
            .args([
                "-f",
                "-qq",
                "-e",
                "trace=fsync,fdatasync",
                "-p",
                &process.to_string(),
                "-o",
            ])
            .arg(&trace)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .ok()?;
        sleep(ATTACH).await;
        // One that may not attach has ended by now.
        strace.try_wait().ok()?.is_none().then_some(Self { strace, trace })
    }

    /// Ends the count.
    pub(super) async fn end(mut self) -> Result<f64, Failure> {
        let lost = |error: &dyn std::fmt::Display| Failure::new(error, "see whether strace works on this machine");
        if let Some(pid) = self.strace.id().and_then(|pid| i32::try_from(pid).ok()) {
            // It lets the process go, and ends.
            kill(Pid::from_raw(pid), Signal::SIGTERM).map_err(|error| lost(&error))?;
        }
        self.strace.wait().await.map_err(|error| lost(&error))?;
        let trace = std::fs::read_to_string(&self.trace).map_err(|error| lost(&error))?;
        Ok(super::edits::count(calls(&trace)))
    }
}

/// The calls in a trace. One that another thread interrupts has two lines, the second of which names it as resumed.
fn calls(trace: &str) -> usize {
    let begun = |line: &&str| line.contains("sync(") && !line.contains("resumed>");
    trace.lines().filter(begun).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_was_interrupted_counts_once() {
        let trace = "10 fdatasync(7)  = 0\n11 fsync(8 <unfinished ...>\n10 fdatasync(7) = 0\n\
                     11 <... fsync resumed>) = 0\n10 +++ exited with 0 +++\n";
        assert_eq!(calls(trace), 3);
    }
}
