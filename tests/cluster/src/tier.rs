//! The tier of the two hosts: what it is built from, and how it is run.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    env,
    ffi::OsString,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{PoisonError, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use nix::sys::{prctl, signal::Signal};
use serde::{Deserialize, Serialize};
use serde_json::json;
use skerry_cluster::{
    abilities,
    artifacts::{Kubernetes, Workshop},
    control_plane::ControlPlane,
    enclosure::FOLDER,
    hosts::{Hosts, Programs},
    leftovers,
    network::{CLOUD, EDGE},
    node::PAUSE,
    process::{Process, output, until_it_works},
    processors::Processors,
    programs::command_line,
    real::{self, Shown, Tour},
    results::{self, Run, Sources},
    rights::Right,
    sections::HOSTS,
};

use crate::{
    beside::{self, Another, Ended},
    enclosed,
    slots::Slot,
};

/// How long the account of pods may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// To start all that a run has in an enclosure and to do nothing with it, as the first argument.
pub const LINGER: &str = "linger";
/// The same, inside.
pub const LINGERING: &str = "lingering";

/// What is shown beside the tour.
const LEAVES_NOTHING: &str = "a run that is killed leaves nothing behind";

/// All that is shown, in order.
pub fn scenarios() -> Vec<String> {
    let names = std::iter::once(LEAVES_NOTHING).chain(real::scenarios());
    names.map(str::to_owned).collect()
}

/// What is built outside, for the hosts inside.
#[derive(Serialize, Deserialize)]
pub struct Equipment {
    kubernetes: Kubernetes,
    coredns: PathBuf,
    pause: PathBuf,
    helm: PathBuf,
    /// The definition of `ServiceMonitors`.
    service_monitors: PathBuf,
    /// The command line.
    skerry: PathBuf,
    images: Vec<PathBuf>,
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
            service_monitors: workshop.service_monitors()?,
            skerry: command_line()?,
            images: files.map(|file| root.join(file)).collect(),
        })
    }

    /// As it was told on a command line.
    pub fn given(arguments: &[OsString]) -> anyhow::Result<Self> {
        let told = arguments.first().and_then(|told| told.to_str());
        Ok(serde_json::from_str(told.context("nothing was built")?)?)
    }

    /// A run with hosts that is killed leaves nothing behind: shown by runs that are killed.
    pub fn leave_nothing(&self) -> Shown {
        let begun = Instant::now();
        let run = || {
            let mut run = Command::new(env::current_exe()?);
            run.arg(LINGER).arg(serde_json::to_string(self)?);
            Ok(run)
        };
        let left = leftovers::none_after_kills(run);
        if let Err(error) = &left {
            println!("error: {LEAVES_NOTHING}: {error:#}");
        }
        Shown {
            ok: left.is_ok(),
            ..Shown::held(LEAVES_NOTHING, begun.elapsed())
        }
    }

    /// Whether the machine lets a container run.
    pub fn try_container(&self) -> anyhow::Result<()> {
        abilities::try_container(&self.pause, &Path::new(FOLDER).join("probe"))
    }

    /// Starts the hosts and takes the tour of them, while another cluster changes hands, which leaves the `crowd`; whether
    /// all of it held, and of which rights the manager made use.
    pub fn tour(&self, sources: &Sources, crowd: Sender<Infallible>) -> anyhow::Result<(bool, BTreeSet<Right>)> {
        let another = Another::begin(self, crowd)?;
        let begun = Instant::now();
        let mut hosts = self.start()?;
        println!("two hosts ready in {} s", begun.elapsed().as_secs());
        let begun = Instant::now();
        let mut tour = self.tour_of(&mut hosts)?;
        let ran = tour.run();
        println!("tour: {} s", begun.elapsed().as_secs());
        let Ended {
            told,
            held,
            rights: mut used,
        } = another.end()?;
        let ended = ran.and_then(|()| tour.end(told));
        let mut shown = tour.told().shown;
        let nothing_left = beside::leaves_nothing()?;
        let held = held && nothing_left.ok;
        shown.push(nothing_left);
        let shown = shown
            .into_iter()
            .map(|Shown { name, ok, .. }| results::Shown { name, ok });
        let kept = Run {
            program: HOSTS,
            place: "1.34",
            whole: true,
            sources,
        };
        kept.keep(shown.collect())?;
        if let Err(error) = &ended {
            println!("error: {error:#}");
        }
        drop(tour);
        used.extend(hosts.plane.rights_used()?);
        Ok((held && ended.is_ok(), used))
    }

    pub fn tour_of<'a>(&self, hosts: &'a mut Hosts) -> anyhow::Result<Tour<'a>> {
        let programs = [
            ("helm", self.helm.as_path()),
            ("kubectl", &self.kubernetes.kubectl),
            ("skerry", &self.skerry),
        ];
        let root = skerry_dist::root();
        Tour::new(hosts, &programs, &self.service_monitors, &root, &folder())
    }

    /// Hosts that are up, with the images.
    pub fn start(&self) -> anyhow::Result<Hosts> {
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
fn typing(kubectl: &Path, admin: &Path) -> anyhow::Result<Process> {
    let folder = env::temp_dir().join("user");
    fs::create_dir(&folder)?;
    let kubeconfig = folder.join("kubeconfig");
    fs::copy(admin, &kubeconfig)?;
    let mut watch = Command::new(kubectl);
    watch.args(["get", "namespaces", "--watch"]);
    watch.env("KUBECONFIG", &kubeconfig).env("HOME", &folder);
    Process::start("kubectl", &folder, watch)
}

/// An enclosure with all that a run has.
pub fn linger_enclosed(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    // Also when whoever wants to kill it is killed.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    enclosed(&[&[LINGERING.into()], arguments].concat(), &Processors::All, true)
}

/// A pod on each node, which has a cgroup, mounts and a network of its own.
fn run_pods(plane: &ControlPlane) -> anyhow::Result<()> {
    let file = env::temp_dir().join("pods.json");
    let pod = |node: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("on-{node}")},
            "spec": {"nodeName": node, "containers": [{"name": "pause", "image": PAUSE, "imagePullPolicy": "Never"}]},
        })
    };
    let pods = json!({"apiVersion": "v1", "kind": "List", "items": [pod(CLOUD.name), pod(EDGE.name)]});
    fs::write(&file, pods.to_string())?;
    // The account of pods comes soon after the namespace.
    until_it_works(PATIENCE, || {
        plane.kubectl(&["create", "--filename", &file.display().to_string()])
    })?;
    plane
        .kubectl(&["wait", "pods", "--all", "--for=condition=Ready", "--timeout=2m"])
        .map(drop)
}

/// Inside, with all that a run has: hosts that are up with pods on them, a control plane and its user; for somebody who kills.
pub fn linger(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let equipment = Equipment::given(arguments)?;
    let hosts = equipment.start()?;
    run_pods(&hosts.plane)?;
    let plane = Slot::of_scenarios(&equipment.kubernetes, 0).start()?;
    let admin = plane.lock().unwrap_or_else(PoisonError::into_inner).access().admin;
    let _user = typing(&equipment.kubernetes.kubectl, &admin)?;
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
        skerry_cluster::table::names_all(super::HOSTS, &super::scenarios()).unwrap();
    }
}
