//! `skerry-localcontroller`: reads the settings, then runs until SIGINT or SIGTERM.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use skerry_localcontroller::{Args, Config, logging, run};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

/// The local controller of Skerry, one on each edge node.
#[derive(Parser)]
#[command(name = "skerry-localcontroller", version)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn main() -> ExitCode {
    let Cli { args } = Cli::parse();
    let format = args.log_format;
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
