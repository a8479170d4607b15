//! A trainer of a federated job: in each round it trains on its own share, sends its weights to the aggregator, takes
//! over the average, judges it on samples that no trainer has, and reports.
//!
//! The protocol cannot resume: when the aggregator's connection is gone the trainer fails, and is started again.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::data::{self, DataError, Parts, Sample};
use crate::env::{Env, EnvError};
use crate::link::{Link, LinkError};
use crate::model::{self, ModelError};
use crate::network::{Network, ShapeError};
use crate::recipe::Recipe;
use crate::report::{self, ModelResult, Report, ReportQueue, Reporter};
use crate::tensor::Tensor;

/// What a trainer is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `ws://{AGG_IP}:{AGG_PORT}/FedAvg`.
    pub aggregator: String,
    /// `CONNECT_TIMEOUT`: how long to wait for the aggregator, and at the end for the local controller.
    pub patience: Duration,
    /// `TRAIN_DATASET_URL`.
    pub train: PathBuf,
    /// `TEST_DATASET_URL`; where it is not set, the digits' own test part.
    pub test: Option<PathBuf>,
    /// `PRETRAINED_MODEL_URL`: where to start from.
    pub pretrained: Option<PathBuf>,
    /// `MODEL_URL`, where it is a file that can be written.
    pub model: Option<PathBuf>,
    /// How the model is named in reports: extension and url.
    pub reported: (String, String),
    /// How to train a round.
    pub recipe: Recipe,
    /// `ROUND_PERIOD`: a round takes at least so long, so that it can be watched.
    pub round_period: Duration,
    /// Where to report.
    pub reporter: Reporter,
}

/// Why a trainer ends before the job does.
#[derive(Debug, thiserror::Error)]
pub enum TrainerError {
    /// The environment does not do.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// Samples cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A model cannot be read or written.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The aggregator cannot be reached, or is gone.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The aggregator sends what is not a round's result.
    #[error("recv_weight: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The averaged weights are not those of a classifier.
    #[error("recv_weight, weights: {0}")]
    Shape(#[from] ShapeError),
    /// The training thread broke.
    #[error("training failed: {0}")]
    Training(#[from] tokio::task::JoinError),
    /// Told to stop before the last round. Not a success, or the job would count as done.
    #[error("stopped before the last round")]
    Stopped,
}

/// `data` of a `recv_weight`.
#[derive(Deserialize)]
struct Round {
    total_sample: u64,
    #[serde(rename = "round_number")]
    number: u32,
    weights: Vec<Tensor>,
    exit_flag: String,
}

impl Settings {
    /// Reads the settings.
    pub fn from_env(env: &Env) -> Result<Self, EnvError> {
        env.require_socket_transmitter()?;
        let host = env.required("AGG_IP", "the aggregator's host name or address")?;
        // An IPv6 address needs brackets in a URL.
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        let file = |name| env.get(name).map(|_| env.file(name)).transpose();
        Ok(Self {
            aggregator: format!("ws://{host}:{}/FedAvg", env.port("AGG_PORT", 7363)?),
            patience: env.seconds("CONNECT_TIMEOUT", 300.0)?,
            train: env.file("TRAIN_DATASET_URL")?,
            test: file("TEST_DATASET_URL")?,
            pretrained: file("PRETRAINED_MODEL_URL")?,
            model: model::output(env, "MODEL_URL"),
            reported: model::reported(env, "MODEL_URL"),
            recipe: Recipe::from_env(env)?,
            round_period: env.seconds("ROUND_PERIOD", 0.0)?,
            reporter: Reporter::from_env(env, "federatedlearningjob", "train")?,
        })
    }
}

/// Trains until the aggregator says that it is enough; returns the averaged model.
pub async fn run(settings: Settings, stop: CancellationToken) -> Result<Network, TrainerError> {
    tokio::select! {
        trained = train(settings) => trained,
        () = stop.cancelled() => Err(TrainerError::Stopped),
    }
}

async fn train(settings: Settings) -> Result<Network, TrainerError> {
    let train = data::read(&settings.train)?;
    let test = match &settings.test {
        Some(path) => data::read(path)?,
        None => Parts::built_in()?.test,
    };
    let network = match &settings.pretrained {
        Some(path) => model::load(path)?,
        None => settings.recipe.untrained(),
    };
    let link = Link::connect(&settings.aggregator, settings.reporter.worker(), settings.patience).await?;
    tracing::info!("joined {} with {} samples", settings.aggregator, train.len());
    let reports = settings.reporter.clone().queue();
    let patience = settings.patience;
    let mut trainer = Trainer {
        settings,
        train,
        test,
        network,
        link,
        reports,
    };
    let mut round = 0;
    while !trainer.round(round).await? {
        round += 1;
    }
    // First, for the aggregator waits for it.
    trainer.link.close().await;
    if !trainer.reports.drain(patience).await {
        tracing::warn!("the local controller did not take all reports");
    }
    Ok(trainer.network)
}

struct Trainer {
    settings: Settings,
    train: Vec<Sample>,
    test: Vec<Sample>,
    network: Network,
    link: Link,
    reports: ReportQueue,
}

impl Trainer {
    /// One round; says whether it was the last.
    async fn round(&mut self, round: u32) -> Result<bool, TrainerError> {
        let (started, start_time) = (Instant::now(), report::now());
        let own_accuracy = self.train_locally(round).await?;
        tokio::time::sleep_until(started + self.settings.round_period).await;
        let update = json!({
            "type": "update_weight",
            "client": self.settings.reporter.worker(),
            "data": {"num_samples": self.train.len(), "weights": self.network.weights()},
            "job_name": self.settings.reporter.owner(),
        });
        self.link.send(&update).await?;
        let result = self.link.receive("recv_weight").await?;
        let result = Round::deserialize(result.get("data").unwrap_or(&Value::Null))?;
        self.network = Network::from_weights(&result.weights)?;
        let accuracy = self.network.accuracy(&self.test);
        tracing::info!(
            "round {}: accuracy {accuracy:.4} of the average, {own_accuracy:.4} before it",
            result.number
        );
        if let Some(path) = &self.settings.model {
            model::save(path, &result.weights)?;
        }
        let last = result.exit_flag == "ok";
        self.reports.push(self.report(&result, accuracy, start_time, last));
        Ok(last)
    }

    /// Trains on the own share, in a thread that may take its time; returns the accuracy of what comes out.
    async fn train_locally(&mut self, round: u32) -> Result<f64, TrainerError> {
        let mut network = self.network.clone();
        let (recipe, train) = (self.settings.recipe.clone(), std::mem::take(&mut self.train));
        let training = tokio::task::spawn_blocking(move || {
            recipe.train_round(&mut network, &train, round);
            (network, train)
        });
        (self.network, self.train) = training.await?;
        Ok(self.network.accuracy(&self.test))
    }

    fn report(&self, result: &Round, accuracy: f64, start_time: String, last: bool) -> Report {
        let (format, url) = self.settings.reported.clone();
        let metrics = Map::from_iter([("accuracy".to_owned(), report::rounded(accuracy))]);
        let owner_info = [
            ("currentRound", Value::from(result.number)),
            ("sampleCount", Value::from(result.total_sample)),
            ("startTime", Value::from(start_time)),
            ("updateTime", Value::from(report::now())),
        ];
        Report {
            status: Some(if last { "completed" } else { "running" }),
            results: vec![ModelResult { format, url, metrics }],
            owner_info: owner_info
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        }
    }
}
