//! What the machine lets us do, found out by doing the least of it.
//!
//! Decides what can run here at all, before anything of ours runs: what fails later is a failure, never a machine's
//! refusal.

use std::{
    env, fs,
    path::Path,
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::Context;
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

use serde_json::{Value, json};

use crate::{
    enclosure,
    process::{Process, install, output, run, until},
};

/// How long containerd may take to listen.
const PATIENCE: Duration = Duration::from_secs(30);

/// The role in which the program tries namespaces; its first argument.
pub const PROBE: &str = "abilities-probe";

/// What can run on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Abilities {
    /// Nothing, and why.
    Nothing(String),
    /// Control planes without nodes, and why.
    ControlPlanes(String),
    /// Hosts with nodes, as far as can be told without a container.
    Hosts,
}

impl Abilities {
    /// Finds out.
    pub fn find() -> Self {
        if let Err(error) = output(Command::new("go").arg("version")) {
            return Self::Nothing(format!("Kubernetes is built with Go: {error:#}"));
        }
        let probe = || output(Command::new(env::current_exe()?).arg(PROBE));
        if let Err(error) = probe() {
            return Self::Nothing(format!("there are no namespaces to be had (are you root?): {error:#}"));
        }
        match enclosure::try_cgroup() {
            Err(error) => Self::ControlPlanes(format!("there are no cgroups to be had: {error:#}")),
            Ok(()) => Self::Hosts,
        }
    }
}

/// Makes the namespaces of an enclosure, with memory and a network in them, and lets them go.
pub fn probe() -> anyhow::Result<ExitCode> {
    const NOTHING: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWPID).context("a namespace for processes")?;
    let namespaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWCGROUP;
    unshare(namespaces).context("namespaces for mounts, network and cgroups")?;
    mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING).context("mounts of one's own")?;
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), NOTHING).context("memory at /run")?;
    run("ip", &["link", "set", "lo", "up"])?;
    Ok(ExitCode::SUCCESS)
}

/// Why nothing can be taken here from a run, if that is so, and what is not tested then: it takes the namespaces that root has,
/// but not in every container.
pub fn unrefused() -> Option<String> {
    let tried = output(Command::new("unshare").args(["--mount", "--net", "true"]));
    tried.err().map(|error| {
        format!(
            "nothing can be taken from a run here (are you root?), so this was not tested: what it says of a machine that \
             refuses something: {error:#}"
        )
    })
}

/// Whether hosts can be joined and a container runs: tried with Debian's programs alone, inside an enclosure.
pub fn try_container(pause: &Path, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    for arguments in [
        "link add probe type bridge",
        "link add probe-a type veth peer name probe-b",
        "link del probe",
        "link del probe-a",
    ] {
        run("ip", &arguments.split(' ').collect::<Vec<_>>()).context("hosts cannot be joined")?;
    }
    try_containerd(folder).context("containerd does not start")?;
    let root = folder.join("rootfs");
    fs::create_dir_all(&root)?;
    install(pause, &root.join("pause"))?;
    let runc = |arguments: &[&str]| output(Command::new("runc").args(arguments).current_dir(folder));
    runc(&["spec"])?;
    let file = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file)?)?;
    if let Some(process) = config.get_mut("process").and_then(Value::as_object_mut) {
        process.insert("terminal".to_owned(), false.into());
        process.insert("args".to_owned(), json!(["/pause"]));
    }
    fs::write(&file, config.to_string())?;
    // Its output must not be held open by what goes on.
    let detached = output(Command::new("sh").current_dir(folder).args([
        "-ec",
        "runc run --detach skerry-probe </dev/null >probe.log 2>&1 || { cat probe.log >&2; exit 1; }",
    ]));
    detached.context("no container runs")?;
    runc(&["delete", "--force", "skerry-probe"]).map(drop)
}

fn try_containerd(folder: &Path) -> anyhow::Result<()> {
    let at = |name: &str| folder.join(name).display().to_string();
    let (config, socket) = (folder.join("containerd.toml"), at("containerd.sock"));
    let text = format!(
        "version = 2\nroot = \"{}\"\nstate = \"{}\"\n[grpc]\n  address = \"{socket}\"\n",
        at("root"),
        at("state"),
    );
    fs::write(&config, text)?;
    let mut start = Command::new("containerd");
    start.arg("-c").arg(&config);
    let mut process = Process::start("containerd", folder, start)?;
    until(PATIENCE, || {
        process.check()?;
        Ok(run("ctr", &["-a", &socket, "version"]).ok())
    })?;
    process.stop().map(drop)
}
