//! The parts of Skerry as hidden commands of this binary: what the demo and the sandbox start as processes.

use tokio_util::sync::CancellationToken;

use crate::{failure::Failure, signals};

/// One part.
#[derive(clap::Subcommand)]
pub(crate) enum Role {
    /// The global manager
    #[command(hide = true, name = "globalmanager")]
    GlobalManager(Box<skerry_globalmanager::config::Flags>),
    /// The local controller of a node
    #[command(hide = true, name = "localcontroller")]
    LocalController(skerry_localcontroller::Args),
    /// A worker of the examples
    #[command(hide = true, subcommand)]
    Worker(skerry_workers::Command),
    /// A part of a bench
    #[cfg(target_os = "linux")]
    #[command(hide = true, subcommand)]
    BenchPart(crate::bench::Part),
    /// What fetches models and data before a worker starts
    #[command(hide = true)]
    StorageInitializer {
        /// Pairs of a source and a folder
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        pairs: Vec<String>,
    },
}

/// Runs a part to its end, or until SIGTERM or SIGINT.
pub(crate) async fn run(role: Role) -> Result<(), Failure> {
    let sentence = |error: anyhow::Error| format!("{error:#}");
    let outcome = match role {
        Role::GlobalManager(flags) => skerry_globalmanager::main(*flags).await.map_err(sentence),
        Role::LocalController(args) => local_controller(args, signals::stop()?).await.map_err(sentence),
        Role::Worker(command) => {
            skerry_globalmanager::telemetry::init(skerry_globalmanager::config::LogFormat::Text);
            // A worker's errors name their causes themselves.
            skerry_workers::run(command).await.map_err(|error| error.to_string())
        }
        #[cfg(target_os = "linux")]
        Role::BenchPart(part) => return part.run().await,
        Role::StorageInitializer { pairs } => {
            skerry_globalmanager::telemetry::init(skerry_globalmanager::config::LogFormat::Text);
            skerry_storage_initializer::run(pairs).await.map_err(sentence)
        }
    };
    outcome.map_err(|error| Failure::new(error, "the log lines above say more"))
}

async fn local_controller(args: skerry_localcontroller::Args, stop: CancellationToken) -> anyhow::Result<()> {
    let format = args.log_format;
    let config = args.resolve()?;
    skerry_localcontroller::logging::init(format);
    skerry_localcontroller::run(config, stop).await
}
