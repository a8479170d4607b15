//! `skerry bench edge`: the link between the manager and nodes, from edits to acknowledgements.
//!
//! ```text
//!   this process ── edits ──▶ API server ── watch ──▶ manager ── skerry.v1 ──▶ nodes
//!        ▲                                                                       │
//!        └────────────────── what was stored when ◀──────────────────────────────┘
//! ```
//!
//! Each box is a process. The nodes are simulated, all in one process, by the protocol crate's own sessions over a socket
//! each; the manager, its engine and the API server are what they are. Each round of a measurement has a world of its own.

mod api_server;
mod authority;
mod burst;
mod busy;
mod clock;
mod connections;
mod declared;
mod delay;
mod distance;
mod edits;
mod files;
mod fleet;
mod kind_again;
mod listener;
mod local_controller;
mod matched;
mod nodes;
mod orders;
mod resume;
mod services;
mod storm;
mod syncs;
mod world;

use std::path::PathBuf;

use clap::{Args as _, Command, FromArgMatches as _, ValueEnum, value_parser};
use skerry_bounds::{Figure, WHOLE_EDGE};
use tokio_util::sync::CancellationToken;

use self::{declared::Kind, world::World};
use super::{
    figures::{self, Round},
    say,
};
use crate::failure::Failure;

/// What to measure, and with how much. Without arguments: everything, on an API server of its own.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig of an administrator of the control plane to measure on, instead of an API server of the bench; what makes
    /// workers, or deletes a kind, is left out there
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Nobody else uses that control plane, and it makes no pods for nodes that are not there: leave nothing out
    #[arg(long, requires = "kubeconfig")]
    exclusive: bool,
    /// What to measure; everything where this is absent
    #[arg(long, value_enum, value_name = "MEASUREMENT,…", value_delimiter = ',')]
    only: Vec<Measurement>,
    #[command(flatten)]
    sizes: Sizes,
    /// Print one JSON object a line: name, value, unit, conditions
    #[arg(long)]
    json: bool,
}

/// How much of everything.
#[derive(Clone, Debug, PartialEq, clap::Args)]
struct Sizes {
    /// How many nodes are told of edits
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u32).range(1..=50_000))]
    nodes: u32,
    /// How often each resource is edited where throughput is measured
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// How many objects are edited in quick succession
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = value_parser!(u32).range(1..=90_000))]
    objects: u32,
    /// How often each of them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    quick_edits: u32,
    /// How often they are disturbed meanwhile, in a second round: the manager killed, all sessions ended, the Lease deleted,
    /// older stores put back, all connections silent, a manager of another cluster in the place of theirs, in turn
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = value_parser!(u32).range(0..=100))]
    disturbances: u32,
    /// How many nodes connect at once
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=50_000))]
    connections: u32,
    /// How many services there are, each on a node of its own
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = value_parser!(u32).range(1..=50_000))]
    services: u32,
    /// How many nodes come back at once
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = value_parser!(u32).range(1..=50_000))]
    storm: u32,
    /// How many objects a node has that comes back
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=90_000))]
    resumed: u32,
    /// How many of them have changed meanwhile, a round each
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0,10,100,1000")]
    changed: Vec<u32>,
    /// How far away a node is, in milliseconds in each direction, a round each
    #[arg(long, value_name = "MS,…", value_delimiter = ',', default_value = "0,20,100,300")]
    delays: Vec<u32>,
    /// How many objects it has: many times what is under way at once
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=90_000))]
    far: u32,
    /// How many objects a real local controller has
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u32).range(1..=90_000))]
    kept: u32,
    /// How many reports its workers send
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    reports: u32,
    /// The local controller to measure; where this is absent, cargo builds the one that is shipped
    #[arg(long, value_name = "FILE")]
    local_controller: Option<PathBuf>,
    /// How many nodes a second begin to connect, where that is not what is measured
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = value_parser!(u32).range(1..=100_000))]
    connects_per_second: u32,
}

/// One measurement, of one or more rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// Edits of Datasets: how many a second, and how soon
    Edits,
    /// The same with services
    ServiceEdits,
    /// Whether anything is lost in a burst of edits, undisturbed and disturbed
    Burst,
    /// Whether nodes end up right when a kind is deleted and made again
    KindAgain,
    /// What connections cost, in plain and over TLS
    Connections,
    /// What the manager weighs with many services and nodes
    Services,
    /// What a node costs that comes back
    Resume,
    /// What distance costs
    Distance,
    /// How soon all nodes are back after the manager was
    Storm,
    /// What the local controller costs
    LocalController,
}

impl Measurement {
    /// The sizes of its rounds: what grows from one to the next is the measurement's to say.
    fn rounds(self, sizes: &Sizes) -> Vec<u32> {
        let half_and_whole = |whole: u32| match whole {
            1 => vec![1],
            _ => vec![whole.div_ceil(2), whole],
        };
        match self {
            Self::Edits | Self::ServiceEdits => half_and_whole(sizes.nodes),
            Self::KindAgain => vec![sizes.nodes],
            Self::Burst if sizes.disturbances > 0 => vec![0, sizes.disturbances],
            Self::Burst => vec![0],
            Self::Connections => half_and_whole(sizes.connections),
            Self::Services => half_and_whole(sizes.services),
            Self::Resume => sizes
                .changed
                .iter()
                .map(|&changed| changed.min(sizes.resumed))
                .collect(),
            Self::Distance => sizes.delays.clone(),
            Self::Storm => half_and_whole(sizes.storm),
            Self::LocalController => half_and_whole(sizes.kept),
        }
    }

    /// How many connections a process has at most.
    fn connections(self, sizes: &Sizes) -> u32 {
        match self {
            Self::Edits | Self::ServiceEdits | Self::KindAgain => sizes.nodes,
            // What stands in between has both ends of each.
            Self::Burst => sizes.nodes * 2,
            Self::Connections => sizes.connections,
            Self::Services => sizes.services,
            Self::Storm => sizes.storm,
            Self::Resume | Self::Distance | Self::LocalController => 1,
        }
    }

    /// Whether it is only for an API server of the bench's own: it makes workers, whose pods would be for nodes that are not
    /// there, or it deletes what belongs to all.
    fn is_for_its_own(self) -> bool {
        matches!(
            self,
            Self::ServiceEdits | Self::KindAgain | Self::Services | Self::LocalController
        )
    }

    /// One round.
    async fn take(self, world: &World, size: u32, sizes: &Sizes) -> Result<Round, Failure> {
        match self {
            Self::Edits => edits::take(world, Kind::Dataset, size, sizes).await,
            Self::ServiceEdits => edits::take(world, Kind::Service, size, sizes).await,
            Self::Burst => burst::take(world, size, sizes).await,
            Self::KindAgain => kind_again::take(world, size, sizes).await,
            Self::Connections => connections::take(world, size, sizes).await,
            Self::Services => services::take(world, size, sizes).await,
            Self::Resume => resume::take(world, size, sizes).await,
            Self::Distance => distance::take(world, size, sizes).await,
            Self::Storm => storm::take(world, size, sizes).await,
            Self::LocalController => local_controller::take(world, size, sizes).await,
        }
    }
}

impl Sizes {
    /// Those of a bench without arguments.
    fn full() -> Result<Self, clap::Error> {
        let matches = Self::augment_args(Command::new("edge")).try_get_matches_from(["edge"])?;
        Self::from_arg_matches(&matches)
    }
}

impl Args {
    fn measurements(&self) -> Vec<Measurement> {
        let wanted = match self.only.as_slice() {
            [] => Measurement::value_variants(),
            only => only,
        };
        let possible = |measurement: &&Measurement| !self.borrows() || !measurement.is_for_its_own();
        wanted.iter().filter(possible).copied().collect()
    }

    /// Whether everything is measured, at full size: that is what the bounds are for.
    fn is_whole(&self) -> bool {
        self.only.is_empty() && self.kubeconfig.is_none() && Sizes::full().is_ok_and(|full| full == self.sizes)
    }

    /// Whether it measures on a control plane that others use.
    fn borrows(&self) -> bool {
        self.kubeconfig.is_some() && !self.exclusive
    }
}

/// Measures one thing after the other, and prints each when it is done; leaves nothing behind.
pub(super) async fn run(args: Args, stop: CancellationToken) -> Result<(), Failure> {
    let measurements = args.measurements();
    if measurements.is_empty() {
        return Err(Failure::usage(
            "what --only names cannot be measured on a control plane that others use",
            "leave out --kubeconfig, say --exclusive if nobody does, or measure something else",
        ));
    }
    let left_out = args.only.iter().filter(|only| !measurements.contains(only));
    for measurement in left_out {
        say(&format!(
            "{measurement:?} is left out: others may use this control plane"
        ));
    }
    let connections = measurements
        .iter()
        .map(|measurement| measurement.connections(&args.sizes));
    files::raise(connections.max().unwrap_or_default())?;
    let mut figures = Vec::new();
    for measurement in measurements {
        let mut rounds = Vec::new();
        for size in measurement.rounds(&args.sizes) {
            say(&format!("{measurement:?}, {size}"));
            let mut taken = round(measurement, size, &args, &stop).await?;
            if let (Measurement::Distance, Some(first)) = (measurement, rounds.first()) {
                distance::compare(first, &mut taken);
            }
            rounds.push(taken);
        }
        figures.extend(figures::report("edge", &rounds, args.json)?);
    }
    if args.is_whole() { judge(&figures) } else { Ok(()) }
}

/// Says which of these figures, which are all, are out of bounds.
fn judge(figures: &[Figure]) -> Result<(), Failure> {
    let broken = WHOLE_EDGE.broken(figures, true);
    for broken in &broken {
        say(broken);
    }
    match broken.len() {
        0 => Ok(()),
        number => Err(Failure::new(
            format!("{number} figures are out of bounds"),
            "each is named above; the bounds are for a release build on two cores that nothing else uses",
        )),
    }
}

async fn round(measurement: Measurement, size: u32, args: &Args, stop: &CancellationToken) -> Result<Round, Failure> {
    let world = World::start(args.kubeconfig.as_deref()).await?;
    let taken = stop.run_until_cancelled(Box::pin(measurement.take(&world, size, &args.sizes)));
    let taken = taken.await;
    let left = world.end(matches!(taken, Some(Err(_)))).await;
    let round = taken.ok_or_else(|| Failure::new("the bench was interrupted", "run it again to see all figures"))??;
    left?;
    Ok(round)
}

/// A part of the bench as a process of its own.
#[derive(clap::Subcommand)]
pub(crate) enum Part {
    /// The API server
    ApiServer {
        /// Where to write its kubeconfig, once it listens
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
    },
    /// The nodes
    Nodes,
}

impl Part {
    /// Runs it to its end.
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::ApiServer { kubeconfig } => api_server::run(&kubeconfig).await,
            Self::Nodes => nodes::run().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Args {
        Cli::parse_from(std::iter::once(&"bench").chain(words)).args
    }

    #[test]
    fn without_arguments_everything_is_measured_at_full_size() {
        let args = args(&[]);
        assert_eq!(args.measurements(), Measurement::value_variants());
        assert_eq!(Measurement::Edits.rounds(&args.sizes), [500, 1000]);
        assert_eq!(Measurement::Connections.rounds(&args.sizes), [5000, 10_000]);
        assert_eq!(Measurement::Distance.rounds(&args.sizes), [0, 20, 100, 300]);
        assert_eq!((args.sizes.objects, args.sizes.quick_edits), (20_000, 5));
        assert_eq!((args.sizes.services, args.sizes.storm), (5000, 5000));
    }

    #[test]
    fn bounds_are_for_everything_at_full_size() {
        for words in [&[][..], &["--json"], &["--nodes=1000"]] {
            assert!(args(words).is_whole(), "{words:?}");
        }
        for words in [
            &["--only=edits"][..],
            &["--kubeconfig=k", "--exclusive"],
            &["--nodes=999"],
            &["--delays=0,20"],
            &["--local-controller=lc"],
        ] {
            assert!(!args(words).is_whole(), "{words:?}");
        }
    }

    #[test]
    fn figures_out_of_bounds_end_the_bench_with_a_failure() {
        assert!(judge(&[]).is_err(), "none was measured");
    }

    #[test]
    fn no_workers_are_made_on_a_borrowed_control_plane() {
        let args = args(&["--kubeconfig", "k", "--only", "edits,services"]);
        assert_eq!(args.measurements(), [Measurement::Edits]);
    }

    #[test]
    fn nothing_is_left_out_on_a_control_plane_that_is_lent_to_the_bench_alone() {
        let args = args(&["--kubeconfig", "k", "--exclusive", "--only", "edits,service-edits"]);
        assert_eq!(args.measurements(), [Measurement::Edits, Measurement::ServiceEdits]);
    }

    #[test]
    fn no_more_can_change_than_there_is() {
        let args = args(&["--resumed=50", "--changed=0,10,100"]);
        assert_eq!(Measurement::Resume.rounds(&args.sizes), [0, 10, 50]);
    }
}
