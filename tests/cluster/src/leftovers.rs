//! What a run that was killed might leave behind, seen from outside.

use std::{
    collections::BTreeSet,
    env, fs,
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

/// Kills `start`, a run of this program, once it says that all is up, and looks whether anything is left.
pub fn none_after_a_kill(mut start: Command) -> anyhow::Result<()> {
    // One of its own: in that of all, others come and go.
    let temporary = env::temp_dir().join(format!("skerry-leftovers-{}", std::process::id()));
    fs::create_dir(&temporary).with_context(|| format!("making {}", temporary.display()))?;
    let held = none_after(start.env("TMPDIR", &temporary), &temporary);
    fs::remove_dir_all(&temporary)?;
    held
}

fn none_after(start: &mut Command, temporary: &Path) -> anyhow::Result<()> {
    let before = Surroundings::look()?;
    let mut child = start.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let group = enclosure::group_of(child.id());
    let up = wait_until_up(&mut child);
    let there = processes_of(&group)?;
    // Not a word of farewell: nobody of its own is left to clean up.
    child.kill()?;
    child.wait()?;
    up?;
    ensure!(there.len() > 10, "hardly anything ran: {there:?}");
    until(PATIENCE, || {
        let left = processes_of(&group)?;
        Ok((left.is_empty() && cgroups_of(&group)?.is_empty()).then_some(()))
    })
    .with_context(|| format!("left: {:?} and {:?}", processes_of(&group), cgroups_of(&group)))?;
    let after = Surroundings::look()?;
    ensure!(after == before, "before: {before:#?}\nafter: {after:#?}");
    let files: Vec<_> = fs::read_dir(temporary)?.collect::<Result<_, _>>()?;
    ensure!(files.is_empty(), "files are left: {files:?}");
    Ok(())
}

fn wait_until_up(child: &mut Child) -> anyhow::Result<()> {
    use std::io::{BufRead as _, BufReader};
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
        groups.lines().any(|line| line.contains(group))
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
