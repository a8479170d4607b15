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
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = loopback)]
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

/// An address of this machine alone: whoever reaches the API server can run commands here, and nobody is asked who they
/// are.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "it is an IP address and a port, such as 127.0.0.1:6443".to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("it is not a loopback address; whoever reaches the sandbox can run commands on this machine".to_owned())
    }
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
    let mut names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    names.sort_unstable();
    if let Some((name, _)) = names.iter().zip(names.iter().skip(1)).find(|(one, next)| one == next) {
        return Err(Failure::usage(
            format!("--nodes names {name} twice"),
            "give each node a name of its own",
        ));
    }
    let stop = signals::stop()?;
    let options = Options {
        nodes,
        images,
        listen,
        kubeconfig,
        control_plane_only,
        tls: true,
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
