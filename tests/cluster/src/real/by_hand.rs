//! The local controller on a machine without the chart, as the page about installing says.
//!
//! The machine that we are on stands in for one, with settings and programs of its own. It has no systemd: the user, the
//! variables, the program and the folder are taken from the unit as systemd takes them. What systemd says of the unit is
//! tested beside it.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    os::unix::fs::{MetadataExt as _, symlink},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context, ensure};
use skerry_dist::Arch;

use super::{SEDNA, Tour, pages::INSTALLING};
use crate::process::{Process, output, until};

/// How long it may take to be up and connected.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where workers find it.
const PORT: u16 = 9100;
/// What its metrics say while it has a session with the manager.
const LINKED: &str = "skerry_localcontroller_link_live 1";

/// Publishes the Service for nodes at the port that the page names.
const PUBLISHED: &str = r#"{"spec": {"type": "NodePort", "ports": [{"port": 9000, "nodePort": 30900}]}}"#;

/// The commands of the page, in their order.
const COMMANDS: [&str; 4] = [
    "install -m 0755 skerry-localcontroller",
    "useradd",
    "install -D -m 0644",
    "install -d /etc/skerry",
];

/// What systemd does with the unit, as far as it says who runs what, where and with which variables.
const START: &str = r#"
unit=/etc/systemd/system/skerry-localcontroller.service
of() { sed -n "s/^$1=//p" "$unit"; }
user=$(of User)
install -d -o "$user" -g "$(id -g "$user")" -m "$(of StateDirectoryMode)" "/var/lib/$(of StateDirectory)"
set -a
eval "$(of Environment | sed 's/%H/by-hand/g')"
. "$(of EnvironmentFile)"
umask "$(of UMask)"
exec setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups --inh-caps=-all --bounding-set=-all --no-new-privs \
    "$(of ExecStart)"
"#;

pub fn installed(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let program = format!("target/images/{}/bin/skerry-localcontroller", Arch::HERE);
    symlink(
        skerry_dist::root().join(program),
        tour.work.join("skerry-localcontroller"),
    )?;
    let service = ["service", "skerry-globalmanager", "--namespace", SEDNA];
    tour.kubectl(&[&["patch"], &service[..], &["--patch", PUBLISHED]].concat())?;
    let others = tour.connected()?;
    let machine = Machine::start(&tour.work.join("by-hand"))?;
    for command in COMMANDS {
        tour.follow_by(INSTALLING, command, |tour, line| {
            output(&mut machine.shell(&format!("cd {} && {line}", tour.work.display())))
        })?;
    }
    let mut running = Process::start("by-hand", &tour.work, machine.shell(START))?;
    until(PATIENCE, || {
        running.check()?;
        let metrics = answered("/metrics").unwrap_or_default();
        Ok(metrics.lines().any(|line| line == LINKED).then_some(()))
    })
    .with_context(|| format!("waiting for its session, it says:\n{}", running.last_words()))?;
    // To the manager, too.
    tour.wait_for_sessions(PATIENCE, others + 1)?;
    ensure!(answered("/healthz").is_some(), "it is up and does not say so");
    let store = fs::metadata("/var/lib/skerry/localcontroller.db").context("it has a store")?;
    ensure!(store.uid() != 0, "its store is root's");
    let ended = running.stop()?;
    ensure!(ended.success(), "{ended}: {}", running.last_words());
    Ok(())
}

/// What it answers, if that is good.
fn answered(path: &str) -> Option<String> {
    let mut link = TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).ok()?;
    write!(link, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    link.read_to_string(&mut answer).ok()?;
    answer.lines().next()?.contains(" 200 ").then_some(answer)
}

/// Mounts of its own: what is written to `/etc` and to `/usr/local/bin` there is written nowhere else.
struct Machine(Process);

impl Machine {
    fn start(folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        output(Command::new("cp").args(["-a", "/etc"]).arg(folder))?;
        let up = folder.join("up");
        let mut start = Command::new("unshare");
        start
            .args(["--mount", "--propagation", "private", "sh", "-ec"])
            .arg(format!(
                "mount --bind {}/etc /etc; mount -t tmpfs tmpfs /usr/local/bin; touch {}; exec sleep infinity",
                folder.display(),
                up.display()
            ));
        let mut process = Process::start("machine", folder, start)?;
        until(PATIENCE, || {
            process.check()?;
            Ok(up.exists().then_some(()))
        })?;
        Ok(Self(process))
    }

    /// A command on it, by root.
    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &self.0.pid().to_string(),
            "--mount",
            "--",
            "sh",
            "-ec",
            line,
        ]);
        command
    }
}
