//! The global manager: the effects in the cloud. It watches the API server, carries out what `workloads` decides, and
//! keeps every edge node told of its part.

pub mod admin;
pub mod client;
pub mod config;
pub mod engine;
pub mod hub;
pub mod identity;
pub mod lease;
pub mod metrics;
pub mod run;
pub mod telemetry;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Runs the manager as a process: until SIGTERM or SIGINT, and then until it is drained.
pub async fn main(flags: config::Flags) -> anyhow::Result<()> {
    let config = config::Config::load(flags)?;
    telemetry::init(config.log_format);
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopping.cancel();
        tracing::info!("draining");
    });
    run::run(config, stop).await
}
