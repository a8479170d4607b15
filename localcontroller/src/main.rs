//! `skerry-localcontroller`: reads the settings, then runs until SIGINT or SIGTERM.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use skerry_localcontroller::{Args, Config, logging, own_store, run};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

/// The local controller of Skerry, one on each edge node.
#[derive(Parser)]
#[command(name = "skerry-localcontroller", version)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    args: Args,
}

#[derive(Subcommand)]
enum Command {
    /// Gives the store to a user, and ends: what has to be done as root before a local controller runs as that one
    OwnStore {
        /// Number of the user, and of its group
        user: u32,
    },
}

fn main() -> ExitCode {
    let Cli { command, args } = Cli::parse();
    let format = args.log_format;
    if let Some(Command::OwnStore { user }) = command {
        return match args
            .rootfs()
            .map_err(Into::into)
            .and_then(|rootfs| own_store(&rootfs, user))
        {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let config = match args.resolve() {
        Ok(config) => config,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    logging::init(format);
    match start(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(config: Config) -> anyhow::Result<()> {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        anyhow::bail!("another TLS provider was installed before");
    }
    // Two threads: an edge node has little memory and one of them may be busy counting.
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let token = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
            token.cancel();
        });
        run(config, shutdown).await
    })
}
