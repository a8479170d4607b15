//! Processes of the cluster: started with a log file, ended with the words or without.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// How long a process may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// A process that runs, and where its output goes.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; what it prints is appended to `<folder>/<name>.log`.
    pub fn start(name: &str, folder: &Path, mut command: Command) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("opening {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails, with the end of its log, if it has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => bail!("{} ended: {status}; its last words:\n{}", self.name, self.last_words()),
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Asks it to end, and insists after a while.
    pub fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        // It may be gone already: then there is nothing to ask for.
        let _ = kill(pid, Signal::SIGTERM);
        let ended = until(GRACE, || self.ended());
        match ended {
            Ok(status) => Ok(status),
            Err(_) => self.kill(),
        }
    }

    /// Ends it as SIGKILL does.
    pub fn kill(&mut self) -> anyhow::Result<ExitStatus> {
        match self.child.kill() {
            Err(error) if error.kind() != ErrorKind::InvalidInput => return Err(error.into()),
            _ => {}
        }
        Ok(self.child.wait()?)
    }

    /// The last lines that it printed.
    pub fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines
            .iter()
            .skip(lines.len().saturating_sub(15))
            .fold(String::new(), |text, line| text + line + "\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If it is gone already, all the better.
        let _ = self.kill();
    }
}

/// Runs a program to its end; its standard output. What it prints on standard error is in the error.
pub fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> anyhow::Result<String> {
    output(Command::new(program).args(arguments))
}

/// The same with a command that was prepared.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}: {}", output.status, said.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Copies a program to where it is run. A program of its own does so, since what this process had open for writing would be
/// so for a moment in whatever it starts meanwhile, and nothing that is open for writing can be run.
pub fn install(program: &Path, to: &Path) -> anyhow::Result<()> {
    let mut install = Command::new("install");
    output(install.arg("--mode=755").args([program, to])).map(drop)
}

/// The same with the text of a script.
pub fn install_script(text: &str, to: &Path) -> anyhow::Result<()> {
    let written = to.with_extension("text");
    fs::write(&written, text).with_context(|| written.display().to_string())?;
    install(&written, to)
}

/// Looks until there is something to see; the processes of a cluster tell nobody when they are ready. Ten times a second,
/// or a third of the time: a look may be a process of its own, and what it waits for needs the processors, too.
pub fn until<T>(limit: Duration, mut seen: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let end = Instant::now() + limit;
    loop {
        let begun = Instant::now();
        if let Some(found) = seen()? {
            return Ok(found);
        }
        if Instant::now() >= end {
            bail!("not within {} s", limit.as_secs());
        }
        let look = begun.elapsed();
        std::thread::sleep(Duration::from_millis(100).max(2 * look));
    }
}

/// Tries as often until it works; the last error says why it never did.
pub fn until_it_works<T>(limit: Duration, mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut last = None;
    let done = until(limit, || match attempt() {
        Ok(done) => Ok(Some(done)),
        Err(error) => {
            last = Some(error);
            Ok(None)
        }
    });
    done.map_err(|late| match last {
        Some(why) => why.context(late),
        None => late,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_works_says_why() {
        let mut times = 0;
        let refused = until_it_works(Duration::ZERO, || -> anyhow::Result<()> { bail!("it is refused") });
        assert_eq!(format!("{:#}", refused.unwrap_err()), "not within 0 s: it is refused");
        let done = until_it_works(GRACE, || {
            times += 1;
            (times > 1).then_some(times).context("not at once")
        });
        assert_eq!(done.unwrap(), 2);
    }
}
