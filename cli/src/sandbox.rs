//! `skerry sandbox`: everything on loopback, to try by hand.

use std::{net::SocketAddr, path::PathBuf};

use skerry_sandbox::cluster::NodeSpec;

use crate::{
    failure::{Failure, print},
    signals,
    stack::{Options, Stack},
};

/// What the sandbox is.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to write the kubeconfig
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where the API server listens, on loopback; a free port if absent
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// The nodes; those of the edge as NAME:edge
    #[arg(
        long,
        value_name = "NAME[:edge],…",
        value_delimiter = ',',
        default_value = "cloud-1,edge-1:edge,edge-2:edge"
    )]
    nodes: Vec<NodeSpec>,
    /// A YAML file that maps further images to commands
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,
    /// Leave out the manager and the local controllers, to bring your own
    #[arg(long)]
    control_plane_only: bool,
}

/// Runs the sandbox until SIGINT or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let Args {
        kubeconfig,
        listen,
        nodes,
        images,
        control_plane_only,
    } = args;
    let stop = signals::stop()?;
    let options = Options {
        nodes,
        images,
        listen,
        kubeconfig,
        control_plane_only,
        ..Options::new("sandbox")
    };
    let Some(started) = stop.run_until_cancelled(Box::pin(Stack::start(options))).await else {
        return Ok(());
    };
    let stack = started?;
    print(&format!("export KUBECONFIG={}\nready\n", stack.kubeconfig().display()))?;
    stop.cancelled().await;
    stack.shutdown().await;
    Ok(())
}
