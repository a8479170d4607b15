//! What only real nodes can show: the chart installed, the examples' workers in containers, troubles of nodes, and a
//! cluster that changes hands.
//!
//! Two clusters go through them side by side, each in order: a later scenario finds what an earlier one has left. One meets
//! troubles; the other is upgraded, uninstalled, and changes hands.

mod by_hand;
mod chart;
mod declared;
mod definitions;
mod evictions;
mod examples;
mod joining;
mod kubernetes;
mod lifecycle;
mod migration;
mod pages;
mod storage;
mod trouble;

use std::{
    collections::BTreeSet,
    fmt, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

pub use self::chart::EVERYTHING;
use self::pages::Pages;
use crate::hosts::Hosts;

/// The namespace of the chart.
pub const SEDNA: &str = "sedna";

/// A scenario: a sentence, and what shows that it holds.
type Scenario = (&'static str, fn(&mut Tour<'_>) -> anyhow::Result<()>);

const SCENARIOS: &[Scenario] = &[
    ("the chart is installed, and its pods are ready", chart::install),
    (
        "a federated job trains in containers on both nodes to its end",
        examples::train,
    ),
    ("a joint inference service infers across both nodes", examples::infer),
    (
        "of two managers only one can be evicted until there are two again",
        evictions::one_manager_at_a_time,
    ),
    (
        "mutual TLS is switched on, the edge joins by one command, and no worker is restarted",
        joining::join,
    ),
    (
        "a federated job trains to its end over mutual TLS while the link is late, loses packets and is cut",
        joining::over_a_bad_link,
    ),
    (
        "a node that is turned away goes within five seconds, stays out, and joins again by another token",
        joining::turned_away,
    ),
    (
        "an edge host is cut off for two minutes while its service is edited and a worker on it is killed",
        trouble::cut_off,
    ),
    (
        "a node without power comes back, and all that it did goes on once",
        trouble::power_failure,
    ),
];

/// What another cluster goes through, beside it.
const IN_ANOTHER_CLUSTER: &[Scenario] = &[
    (
        "an upgrade with other values and newer definitions restarts no worker",
        lifecycle::upgrade,
    ),
    ("a rollback restarts no worker", lifecycle::roll_back),
    (
        "the chart is uninstalled, and nothing of the user's goes",
        lifecycle::uninstall,
    ),
    (
        "an installation in one namespace has Roles only, and looks after nothing else",
        lifecycle::one_namespace,
    ),
    (
        "the chart is installed again, and nothing was restarted or lost",
        lifecycle::reinstall,
    ),
    (
        "a federated job has trained through all of that, each round told and no pod restarted",
        lifecycle::trained_throughout,
    ),
    (
        "a local controller is installed without the chart as the page says, and runs as nobody in particular",
        by_hand::installed,
    ),
    (
        "a cluster that Sedna runs changes hands as the page about it says",
        migration::changes_hands,
    ),
];

/// What both have shown.
const IN_THE_END: &[Scenario] = &[(
    "every command of the pages about installing, joining and migrating was run",
    pages::all_were_run,
)];

/// What can be shown while the edge is away.
const WITHOUT_THE_EDGE: &[Scenario] = &[
    (
        "the API server takes all that the chart renders",
        chart::everything_is_taken,
    ),
    (
        "an image that does not exist is named by service and job, which go on with the right one",
        trouble::wrong_image,
    ),
    (
        "a worker's container that is killed is started again in its pod",
        trouble::container_killed,
    ),
    (
        "pods that are evicted are made again, and the job comes to its end",
        trouble::evicted,
    ),
];

/// The sentences of all scenarios: those of the tour, then those that it shows on the way.
pub fn scenarios() -> impl Iterator<Item = &'static str> {
    let all = [SCENARIOS, IN_ANOTHER_CLUSTER, IN_THE_END, WITHOUT_THE_EDGE];
    all.into_iter().flatten().map(|(name, _)| *name)
}

/// What a tour can tell another one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Told {
    /// What it has run.
    pub shown: Vec<Shown>,
    /// The commands that it has followed: the page and the line.
    followed: BTreeSet<(String, String)>,
}

/// A tour of the two hosts.
pub struct Tour<'a> {
    hosts: &'a mut Hosts,
    /// Where commands are run: what pages name by a relative path is there.
    work: PathBuf,
    /// Whose commands they are.
    kubeconfig: PathBuf,
    pages: Pages,
    shown: Vec<Shown>,
    /// What is remembered from one scenario to the next.
    workers: kubernetes::Workers,
    declared: declared::Declared,
    /// The last round that the job that trains throughout had told when there was no manager any more.
    round: u64,
}

/// A scenario that was run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shown {
    /// Its sentence.
    pub name: String,
    /// Whether it held.
    pub ok: bool,
    /// How long it took.
    pub seconds: u64,
}

impl Shown {
    /// One that held.
    pub fn held(name: &str, took: Duration) -> Self {
        Self {
            name: name.to_owned(),
            ok: true,
            seconds: took.as_secs(),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, ok, seconds } = self;
        let outcome = if *ok { "ok" } else { "FAILED" };
        write!(f, "real: {name} ... {outcome} ({seconds} s)")
    }
}

impl<'a> Tour<'a> {
    /// With programs that readers of the pages have, the definition of `ServiceMonitors`, and what is to be installed, from the
    /// repository at `root`.
    pub fn new(
        hosts: &'a mut Hosts,
        programs: &[(&str, &Path)],
        service_monitors: &Path,
        root: &Path,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let work = folder.join("work");
        fs::create_dir_all(work.join("bin"))?;
        fs::create_dir_all(work.join("home"))?;
        for shared in ["charts", "dist", "examples"] {
            symlink(root.join(shared), work.join(shared))?;
        }
        for (name, program) in programs {
            symlink(program, work.join("bin").join(name))?;
        }
        symlink(service_monitors, work.join(chart::SERVICE_MONITORS))?;
        Ok(Self {
            kubeconfig: hosts.plane.access().admin,
            hosts,
            pages: Pages::read(root)?,
            work,
            shown: Vec::new(),
            workers: kubernetes::Workers::default(),
            declared: declared::Declared::default(),
            round: 0,
        })
    }

    /// The whole tour, to the first scenario that does not hold; each says how long it took.
    pub fn run(&mut self) -> anyhow::Result<()> {
        self.scenarios(SCENARIOS)
    }

    /// What is shown in another cluster: one with a node that has joined, services, and a job that does not come to its end.
    pub fn run_in_another_cluster(&mut self) -> anyhow::Result<()> {
        for prepare in [chart::install, examples::train, examples::infer, joining::join] {
            prepare(self)?;
        }
        lifecycle::begin_to_train(self)?;
        examples::serve_in_the_cloud(self)?;
        self.scenarios(IN_ANOTHER_CLUSTER)
    }

    /// What is left to show, with what was run in another cluster.
    pub fn end(&mut self, another: Told) -> anyhow::Result<()> {
        let Told { shown, followed } = another;
        self.shown.extend(shown);
        self.pages.followed.extend(followed);
        self.scenarios(IN_THE_END)
    }

    /// What was run so far.
    pub fn told(&self) -> Told {
        Told {
            shown: self.shown.clone(),
            followed: self.pages.followed.clone(),
        }
    }

    fn scenarios(&mut self, all: &[Scenario]) -> anyhow::Result<()> {
        all.iter().try_for_each(|scenario| self.scenario(scenario))
    }

    fn scenario(&mut self, (name, show): &Scenario) -> anyhow::Result<()> {
        let begun = Instant::now();
        let held = show(self).and_then(|()| self.hosts.check());
        let shown = Shown {
            ok: held.is_ok(),
            ..Shown::held(name, begun.elapsed())
        };
        println!("{shown}");
        self.shown.push(shown);
        // Once, where it happened: one scenario may run within another.
        if held.is_err() && self.shown.iter().filter(|shown| !shown.ok).count() == 1 {
            self.look_around();
        }
        held.with_context(|| (*name).to_owned())
    }

    /// What somebody wants to see who was not there.
    fn look_around(&self) {
        for look in [
            &["get", "pods", "--all-namespaces", "--output", "wide"][..],
            &["get", "ji,fl,models", "--all-namespaces"],
            // Whoever has written last, and when.
            &[
                "get",
                "ji,fl,models,deployments",
                "--all-namespaces",
                "--output=yaml",
                "--show-managed-fields",
            ],
            &["get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"],
            &["describe", "pods", "--all-namespaces"],
            &[
                "logs",
                "--namespace",
                SEDNA,
                "deployment/skerry-globalmanager",
                "--tail=40",
            ],
            &[
                "logs",
                "--namespace",
                SEDNA,
                "daemonset/skerry-localcontroller",
                "--tail=40",
            ],
        ] {
            println!("{}", self.kubectl(look).unwrap_or_else(|error| error.to_string()));
        }
    }
}
