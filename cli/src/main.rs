//! `skerry`, the command line: the demo, the sandbox, and decisions offline.
//!
//! It decides nothing about a kind and holds no logic of the manager; it starts the parts, and shows what they say. The
//! demo and the sandbox run the manager, the local controllers and the example workers as processes of this same binary
//! (the hidden commands), so that one build is all that a new user needs.

#[cfg(target_os = "linux")]
mod bench;
mod crds;
mod demo;
mod failure;
mod furnish;
mod nodes;
mod plan;
mod process;
mod roles;
mod sandbox;
mod scrape;
mod signals;
mod stack;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// The manager and the sandbox make and drop trees of JSON without an end: with this an edit takes the manager a third less
/// processor time than with glibc's allocator.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// One control plane for AI that spans cloud and edge.
#[derive(Parser)]
#[command(name = "skerry", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Watch Skerry do its main job on loopback, and heal what is broken on the way
    Demo(demo::Args),
    /// Run a small Kubernetes in memory with Skerry on it, for your own kubectl
    Sandbox(sandbox::Args),
    /// Print the custom resource definitions, for `kubectl apply -f -`
    Crds,
    /// Print what would be made of the resources in files, without any cluster
    Plan(plan::Args),
    /// List the nodes that have joined over TLS; let one in, turn one away
    Nodes(nodes::Args),
    /// Measure Skerry where it is to run
    #[cfg(target_os = "linux")]
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run one part of Skerry in this process
    #[command(flatten)]
    Role(roles::Role),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    // One TLS provider, chosen before anything can ask for it.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| Failure::defect("a TLS provider was installed twice"))?;
    let runtime = || tokio::runtime::Runtime::new().map_err(Failure::defect);
    match command {
        Command::Demo(args) => runtime()?.block_on(demo::run(args)),
        Command::Sandbox(args) => runtime()?.block_on(sandbox::run(args)),
        Command::Crds => crds::run(),
        Command::Plan(args) => plan::run(&args),
        Command::Nodes(args) => runtime()?.block_on(nodes::run(args)),
        #[cfg(target_os = "linux")]
        Command::Bench(bench) => runtime()?.block_on(bench::run(bench)),
        Command::Role(role) => runtime()?.block_on(roles::run(role)),
    }
}
