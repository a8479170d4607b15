//! What goes on beside the tour of the hosts, each in a process of its own: another cluster, in an enclosure within that of the
//! run; and runs that are killed, outside of it.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    env,
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, ExitCode, Stdio},
    sync::mpsc::Sender,
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, anyhow};
use nix::sys::{prctl, signal::Signal};
use serde::{Deserialize, Serialize};
use skerry_cluster::{
    process::until,
    processors::Processors,
    real::{Shown, Told},
    rights::Right,
};

use crate::{enclosed, tier::Equipment};

/// To take the tour of another cluster, as the first argument.
pub const ANOTHER: &str = "another";
/// The same, inside.
const ANOTHER_INSIDE: &str = "another-inside";
/// To have runs killed, and to tell what they left.
pub const LEFTOVERS: &str = "leftovers";

/// The roles in which the program runs itself again; each is its first argument.
pub const ROLES: [&str; 3] = [ANOTHER, ANOTHER_INSIDE, LEFTOVERS];

/// How long the runs that are killed may take, most of which is over when the tour ends.
const PATIENCE: Duration = Duration::from_secs(300);

/// Plays one of [`ROLES`].
pub fn play(role: &str, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    if role == ANOTHER_INSIDE {
        return another(arguments);
    }
    // Whoever wants to know is gone: so is this.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if role == ANOTHER {
        return enclosed(&[&[ANOTHER_INSIDE.into()], arguments].concat(), &Processors::All, true);
    }
    let shown = Equipment::given(arguments)?.leave_nothing();
    println!("{shown}");
    fs::write(left(), serde_json::to_vec(&shown)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Where it is told what runs left that were killed: who asks is inside, and they are outside.
fn left() -> PathBuf {
    skerry_dist::root().join("target/cluster/leftovers.json")
}

/// Has runs of this equipment killed, on these processors; to be called outside, before anything else is made there.
pub fn kill_runs(equipment: &Equipment, processors: &Processors) -> anyhow::Result<Child> {
    let left = left();
    fs::create_dir_all(left.parent().context("it is in a folder")?)?;
    if left.exists() {
        fs::remove_file(&left)?;
    }
    let mut kill = processors.command(&env::current_exe()?);
    kill.arg(LEFTOVERS).arg(serde_json::to_string(equipment)?);
    Ok(kill.stdin(Stdio::null()).spawn()?)
}

/// What they left.
pub fn leaves_nothing() -> anyhow::Result<Shown> {
    let told = until(PATIENCE, || {
        let told = fs::read(left()).unwrap_or_default();
        // It may be half written.
        Ok(serde_json::from_slice(&told).ok())
    });
    told.context("whoever kills runs tells what they left")
}

/// Another cluster on two hosts of its own, in an enclosure within this one.
pub struct Another {
    process: Child,
    ended: JoinHandle<anyhow::Result<Ended>>,
}

/// How the tour of it ended.
#[derive(Serialize, Deserialize)]
pub struct Ended {
    pub told: Told,
    pub held: bool,
    pub rights: BTreeSet<Right>,
}

impl Another {
    /// What stands before the line that tells how it ended.
    const ENDED: &str = "another cluster: ";

    /// Starts it. It gives way: most of all where everything starts at once. At its end it leaves the `crowd`.
    pub fn begin(equipment: &Equipment, crowd: Sender<Infallible>) -> anyhow::Result<Self> {
        let mut run = Processors::Yielding.command(&env::current_exe()?);
        run.arg(ANOTHER).arg(serde_json::to_string(equipment)?);
        let mut process = run.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let said = process.stdout.take().context("its output is piped")?;
        let ended = thread::spawn(move || {
            let _crowd = crowd;
            let mut ended = None;
            for line in BufReader::new(said).lines() {
                let line = line?;
                match line.strip_prefix(Self::ENDED) {
                    Some(told) => ended = Some(serde_json::from_str(told)?),
                    None => println!("{line}"),
                }
            }
            ended.context("another cluster ended without a word")
        });
        Ok(Self { process, ended })
    }

    /// Waits for its end.
    pub fn end(mut self) -> anyhow::Result<Ended> {
        self.process.wait()?;
        let ended = self.ended.join();
        ended.map_err(|_| anyhow!("whoever listened to another cluster panicked"))?
    }
}

/// Inside, with hosts of its own: the tour of another cluster.
fn another(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let equipment = Equipment::given(arguments)?;
    let mut hosts = equipment.start()?;
    let mut tour = equipment.tour_of(&mut hosts)?;
    let ran = tour.run_in_another_cluster();
    let told = tour.told();
    drop(tour);
    if let Err(error) = &ran {
        println!("error: in another cluster: {error:#}");
    }
    let ended = Ended {
        told,
        held: ran.is_ok(),
        rights: hosts.plane.rights_used()?,
    };
    println!("{}{}", Another::ENDED, serde_json::to_string(&ended)?);
    Ok(ExitCode::SUCCESS)
}
