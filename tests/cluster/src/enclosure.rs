//! The enclosure in which a cluster lives: namespaces for processes, mounts, network and cgroups, and memory in place of a
//! disk. Whatever ends the program that made it, the kernel ends all that is inside, and nothing is left behind.
//!
//! ```text
//! outside ──pipe──▶ janitor          removes the cgroups, which outlive their processes
//!    └─ first (process 1 inside)     sets the scene, takes in orphans
//!         └─ within                  what is to be done inside
//! ```

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        signal::Signal,
        wait::{WaitStatus, waitpid},
    },
    unistd::Pid,
};

use crate::{
    process::{run, until},
    processors::Processors,
};

/// What processes inside may write to: gone with the enclosure.
const IN_MEMORY: [&str; 3] = ["/run", "/var/log", "/var/lib"];

/// Where the enclosure's cluster keeps its files. Hosts see it, too.
pub const FOLDER: &str = "/run/skerry";

/// Where all inside keep what is for a while: outside, a process that is killed would leave it behind.
const FOR_A_WHILE: &str = "/run/skerry/tmp";

/// For the Go programs inside: most are kubectl and Helm, which end before they have filled this memory, and would clean what
/// they read at the start over and over. What goes on has settings of its own, or comes to no more.
const UNCLEANED: [(&str, &str); 2] = [("GOGC", "off"), ("GOMEMLIMIT", "400MiB")];

/// The roles in which the program runs itself again; each is its first argument.
pub const ROLES: [&str; 2] = [FIRST, JANITOR];
const FIRST: &str = "enclosure-first";
const JANITOR: &str = "enclosure-janitor";

/// The cgroup of the enclosure that this process makes.
pub fn group_of(process: u32) -> String {
    format!("skerry-tests-{process}")
}

/// What stands for the cgroup where there is none.
const NO_GROUP: &str = "-";

/// Runs this program again with `arguments`, enclosed, on these processors, with a cgroup of its own or without, and tells how it
/// ended. To be called before any thread is started: namespaces are a matter of threads.
pub fn enclose(arguments: &[OsString], processors: &Processors, with_cgroup: bool) -> anyhow::Result<ExitStatus> {
    let group = if with_cgroup {
        group_of(std::process::id())
    } else {
        NO_GROUP.to_owned()
    };
    let program = env::current_exe()?;
    // In a process group of its own: an interrupt at the terminal must not reach it.
    let mut janitor = Command::new(&program)
        .args([JANITOR, &group])
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()
        .context("starting the janitor")?;
    unshare(CloneFlags::CLONE_NEWPID).context("a namespace for processes")?;
    let mut first = processors
        .command(&program)
        .args([FIRST, &group])
        .args(arguments)
        .spawn()
        .context("starting the enclosure")?;
    let status = first.wait()?;
    drop(janitor.stdin.take());
    janitor.wait()?;
    Ok(status)
}

/// Plays one of [`ROLES`].
pub fn play(role: &str, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let (group, arguments) = arguments.split_first().context("a role has a group")?;
    let group = group.to_str().context("a group's name is text")?;
    match role {
        FIRST => first(group, arguments),
        JANITOR => janitor(group),
        other => bail!("{other} is no role"),
    }
}

fn first(group: &str, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let hierarchies = if group == NO_GROUP { vec![] } else { hierarchies()? };
    for hierarchy in &hierarchies {
        let folder = hierarchy.mounted.join(group);
        fs::create_dir(&folder).with_context(|| format!("making the cgroup {}", folder.display()))?;
        if hierarchy.options.contains("cpuset") {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                fs::write(folder.join(file), fs::read(hierarchy.mounted.join(file))?)?;
            }
        }
        fs::write(folder.join("cgroup.procs"), std::process::id().to_string())
            .or_else(|_| fs::write(folder.join("cgroup.procs"), "0"))?;
    }
    let namespaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWCGROUP;
    unshare(namespaces).context("namespaces for mounts, network and cgroups")?;
    furnish(&hierarchies)?;
    let mut child = Command::new(env::current_exe()?);
    let child = child
        .args(arguments)
        .env("TMPDIR", FOR_A_WHILE)
        .envs(UNCLEANED)
        .spawn()?;
    let worker = Pid::from_raw(i32::try_from(child.id())?);
    // Process 1 inherits every orphan.
    loop {
        match waitpid(None, None)? {
            WaitStatus::Exited(pid, code) if pid == worker => {
                return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
            }
            WaitStatus::Signaled(pid, signal, _) if pid == worker => bail!("ended by {signal}"),
            _ => {}
        }
    }
}

/// Mounts of our own, as the namespaces ask.
fn furnish(hierarchies: &[Hierarchy]) -> anyhow::Result<()> {
    const NOTHING: Option<&str> = None;
    // Nothing gets out; but pods may ask to see what is mounted later.
    for how in [MsFlags::MS_PRIVATE, MsFlags::MS_SHARED] {
        mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | how, NOTHING)?;
    }
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), NOTHING)?;
    for hierarchy in hierarchies {
        umount2(&hierarchy.mounted, MntFlags::MNT_DETACH)?;
        let type_ = hierarchy.type_.as_str();
        let options = Some(hierarchy.options.as_str()).filter(|options| !options.is_empty());
        mount(Some(type_), &hierarchy.mounted, Some(type_), MsFlags::empty(), options)
            .with_context(|| format!("mounting {}", hierarchy.mounted.display()))?;
    }
    for folder in IN_MEMORY {
        mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), NOTHING)?;
    }
    fs::create_dir_all(FOR_A_WHILE)?;
    run("ip", &["link", "set", "lo", "up"]).map(drop)
}

/// A mounted hierarchy of cgroups: one of the first version's controllers, or the second version.
struct Hierarchy {
    mounted: PathBuf,
    type_: String,
    /// The controllers.
    options: String,
}

fn hierarchies() -> anyhow::Result<Vec<Hierarchy>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let read = |line: &str| {
        let mut words = line.split(' ');
        let (_, mounted, type_, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let is_controller = |option: &&str| !["rw", "ro", "nosuid", "nodev", "noexec", "relatime"].contains(option);
        let options: Vec<_> = match type_ {
            "cgroup" => options.split(',').filter(is_controller).collect(),
            "cgroup2" => vec![],
            _ => return None,
        };
        Some(Hierarchy {
            mounted: mounted.into(),
            type_: type_.to_owned(),
            options: options.join(","),
        })
    };
    Ok(mounts.lines().filter_map(read).collect())
}

/// Makes a cgroup in each hierarchy, and removes it.
pub fn try_cgroup() -> anyhow::Result<()> {
    let hierarchies = hierarchies()?;
    ensure!(!hierarchies.is_empty(), "no hierarchy is mounted");
    for hierarchy in hierarchies {
        let folder = hierarchy.mounted.join(format!("skerry-probe-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        fs::remove_dir(&folder)?;
    }
    Ok(())
}

/// Waits until whoever started it is gone, and removes the cgroups.
fn janitor(group: &str) -> anyhow::Result<ExitCode> {
    // Ends when the other end of the pipe is closed, by whatever end of its process.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    for hierarchy in hierarchies()? {
        let folder = hierarchy.mounted.join(group);
        // Its last processes are on their way out, which takes its time where all processors are busy.
        until(Duration::from_secs(300), || Ok(remove(&folder).ok()))
            .with_context(|| format!("removing {}", folder.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes a cgroup and those in it.
fn remove(folder: &Path) -> std::io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

/// The exit code of a process that ended so.
pub fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
