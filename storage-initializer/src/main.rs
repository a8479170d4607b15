//! `skerry-storage-initializer SOURCE FOLDER [SOURCE FOLDER …]`

use std::io::IsTerminal as _;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // Fails only where a provider is installed already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let filter = EnvFilter::try_from_env("LOG_LEVEL").unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    logs.with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    match fetch().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("skerry-storage-initializer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// As process 1 of a container it would not die of a signal by itself.
async fn fetch() -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        fetched = skerry_storage_initializer::run(std::env::args().skip(1).collect()) => fetched,
        _ = terminate.recv() => anyhow::bail!("stopped before everything was fetched"),
        _ = interrupt.recv() => anyhow::bail!("stopped before everything was fetched"),
    }
}
