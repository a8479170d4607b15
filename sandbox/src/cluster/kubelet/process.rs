//! One run of a container as a local process in a group of its own.
//!
//! Whatever happens to the sandbox, its processes do not stay: a group is killed when its handle is dropped, and each
//! process carries a mark in its environment by which [`super::super::leftovers`] finds what a killed sandbox left.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::logs::record;
use crate::api::Clock;

/// How long the output of a process that has ended is waited for: a child of it may have kept it open.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) command: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) folder: PathBuf,
    /// The file that its output goes to.
    pub(super) log: PathBuf,
}

/// A process that was started, and its descendants in its group.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    group: Group,
    output: tokio::task::JoinSet<io::Result<()>>,
}

/// A process group, killed when this is dropped; none once it was seen to end, since its number may be another's then.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // The only error that can be met is that the group has ended in between.
            let _ = killpg(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

impl Process {
    /// Starts it. The environment is exactly the one given.
    pub(super) fn start(run: &Run, clock: Clock) -> io::Result<Self> {
        let (program, arguments) = run
            .command
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command"))?;
        std::fs::create_dir_all(&run.folder)?;
        if let Some(folder) = run.log.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // The log exists from the start, also that of a process which says nothing.
        std::fs::OpenOptions::new().create(true).append(true).open(&run.log)?;
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(run.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&run.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let group = Group(id.map(Pid::from_raw));
        let mut output = tokio::task::JoinSet::new();
        if let Some(stdout) = child.stdout.take() {
            output.spawn(record(stdout, run.log.clone(), clock));
        }
        if let Some(stderr) = child.stderr.take() {
            output.spawn(record(stderr, run.log.clone(), clock));
        }
        Ok(Self { child, group, output })
    }

    /// Asks the whole group to end.
    pub(super) fn terminate(&self) {
        self.group.signal(Signal::SIGTERM);
    }

    /// Ends the whole group.
    pub(super) fn kill(&self) {
        self.group.signal(Signal::SIGKILL);
    }

    /// Waits for the process to end, then ends what is left of its group. Its output is complete after that.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.group.signal(Signal::SIGKILL);
        self.group.0 = None;
        let all = async { while self.output.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_OUTPUT, all).await;
        Ok(status)
    }
}

/// The exit code as a container runtime reports it: 128 and the signal's number for who was killed.
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(255)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, folder: &std::path::Path) -> Run {
        Run {
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            env: vec![
                ("PATH".to_owned(), std::env::var("PATH").unwrap()),
                ("GREETING".to_owned(), "hello".to_owned()),
            ],
            folder: folder.join("work"),
            log: folder.join("log/1.log"),
        }
    }

    fn lines(folder: &std::path::Path) -> Vec<String> {
        let log = std::fs::read_to_string(folder.join("log/1.log")).unwrap();
        let mut lines: Vec<_> = log
            .lines()
            .map(|line| line.split_once(' ').unwrap().1.to_owned())
            .collect();
        lines.sort();
        lines
    }

    #[tokio::test]
    async fn output_environment_folder_and_code_are_as_given() {
        let state = tempfile::tempdir().unwrap();
        let script = "echo $GREETING $(basename $PWD) ${HOME-none}; echo error >&2; exit 3";
        let mut process =
            Process::start(&run(script, state.path()), Clock::starting_at(jiff::Timestamp::now())).unwrap();
        assert_eq!(exit_code(process.ended().await.unwrap()), 3);
        assert_eq!(lines(state.path()), ["error", "hello work none"]);
    }

    #[tokio::test]
    async fn a_signal_reaches_the_group_and_shows_in_the_code() {
        let state = tempfile::tempdir().unwrap();
        let script = "trap 'echo asked; exit 7' TERM; echo up; sleep 60 & wait";
        let mut process =
            Process::start(&run(script, state.path()), Clock::starting_at(jiff::Timestamp::now())).unwrap();
        while lines(state.path()).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        process.terminate();
        assert_eq!(exit_code(process.ended().await.unwrap()), 7);
        assert_eq!(lines(state.path()), ["asked", "up"]);
        let mut process = Process::start(
            &run("exec sleep 60", state.path()),
            Clock::starting_at(jiff::Timestamp::now()),
        )
        .unwrap();
        process.kill();
        assert_eq!(exit_code(process.ended().await.unwrap()), 137);
    }

    #[tokio::test]
    async fn nothing_of_the_group_outlives_the_handle() {
        let state = tempfile::tempdir().unwrap();
        let script = "sleep 60 & echo $!; wait";
        let process = Process::start(&run(script, state.path()), Clock::starting_at(jiff::Timestamp::now())).unwrap();
        while lines(state.path()).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let grandchild: i32 = lines(state.path())[0].parse().unwrap();
        drop(process);
        let stat = format!("/proc/{grandchild}/stat");
        let gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        for _ in 0..1000 {
            if gone() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("process {grandchild} is still there");
    }

    #[test]
    fn a_program_that_is_missing_is_an_error_at_the_start() {
        let state = tempfile::tempdir().unwrap();
        let missing = Run {
            command: vec!["/does/not/exist".into()],
            ..run("", state.path())
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _guard = runtime.enter();
        let error = Process::start(&missing, Clock::starting_at(jiff::Timestamp::now())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
