//! The workers of the examples: they do real work on real data, and keep Sedna's worker contract.
//!
//! A worker learns all it needs from the environment that the control plane gives it ([`env::Env`]), reports to its
//! node's local controller ([`report`]), and stops cleanly on `SIGTERM`. The decisions ([`federation`],
//! [`hard_example`], [`network`]) know no socket; [`aggregator`], [`trainer`], [`edge`] and [`cloud`] carry them out.
//!
//! Whoever calls [`run`] has installed a TLS provider and a subscriber for logs.

pub mod aggregator;
pub mod cloud;
pub mod data;
pub mod edge;
pub mod env;
pub mod federation;
pub mod hard_example;
pub mod link;
pub mod materials;
pub mod model;
pub mod network;
pub mod recipe;
pub mod report;
pub mod rng;
pub mod tensor;
pub mod trainer;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::env::Env;

/// What a worker process does.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Average the weights of a federated job's trainers
    Aggregate,
    /// Train on this node's share of a federated job's data
    Train,
    /// Classify with a small model, and ask the large one about hard samples
    EdgeInference,
    /// Answer for the large model
    CloudInference,
    /// Write the samples and the large model that the examples work on
    Data(materials::DataArgs),
    /// Train a model on samples that lie in one place
    TrainCentral(materials::TrainCentralArgs),
}

/// Runs a worker to its end, or until `SIGTERM` or `SIGINT`.
pub async fn run(command: Command) -> anyhow::Result<()> {
    let env = Env::of_process();
    match command {
        Command::Aggregate => aggregator::run(aggregator::Settings::from_env(&env)?, stop_signal()?).await?,
        Command::Train => drop(trainer::run(trainer::Settings::from_env(&env)?, stop_signal()?).await?),
        Command::EdgeInference => edge::run(edge::Settings::from_env(&env)?, stop_signal()?).await?,
        Command::CloudInference => cloud::run(cloud::Settings::from_env(&env)?, stop_signal()?).await?,
        Command::Data(args) => tokio::task::spawn_blocking(move || materials::write_data(&args)).await??,
        Command::TrainCentral(args) => tokio::task::spawn_blocking(move || materials::train_central(&args)).await??,
    }
    Ok(())
}

/// Cancelled by the first `SIGTERM` or `SIGINT`. As process 1 of a container a worker dies of neither by itself.
fn stop_signal() -> std::io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        token.cancel();
    });
    Ok(stop)
}
