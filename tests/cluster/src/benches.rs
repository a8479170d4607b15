//! The benches of the command line, each on control planes of its own.

use std::{
    io::{BufRead as _, BufReader, Read},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use skerry_bounds::{Bounds, EDGE, Figure, MANAGER};

use crate::{
    artifacts::Kubernetes,
    control_plane::ControlPlane,
    enclosure::FOLDER,
    layout::Layout,
    processors::{Processors, list},
    programs::{built, command_line},
    site::{ALONE, Memory, Patience, Site, USUAL},
    trading::while_trading,
};

/// How often control planes side by side trade their halves of the cores: often enough that either has both within anything that
/// is measured, and seldom enough that what is in the caches of a core is soon there anew.
const TRADE_EVERY: Duration = Duration::from_secs(1);

/// How large the benches are, and what is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct Sizes {
    /// The manager's bench, its first load: services.
    #[arg(long, default_value_t = 1000)]
    services: u32,
    /// And jobs.
    #[arg(long, default_value_t = 200)]
    jobs: u32,
    /// How often it is run, with the load and with twice that side by side. Once with a load that tells of no speed.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4))]
    rounds: u32,
    /// The manager's bench: the same children without a manager, which is not judged.
    #[arg(long)]
    unmanaged: bool,
    /// The edge link's bench: nodes.
    #[arg(long, default_value_t = 1000)]
    nodes: u32,
    /// And objects that are edited in quick succession.
    #[arg(long, default_value_t = 5000)]
    objects: u32,
    /// The program whose bench is run, in place of a release built for it.
    #[arg(long, value_name = "FILE")]
    skerry: Option<PathBuf>,
}

impl Sizes {
    /// The manager's bench, and what it measures, built unless it is given.
    pub fn manager(self) -> anyhow::Result<Bench> {
        let Self {
            services,
            jobs,
            rounds,
            unmanaged,
            ..
        } = self;
        Ok(Bench {
            subject: Subject::ControlPlane {
                services,
                jobs,
                rounds,
                unmanaged,
            },
            skerry: self.skerry()?,
        })
    }

    /// The edge link's bench, and what it measures, built unless it is given.
    pub fn edge(self) -> anyhow::Result<Bench> {
        let Self { nodes, objects, .. } = self;
        Ok(Bench {
            subject: Subject::Edge { nodes, objects },
            skerry: self.skerry()?,
        })
    }

    fn skerry(self) -> anyhow::Result<PathBuf> {
        if let Some(given) = self.skerry {
            return given.canonicalize().with_context(|| given.display().to_string());
        }
        let mut build = skerry_dist::cargo();
        build.args(["build", "--release", "--workspace", "--bin=skerry"]);
        built(&mut build, &["skerry"])?.pop().context("nothing was built")
    }
}

/// A bench that can be run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Bench {
    subject: Subject,
    skerry: PathBuf,
}

/// What is measured, and how large the load is.
#[derive(Debug, Serialize, Deserialize)]
enum Subject {
    ControlPlane {
        services: u32,
        jobs: u32,
        rounds: u32,
        unmanaged: bool,
    },
    Edge {
        nodes: u32,
        objects: u32,
    },
}

impl Bench {
    /// The manager's, so little and with the program that tests use, that it tells whether the bench works, and nothing of
    /// speed.
    pub fn shortened() -> anyhow::Result<Self> {
        Ok(Self {
            subject: Subject::ControlPlane {
                services: 2,
                jobs: 1,
                rounds: 1,
                unmanaged: false,
            },
            skerry: command_line()?,
        })
    }

    /// Runs it; its figures go to the caller's output. Whether they are as they should be.
    pub fn measure(&self, kubernetes: &Kubernetes) -> anyhow::Result<bool> {
        let layout = self.subject.layout(thread::available_parallelism()?.get());
        println!("{}", self.subject.preface());
        let mut bench = layout.bench.command(&self.skerry);
        bench.arg("bench").args(self.subject.arguments()).arg("--json");
        let mut started = Vec::new();
        for (place, processors) in PLACES.into_iter().zip(&layout.planes) {
            if let (Subject::ControlPlane { .. }, Processors::These(these)) = (&self.subject, processors) {
                bench.arg(place.manager_on).arg(list(these));
            }
            let plane = ControlPlane::start(self.site(kubernetes, place, processors.clone()))?;
            bench.arg(place.option).arg(plane.access().admin);
            started.push(plane);
        }
        bench.stdout(Stdio::piped());
        let figures = match layout.halves() {
            Some(halves) => while_trading(halves, TRADE_EVERY, || figures(&mut bench))?,
            None => figures(&mut bench)?,
        };
        started.iter_mut().try_for_each(ControlPlane::check)?;
        let Some(bounds) = self.subject.bounds() else {
            return Ok(true);
        };
        let broken = bounds.broken(&figures, self.subject.is_large());
        for broken in &broken {
            println!("error: {broken}");
        }
        Ok(broken.is_empty())
    }

    fn site(&self, kubernetes: &Kubernetes, place: Place, processors: Processors) -> Site {
        Site {
            kubernetes: kubernetes.clone(),
            folder: Path::new(FOLDER).join(place.folder),
            address: Ipv4Addr::LOCALHOST,
            port: place.port,
            processors,
            netns: None,
            known: None,
            patience: Patience::Usual,
            memory: self.subject.memory(),
            without: self.subject.without(),
            manager_in: None,
            strict: false,
        }
    }
}

/// Where a control plane of a bench is, and how the bench is told of it.
#[derive(Clone, Copy)]
struct Place {
    folder: &'static str,
    port: u16,
    option: &'static str,
    /// The option for what its manager runs on.
    manager_on: &'static str,
}

const PLACES: [Place; 2] = [
    Place {
        folder: "bench",
        port: 10_950,
        option: "--kubeconfig",
        manager_on: "--processors",
    },
    Place {
        folder: "bench-beside",
        port: 10_960,
        option: "--beside",
        manager_on: "--beside-processors",
    },
];

/// What a bench prints for programs, said for people meanwhile.
fn figures(bench: &mut Command) -> anyhow::Result<Vec<Figure>> {
    let mut process = bench.spawn().context("starting the bench")?;
    let figures = read(process.stdout.take());
    if figures.is_err() {
        // Nobody reads what else it has to say. It may have ended by itself.
        let _ = process.kill();
    }
    let status = process.wait()?;
    let figures = figures?;
    if !status.success() {
        bail!("the bench ended with {status}");
    }
    Ok(figures)
}

fn read(told: Option<impl Read>) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for line in BufReader::new(told.context("its output is piped")?).lines() {
        let line = line?;
        let figure: Figure = serde_json::from_str(&line).with_context(|| format!("no figure: {line}"))?;
        println!("{figure}");
        figures.push(figure);
    }
    Ok(figures)
}

/// From how many services or nodes on times tell of the manager, and not of how long it takes until anything begins.
const LARGE: u32 = 300;

impl Subject {
    /// What is judged: nothing of a control plane by itself.
    fn bounds(&self) -> Option<Bounds> {
        match self {
            Self::ControlPlane { unmanaged, .. } => (!unmanaged).then_some(MANAGER),
            Self::Edge { .. } => Some(EDGE),
        }
    }

    /// Whether the load tells of speed and memory.
    fn is_large(&self) -> bool {
        match self {
            Self::ControlPlane { services, .. } => *services >= LARGE,
            Self::Edge { nodes, .. } => *nodes >= LARGE,
        }
    }

    fn arguments(&self) -> Vec<String> {
        match self {
            Self::ControlPlane {
                services,
                jobs,
                rounds,
                unmanaged,
            } => {
                let unmanaged = unmanaged.then(|| "--unmanaged".to_owned());
                let rounds = self.is_large().then(|| format!("--rounds={}", 2 * rounds));
                let load = [
                    "control-plane".to_owned(),
                    format!("--services={services}"),
                    format!("--jobs={jobs}"),
                ];
                load.into_iter().chain(rounds).chain(unmanaged).collect()
            }
            Self::Edge { nodes, objects } => vec![
                "edge".to_owned(),
                "--exclusive".to_owned(),
                "--only=edits,service-edits,burst".to_owned(),
                format!("--nodes={nodes}"),
                format!("--objects={objects}"),
            ],
        }
    }

    /// Who has which of so many cores.
    fn layout(&self, cores: usize) -> Layout {
        match self {
            Self::ControlPlane { .. } => Layout::side_by_side(cores),
            Self::Edge { .. } => Layout::apart(cores),
        }
    }

    fn memory(&self) -> Memory {
        match self {
            Self::ControlPlane { .. } => USUAL,
            Self::Edge { .. } => ALONE,
        }
    }

    /// The controllers that would be in the way.
    fn without(&self) -> &'static [&'static str] {
        match self {
            Self::ControlPlane { .. } => &[],
            // The nodes that run no pods are simulated, all thousand of them.
            Self::Edge { .. } => &["deployment-controller"],
        }
    }

    /// How the figures are to be read.
    fn preface(&self) -> &'static str {
        match self {
            Self::ControlPlane { unmanaged: true, .. } => {
                "What the manager's bench asks of a control plane, without a manager, on two: the load on one that has half of \
                 the cores, and twice the load on one that has the other half, side by side; they trade their halves each \
                 second. The bench has all cores, with the stand-in nodes."
            }
            Self::ControlPlane { .. } => {
                "The manager's bench on two control planes of its own: the load on one that has half of the cores, and twice \
                 the load on one that has the other half, side by side, each with its manager; they trade their halves each \
                 second. The bench has all cores, with the stand-in nodes."
            }
            Self::Edge { .. } => {
                "The edge link's bench on a control plane of its own: etcd, API server, scheduler and all controllers but the \
                 one that would make pods of Deployments for nodes that are simulated, on one half of the cores; the bench, \
                 the manager and all nodes on the other.\n\
                 share_of_api_server_alone is what nodes acknowledged in a second over what this API server takes of the same \
                 edits in a second without a manager; writes_share_of_api_server_alone counts what the manager writes because \
                 of them as well: children, and what their owners' statuses say. share_of_api_server_watched is over what it \
                 takes while somebody listens to its changes and does nothing else.\n\
                 cores_busy.* says which part had how many cores meanwhile; all, less the manager's, the nodes' and the \
                 bench's, are the control plane's.\n\
                 The manager has the rank of any service account at the API server, the bench that of an administrator, who \
                 is not throttled."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_bench_that_says_something_else_is_ended() {
        let folder = std::env::temp_dir();
        let pid = folder.join(format!("skerry-no-figure-{}", std::process::id()));
        let script = "echo $$ > \"$1\"; echo no figure; exec sleep 60";
        let mut bench = Command::new("sh");
        bench.args(["-c", script, "-"]).arg(&pid).stdout(Stdio::piped());
        let begun = Instant::now();
        let refused = figures(&mut bench).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(30), "it did not go on to its end");
        assert!(format!("{refused:#}").contains("no figure"), "{refused:#}");
        let process = std::fs::read_to_string(&pid).unwrap();
        std::fs::remove_file(&pid).unwrap();
        assert!(!Path::new("/proc").join(process.trim()).exists(), "it was waited for");
    }

    #[test]
    fn pods_of_services_are_made_for_none_but_the_bench_that_stands_in_for_their_nodes() {
        let edge = Subject::Edge { nodes: 5, objects: 7 };
        assert_eq!(edge.without(), ["deployment-controller"]);
        let arguments = edge.arguments();
        for wanted in ["edge", "--exclusive", "--nodes=5", "--objects=7"] {
            assert!(arguments.iter().any(|argument| argument == wanted), "{arguments:?}");
        }
        assert!(
            Subject::ControlPlane {
                services: 1,
                jobs: 1,
                rounds: 1,
                unmanaged: false
            }
            .without()
            .is_empty()
        );
    }

    #[test]
    fn a_load_that_tells_of_speed_is_measured_again_and_again() {
        for (services, repeated) in [(LARGE, true), (LARGE - 1, false)] {
            let manager = Subject::ControlPlane {
                services,
                jobs: 1,
                rounds: 3,
                unmanaged: false,
            };
            let arguments = manager.arguments();
            let asked = arguments.iter().any(|argument| argument == "--rounds=6");
            assert_eq!(asked, repeated, "{arguments:?}");
        }
    }

    #[test]
    fn a_control_plane_without_a_manager_is_asked_for_the_same_and_not_judged() {
        let (services, jobs, rounds) = (LARGE, 1, 3);
        let [managed, unmanaged] = [false, true].map(|unmanaged| Subject::ControlPlane {
            services,
            jobs,
            rounds,
            unmanaged,
        });
        let mut arguments = managed.arguments();
        arguments.push("--unmanaged".to_owned());
        assert_eq!(unmanaged.arguments(), arguments);
        assert!(managed.bounds().is_some() && unmanaged.bounds().is_none());
    }
}
