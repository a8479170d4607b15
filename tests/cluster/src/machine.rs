//! What makes a host a machine of its own: its processes, which all end when its power goes; its mounts, which go with
//! them; its disk, which stays.
//!
//! ```text
//! harness ── supply (in the host's network) ── init (process 1 of the host) ── whatever is started on the host
//! ```
//!
//! Decides nothing about what runs on a host.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::{prctl, signal::Signal, wait::waitpid},
    unistd::{chdir, pivot_root},
};

use crate::{enclosure::FOLDER, network::Host, process::until, site::command};

/// The roles in which the program runs itself again; each is its first argument.
pub const ROLES: [&str; 2] = [SUPPLY, INIT];
const SUPPLY: &str = "machine-supply";
const INIT: &str = "machine-init";

/// What all hosts have in common, as machines have that are set up alike. The rest is a host's own.
const COMMON: [&str; 10] = [
    "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "sys", "usr",
];

/// Folders on the disk, and where the host has them.
const ON_DISK: [(&str, &str); 3] = [("lib", "var/lib"), ("log", "var/log"), ("data", "data")];

/// Where a root is put together before it becomes the root.
const NEW_ROOT: &str = "/mnt";

/// How long processes may take to be gone once the power is.
const PATIENCE: Duration = Duration::from_secs(30);

const NOTHING: Option<&str> = None;

/// A machine: off at first.
pub struct Machine {
    host: Host,
    disk: PathBuf,
    power: Option<Power>,
}

struct Power {
    supply: Child,
    /// The process id of its process 1, as the harness sees it.
    init: u32,
}

impl Machine {
    /// With its disk in `disk`.
    pub fn new(host: Host, disk: PathBuf) -> Self {
        Self {
            host,
            disk,
            power: None,
        }
    }

    /// Switches it on.
    pub fn boot(&mut self) -> anyhow::Result<()> {
        for (folder, _) in ON_DISK {
            fs::create_dir_all(self.disk.join(folder))?;
        }
        let mut run = command(self.host.name, &env::current_exe()?);
        run.arg(SUPPLY).arg(&self.disk);
        let mut supply = run.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let told = supply.stdout.take().context("what it tells is piped")?;
        let mut line = String::new();
        BufReader::new(told).read_line(&mut line)?;
        let init = line.trim().parse();
        let init = init.with_context(|| format!("{} cannot be switched on", self.host.name))?;
        self.power = Some(Power { supply, init });
        Ok(())
    }

    /// Pulls the plug, that of the network first: nobody hears a word of it.
    pub fn power_off(&mut self) -> anyhow::Result<()> {
        let Some(mut power) = self.power.take() else {
            return Ok(());
        };
        self.host.cut()?;
        power.supply.kill()?;
        power.supply.wait()?;
        let process = PathBuf::from(format!("/proc/{}", power.init));
        until(PATIENCE, || Ok((!process.exists()).then_some(()))).context("waiting until all processes are gone")?;
        Ok(())
    }

    /// Its process 1, as the harness sees it.
    pub fn init(&self) -> anyhow::Result<u32> {
        let Some(power) = &self.power else {
            bail!("{} is off", self.host.name);
        };
        Ok(power.init)
    }

    /// A command that runs on the machine, and ends with the process that is started by it.
    pub fn command(&self, program: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.init()?.to_string(), "--mount", "--pid", "--net", "--"])
            .args(["setpriv", "--pdeathsig", "KILL", "--"])
            .arg(program);
        Ok(command)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(power) = &mut self.power {
            // If it is gone already, all the better.
            let _ = power.supply.kill();
            let _ = power.supply.wait();
        }
    }
}

/// Plays one of [`ROLES`].
pub fn play(role: &str, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let [disk] = arguments else {
        bail!("a machine has a disk");
    };
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    match role {
        SUPPLY => supply(Path::new(disk)),
        INIT => init(Path::new(disk)),
        other => bail!("{other} is no role"),
    }
}

/// Starts process 1, tells its number once it is up, and lives as long.
fn supply(disk: &Path) -> anyhow::Result<ExitCode> {
    unshare(CloneFlags::CLONE_NEWPID).context("a namespace for processes")?;
    let mut init = Command::new(env::current_exe()?);
    let mut init = init.arg(INIT).arg(disk).stdout(Stdio::piped()).spawn()?;
    let told = init.stdout.take().context("what it tells is piped")?;
    let mut line = String::new();
    BufReader::new(told).read_line(&mut line)?;
    if !line.is_empty() {
        println!("{}", init.id());
        std::io::stdout().flush()?;
    }
    init.wait()?;
    Ok(ExitCode::FAILURE)
}

fn init(disk: &Path) -> anyhow::Result<ExitCode> {
    unshare(CloneFlags::CLONE_NEWNS).context("a namespace for mounts")?;
    furnish(disk)?;
    println!("up");
    std::io::stdout().flush()?;
    // Process 1 inherits every orphan; and one child that never ends lets it wait for them.
    let _forever = Command::new("sleep").arg("infinity").spawn()?;
    loop {
        waitpid(None, None)?;
    }
}

/// A root of its own: the programs and settings of the machine that we are on, the disk, and else nothing.
fn furnish(disk: &Path) -> anyhow::Result<()> {
    // What it mounts, and what is mounted on it, is nobody else's business.
    mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING)?;
    let root = Path::new(NEW_ROOT);
    in_memory(root)?;
    for name in COMMON {
        let common = Path::new("/").join(name);
        match fs::read_link(&common) {
            Ok(target) => symlink(target, root.join(name))?,
            Err(_) if common.is_dir() => bind(&common, &root.join(name))?,
            Err(_) => {}
        }
    }
    for (folder, at) in ON_DISK {
        bind(&disk.join(folder), &root.join(at))?;
    }
    for folder in ["mnt", "opt", "root", "tmp", "var/tmp", "run", "proc"] {
        fs::create_dir_all(root.join(folder))?;
    }
    for folder in ["tmp", "var/tmp"] {
        fs::set_permissions(root.join(folder), fs::Permissions::from_mode(0o1777))?;
    }
    in_memory(&root.join("run"))?;
    symlink("/run", root.join("var/run"))?;
    // The harness and what runs on the host meet here: sockets, logs, keys.
    bind(Path::new(FOLDER), &root.join(FOLDER.trim_start_matches('/')))?;
    mount(
        Some("proc"),
        &root.join("proc"),
        Some("proc"),
        MsFlags::empty(),
        NOTHING,
    )?;
    pivot_root(root, &root.join("mnt"))?;
    chdir("/")?;
    umount2("/mnt", MntFlags::MNT_DETACH)?;
    // Pods may ask to see what is mounted later.
    mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_SHARED, NOTHING)?;
    Ok(())
}

fn in_memory(at: &Path) -> anyhow::Result<()> {
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), NOTHING)
        .with_context(|| format!("memory at {}", at.display()))
}

fn bind(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    mount(Some(from), to, NOTHING, MsFlags::MS_BIND | MsFlags::MS_REC, NOTHING)
        .with_context(|| format!("putting {} at {}", from.display(), to.display()))
}
