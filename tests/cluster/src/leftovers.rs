//! What a run that was killed might leave behind, seen from outside.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};

use crate::{
    enclosure,
    process::{run, until},
};

/// How long the kernel, and the janitor, may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long an API server may take until it begins to start: hosts are joined before it, and etcd is started.
const START: Duration = Duration::from_secs(120);

/// What there is on the machine that a run adds to.
#[derive(Debug, PartialEq, Eq)]
struct Surroundings {
    mounts: BTreeSet<String>,
    interfaces: BTreeSet<String>,
    networks: BTreeSet<String>,
}

impl Surroundings {
    fn look() -> anyhow::Result<Self> {
        let lines = |text: String| text.lines().map(str::to_owned).collect();
        // Others come and go; ours are named after hosts and pods.
        let interfaces = run("ip", &["-oneline", "link"])?;
        let networks = run("ip", &["netns", "list"])?;
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let ours = |line: &&str| line.contains("skerry") || line.contains("/run/netns") || line.contains("containerd");
        Ok(Self {
            mounts: mounts.lines().filter(ours).map(str::to_owned).collect(),
            interfaces: lines(interfaces),
            networks: lines(networks),
        })
    }
}

/// Kills two runs of this program, one while it starts and one once it says that all is up, and looks whether anything is left.
pub fn none_after_kills(start: impl Fn() -> anyhow::Result<Command>) -> anyhow::Result<()> {
    // One of its own: in that of all, others come and go.
    let temporary = env::temp_dir().join(format!("skerry-leftovers-{}", std::process::id()));
    fs::create_dir(&temporary).with_context(|| format!("making {}", temporary.display()))?;
    let held = none_after(start, &temporary);
    let removed = fs::remove_dir_all(&temporary).with_context(|| format!("removing {}", temporary.display()));
    // What a run left there may be why it cannot be removed.
    held.and(removed)
}

fn none_after(start: impl Fn() -> anyhow::Result<Command>, temporary: &Path) -> anyhow::Result<()> {
    let before = Surroundings::look()?;
    let run = || Killed::start(start()?.env("TMPDIR", temporary));
    // What the first one leaves goes while the second one starts.
    let runs = [run()?.while_it_starts()?, run()?.once_it_is_up()?];
    for (group, told) in runs {
        until(PATIENCE, || {
            let left = processes_of(&group)?;
            Ok((left.is_empty() && cgroups_of(&group)?.is_empty()).then_some(()))
        })
        .with_context(|| format!("{told}, left: {:?} and {:?}", processes_of(&group), cgroups_of(&group)))?;
    }
    let after = Surroundings::look()?;
    ensure!(after == before, "before: {before:#?}\nafter: {after:#?}");
    let files: Vec<_> = fs::read_dir(temporary)?.collect::<Result<_, _>>()?;
    ensure!(files.is_empty(), "files are left: {files:?}");
    Ok(())
}

/// A run that will be killed: its process, and its cgroup.
struct Killed {
    child: Child,
    group: String,
}

impl Killed {
    fn start(run: &mut Command) -> anyhow::Result<Self> {
        let child = run.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let group = enclosure::group_of(child.id());
        Ok(Self { child, group })
    }

    /// When the hosts are joined, and etcd and the API server have begun to start.
    fn while_it_starts(mut self) -> anyhow::Result<(String, &'static str)> {
        let begun = until(START, || {
            let there = processes_of(&self.group)?;
            let of_kubernetes = there.iter().filter(|process| process.ends_with(" kubernetes"));
            Ok((of_kubernetes.count() > 1).then_some(()))
        });
        self.kill()?;
        begun.context("waiting for the start of an API server")?;
        Ok((self.group, "killed while it started"))
    }

    fn once_it_is_up(mut self) -> anyhow::Result<(String, &'static str)> {
        let up = wait_until_up(&mut self.child);
        let there = processes_of(&self.group);
        self.kill()?;
        up?;
        let there = there?;
        ensure!(there.len() > 10, "hardly anything ran: {there:?}");
        Ok((self.group, "killed once it was up"))
    }

    /// Not a word of farewell: nobody of its own is left to clean up.
    fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

fn wait_until_up(child: &mut Child) -> anyhow::Result<()> {
    let told = child.stdout.take().context("what it tells is piped")?;
    for line in BufReader::new(told).lines() {
        if line? == UP {
            return Ok(());
        }
    }
    anyhow::bail!("it ended before all was up")
}

/// What it says when all is up.
pub const UP: &str = "all is up";

/// The processes in this cgroup: an enclosure's, with all namespaces in it.
fn processes_of(group: &str) -> anyhow::Result<Vec<String>> {
    let inside = |process: &Path| {
        let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        groups.lines().any(|line| line.split('/').any(|part| part == group))
    };
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let process = entry?.path();
        if inside(&process) {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            found.push(format!("{} {}", process.display(), name.trim()));
        }
    }
    Ok(found)
}

fn cgroups_of(group: &str) -> anyhow::Result<Vec<String>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mounted = mounts.lines().filter_map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        match words.as_slice() {
            [_, mounted, type_, ..] if type_.starts_with("cgroup") => Some(Path::new(*mounted).join(group)),
            _ => None,
        }
    });
    let left = mounted.filter(|folder| folder.exists());
    Ok(left.map(|folder| folder.display().to_string()).collect())
}
