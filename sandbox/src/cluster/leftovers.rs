//! Processes that outlive their sandbox: how they are known, and how they are ended.
//!
//! Every process of a sandbox carries a mark in its environment, the sandbox's state folder, and its children inherit it.
//! So whatever was left is found, whatever group or session it made for itself. A sandbox that is killed takes its
//! processes along by a guard, a shell that waits for it to end; where the guard was killed too, the next start of a
//! sandbox on the same folder clears up.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;

/// The variable that marks a sandbox's processes.
const MARK: &str = "SKERRY_SANDBOX";

/// How often is looked for processes that were started by others just before those ended.
const ROUNDS: usize = 20;

/// Waits until its input ends, then ends whoever carries the mark that is its first argument.
const GUARD: &str = r#"cat >/dev/null
for process in /proc/[0-9]*; do
  if tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -qxF -e "$1"; then kill -9 "${process#/proc/}"; fi
done"#;

/// The mark of the sandbox with this state folder: a variable's name and value.
pub(crate) fn mark(folder: &Path) -> io::Result<(String, String)> {
    Ok((MARK.to_owned(), folder.canonicalize()?.display().to_string()))
}

/// Ends all processes that carry the mark; how many there were.
pub(crate) async fn clear(mark: &(String, String)) -> usize {
    let mut ended = BTreeSet::new();
    for _ in 0..ROUNDS {
        let found = carriers(mark);
        if found.is_empty() {
            break;
        }
        for process in &found {
            // It may have ended by itself.
            let _ = kill(*process, Signal::SIGKILL);
        }
        // Who is slow to die is found again.
        ended.extend(found);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    ended.len()
}

/// The processes that carry the mark, this one apart.
fn carriers(mark: &(String, String)) -> Vec<Pid> {
    let wanted = format!("{}={}", mark.0, mark.1).into_bytes();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return vec![];
    };
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let carries = |number: &i32| {
        // Others' processes cannot be read, and those that have just ended have nothing to read.
        let environment = std::fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
    };
    let own = Pid::this();
    numbers
        .filter(carries)
        .map(Pid::from_raw)
        .filter(|process| *process != own)
        .collect()
}

/// Ends a sandbox's processes when the sandbox ends, however it does.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Closed by the system when this process is gone.
    input: Option<ChildStdin>,
    shell: Child,
}

impl Guard {
    pub(crate) fn start(mark: &(String, String)) -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", GUARD, "skerry-sandbox-guard", &format!("{}={}", mark.0, mark.1)])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C at the terminal is for the sandbox.
            .process_group(0)
            .spawn()?;
        Ok(Self {
            input: shell.stdin.take(),
            shell,
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.input.take());
        // It has nothing left to do but to look once.
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(mark: &(String, String)) -> Child {
        // In a session of its own, and with a child: neither a group nor a parent leads to it.
        Command::new("/bin/sh")
            .args(["-c", "setsid sleep 300 & exec sleep 300"])
            .env(&mark.0, &mark.1)
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    #[tokio::test]
    async fn what_a_dead_sandbox_left_is_found_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mark = mark(folder.path()).unwrap();
        assert_eq!(clear(&mark).await, 0);
        let mut left = start(&mark);
        while carriers(&mark).len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(clear(&mark).await, 2);
        assert!(!left.wait().unwrap().success());
        let other = (MARK.to_owned(), format!("{}/x", mark.1));
        assert!(carriers(&other).is_empty(), "another sandbox's mark is not this one's");
    }

    #[tokio::test]
    async fn the_guard_ends_them_when_the_sandbox_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mark = mark(folder.path()).unwrap();
        let mut guard = Guard::start(&mark).unwrap();
        let mut left = start(&mark);
        while carriers(&mark).len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // What the system does with a process that is killed.
        drop(guard.input.take());
        assert!(guard.shell.wait().unwrap().code().is_some());
        assert!(!left.wait().unwrap().success());
        // They were sent their signals; that they are gone by then is up to the system.
        while !carriers(&mark).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
