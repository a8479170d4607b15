//! `skerry bench`: what the parts cost and how fast they are, measured on whatever they are pointed at.
//!
//! A bench prints figures. It judges them where all were measured at the sizes that their bounds are for; elsewhere that is left to
//! whoever runs it.

mod alone;
mod children;
mod clock;
mod control_plane;
mod costs;
mod edge;
mod figures;
mod load;
mod managed;
mod manager;
mod place;
mod unmanaged;

use crate::{failure::Failure, signals};

pub(crate) use edge::Part;

/// What to measure.
#[derive(clap::Subcommand)]
pub(crate) enum Bench {
    /// Measure the manager on a control plane: how soon children follow, what that costs, and how it grows
    ControlPlane(control_plane::Args),
    /// Measure the link to edge nodes, with simulated nodes that speak the real protocol
    Edge(Box<edge::Args>),
}

/// Measures, and leaves nothing behind, even when interrupted.
pub(crate) async fn run(bench: Bench) -> Result<(), Failure> {
    let stop = signals::stop()?;
    match bench {
        Bench::ControlPlane(args) => control_plane::run(args, stop).await,
        Bench::Edge(args) => edge::run(*args, stop).await,
    }
}

/// Tells whoever waits how far it is; figures alone go to stdout.
fn say(what: &str) {
    eprintln!("{} {what}", jiff::Zoned::now().strftime("%H:%M:%S"));
}
