//! The tier of the two hosts: what it is built from, and how it is run.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::PoisonError,
    thread,
    time::Instant,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use skerry_cluster::{
    abilities,
    artifacts::Workshop,
    enclosure::FOLDER,
    hosts::{Hosts, Programs},
    leftovers,
    process::{Process, output},
    programs::command_line,
    real::{self, Shown, Tour},
    results::{self, Run, Sources},
    rights::Right,
    table,
};

use crate::planes::start_planes;

/// To start all that a run has in an enclosure and to do nothing with it, as the first argument.
pub const LINGER: &str = "linger";
/// The same, inside.
pub const LINGERING: &str = "lingering";

/// What is shown before the tour.
const LEAVES_NOTHING: &str = "a run that is killed leaves nothing behind";

/// All that is shown, in order.
pub fn scenarios() -> Vec<String> {
    let names = std::iter::once(LEAVES_NOTHING).chain(real::scenarios());
    names.map(str::to_owned).collect()
}

/// What is built outside, for the hosts inside.
#[derive(Serialize, Deserialize)]
pub struct Equipment {
    kubernetes: PathBuf,
    coredns: PathBuf,
    pause: PathBuf,
    helm: PathBuf,
    /// The command line.
    skerry: PathBuf,
    images: Vec<PathBuf>,
    /// What was shown from outside.
    shown: Vec<Shown>,
}

impl Equipment {
    /// Builds it.
    pub fn gather(workshop: &Workshop) -> anyhow::Result<Self> {
        let told =
            output(skerry_dist::cargo().args(["run", "--quiet", "--locked", "--bin", "skerry-dist", "--", "images"]))?;
        // Each line names an image and its file.
        let files = told.lines().filter_map(|line| line.split_whitespace().nth(1));
        let root = skerry_dist::root();
        Ok(Self {
            kubernetes: workshop.kubernetes()?,
            coredns: workshop.coredns()?,
            pause: workshop.pause()?,
            helm: workshop.helm()?,
            skerry: command_line()?,
            images: files.map(|file| root.join(file)).collect(),
            shown: vec![],
        })
    }

    /// A run with hosts that is killed leaves nothing behind. Shown before anything else: later this process has made
    /// the namespace for processes of its own run.
    pub fn leave_nothing(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let run = || {
            let mut run = Command::new(env::current_exe()?);
            run.arg(LINGER).arg(serde_json::to_string(self)?);
            Ok(run)
        };
        leftovers::none_after_kills(run).context(LEAVES_NOTHING)?;
        let shown = Shown::held(LEAVES_NOTHING, begun.elapsed());
        println!("{shown}");
        self.shown.push(shown);
        Ok(())
    }

    /// Whether the machine lets a container run.
    pub fn try_container(&self) -> anyhow::Result<()> {
        abilities::try_container(&self.pause, &Path::new(FOLDER).join("probe"))
    }

    /// Starts the hosts and takes the tour of them; whether all of it held, and of which rights the manager made use.
    pub fn tour(&self, sources: &Sources) -> anyhow::Result<(bool, BTreeSet<Right>)> {
        let begun = Instant::now();
        let mut hosts = self.start()?;
        println!("two hosts ready in {} s", begun.elapsed().as_secs());
        let begun = Instant::now();
        let root = skerry_dist::root();
        let programs = [("helm", self.helm.as_path()), ("skerry", &self.skerry)];
        let mut tour = Tour::new(&mut hosts, &programs, &root, &folder())?;
        let ended = tour.run();
        println!("tour: {} s", begun.elapsed().as_secs());
        let shown = self
            .shown
            .iter()
            .chain(tour.shown())
            .map(|Shown { name, ok, .. }| results::Shown {
                name: name.clone(),
                ok: *ok,
            });
        let kept = Run {
            program: table::HOSTS,
            place: "1.34",
            whole: true,
            sources,
        };
        kept.keep(shown.collect())?;
        if let Err(error) = &ended {
            println!("error: {error:#}");
        }
        drop(tour);
        Ok((ended.is_ok(), hosts.plane.rights_used()?))
    }

    fn start(&self) -> anyhow::Result<Hosts> {
        let programs = Programs {
            kubernetes: self.kubernetes.clone(),
            coredns: self.coredns.clone(),
            pause: self.pause.clone(),
        };
        fs::create_dir_all(folder())?;
        Hosts::start(&programs, &folder(), &self.images)
    }
}

/// A user of a scenario: a folder among what is for a while, with an administrator's kubeconfig, and a `kubectl` that goes on.
fn typing(kubernetes: &Path, admin: &Path) -> anyhow::Result<Process> {
    let folder = env::temp_dir().join("user");
    fs::create_dir(&folder)?;
    let kubeconfig = folder.join("kubeconfig");
    fs::copy(admin, &kubeconfig)?;
    let mut watch = Command::new(kubernetes);
    watch.args(["kubectl", "get", "namespaces", "--watch"]);
    watch.env("KUBECONFIG", &kubeconfig).env("HOME", &folder);
    Process::start("kubectl", &folder, watch)
}

/// Inside, with all that a run has: hosts that are up, a control plane and its user; for somebody who kills.
pub fn linger(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let equipment = arguments.first().and_then(|told| told.to_str());
    let equipment: Equipment = serde_json::from_str(equipment.context("nothing was built")?)?;
    let _hosts = equipment.start()?;
    let planes = start_planes(&equipment.kubernetes, 1)?;
    let plane = planes.first().context("one was started")?;
    let admin = plane.lock().unwrap_or_else(PoisonError::into_inner).access().admin;
    let _user = typing(&equipment.kubernetes, &admin)?;
    println!("{}", leftovers::UP);
    std::io::stdout().flush()?;
    loop {
        thread::park();
    }
}

fn folder() -> PathBuf {
    Path::new(FOLDER).join("hosts")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_of_scenarios_names_each_of_these() {
        skerry_cluster::table::names_all(skerry_cluster::table::HOSTS, &super::scenarios()).unwrap();
    }
}
