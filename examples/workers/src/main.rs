//! `skerry-worker`: the example workers, one subcommand each.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

/// Workers of the examples. The control plane tells them what to do by their environment.
#[derive(Parser)]
#[command(name = "skerry-worker", version)]
struct Cli {
    #[command(subcommand)]
    command: skerry_workers::Command,
}

#[tokio::main]
async fn main() -> ExitCode {
    // Fails only where a provider is installed already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let filter = EnvFilter::try_from_env("LOG_LEVEL").unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    logs.with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    match skerry_workers::run(Cli::parse().command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // It names its causes itself.
            eprintln!("skerry-worker: {error}");
            ExitCode::FAILURE
        }
    }
}
