//! The edge worker of joint inference: a small model looks at a stream of samples; what its filter finds hard goes to
//! the large model in the cloud.
//!
//! Neither an absent cloud nor an absent local controller stops it: without the cloud the small model's answer stands,
//! and counts go on until the local controller takes them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::data::{self, DataError, Parts, Sample};
use crate::env::{Env, EnvError};
use crate::hard_example::{Answer, Filter};
use crate::model::{self, ModelError};
use crate::network::{Network, most_probable};
use crate::report::{self, Report, Reporter};

/// How long the cloud may take for an answer.
const CLOUD_PATIENCE: Duration = Duration::from_secs(5);
/// After a failure the cloud is left alone for so long, so that the stream does not stall at each hard sample.
const CLOUD_PAUSE: Duration = Duration::from_secs(1);
/// Pauses between attempts to report grow from this to the reporting period.
const FIRST_REPORT_PAUSE: Duration = Duration::from_millis(500);
/// How long the last report may take when the worker is told to stop.
const LAST_REPORT: Duration = Duration::from_secs(2);

/// What the edge worker is told.
#[derive(Debug)]
pub struct Settings {
    /// `MODEL_URL`.
    pub model: PathBuf,
    /// `SAMPLES_URL`; where it is not set, the digits' own stream.
    pub samples: Option<PathBuf>,
    /// `SAMPLES_PER_SECOND`: as many as a camera would send.
    pub rate: f64,
    /// `HEM_NAME` and `HEM_PARAMETERS`.
    pub filter: Filter,
    /// `http://{BIG_MODEL_IP}:{BIG_MODEL_PORT}/{JOB_NAME}/predict`.
    pub cloud: String,
    /// `LC_PERIOD`: the time between reports.
    pub period: Duration,
    /// Where to report.
    pub reporter: Reporter,
}

/// Why the edge worker cannot work.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// The environment does not do.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The model cannot be read.
    #[error("MODEL_URL: {0}")]
    Model(#[from] ModelError),
    /// Samples cannot be read.
    #[error("SAMPLES_URL: {0}")]
    Samples(#[from] DataError),
    /// The HTTP client cannot be made.
    #[error("no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

impl Settings {
    /// Reads the settings.
    pub fn from_env(env: &Env) -> Result<Self, EnvError> {
        const WANTED: &str = "a number above 0, at most 100000,";
        let rate = env.parsed("SAMPLES_PER_SECOND", 10.0, WANTED)?;
        if !(rate > 0.0 && rate <= 100_000.0) {
            let (name, value) = ("SAMPLES_PER_SECOND", rate.to_string());
            return Err(EnvError::Invalid {
                name,
                value,
                wanted: WANTED.into(),
            });
        }
        let host = env.required("BIG_MODEL_IP", "the host name or address of the cloud worker")?;
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        Ok(Self {
            model: env.file("MODEL_URL")?,
            samples: env.get("SAMPLES_URL").map(|_| env.file("SAMPLES_URL")).transpose()?,
            rate,
            filter: Filter::from_env(env)?,
            cloud: format!(
                "http://{host}:{}/{}/predict",
                env.port("BIG_MODEL_PORT", 5000)?,
                env.owner_name()?
            ),
            period: env.seconds("LC_PERIOD", 30.0)?.max(Duration::from_millis(10)),
            reporter: Reporter::from_env(env, "jointinferenceservice", "inference")?,
        })
    }
}

/// What happened since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    inferences: u32,
    hard: u32,
    unanswered: u32,
    right_alone: u32,
    right_jointly: u32,
}

impl Counts {
    /// As the manager puts them into the service's status: the first three are Sedna's, the others ours.
    fn report(self, start_time: &str) -> Report {
        let share = |count: u32| report::rounded(f64::from(count) / f64::from(self.inferences.max(1)));
        let owner_info = [
            ("startTime", Value::from(start_time)),
            ("updateTime", Value::from(report::now())),
            ("inferenceNumber", json!(self.inferences)),
            ("hardExampleNumber", json!(self.hard)),
            ("uploadCloudRatio", share(self.hard)),
            ("jointAccuracy", share(self.right_jointly)),
            ("edgeAccuracy", share(self.right_alone)),
            ("cloudFailures", json!(self.unanswered)),
        ];
        let owner_info = owner_info
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        Report {
            status: None,
            results: Vec::new(),
            owner_info,
        }
    }
}

type Shared = Arc<Mutex<Counts>>;

fn lock(counts: &Shared) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Works until `stop`.
pub async fn run(settings: Settings, stop: CancellationToken) -> Result<(), EdgeError> {
    let Settings {
        model,
        samples,
        rate,
        filter,
        cloud,
        period,
        reporter,
    } = settings;
    let network = model::load(&model)?;
    let samples = match samples {
        Some(path) => data::read(&path)?,
        None => Parts::built_in()?.stream,
    };
    tracing::info!(
        "{} samples, {rate} a second, {filter:?}, cloud at {cloud}",
        samples.len()
    );
    let cloud = Cloud {
        client: report::http_client(CLOUD_PATIENCE)?,
        url: cloud,
        away_until: None,
    };
    let counts = Shared::default();
    let start_time = report::now();
    tokio::select! {
        () = work(samples, rate, Worker { network, filter, cloud, counts: Arc::clone(&counts) }) => {}
        () = report_for_ever(&counts, &reporter, period, &start_time) => {}
        () = stop.cancelled() => {}
    }
    let last = lock(&counts).report(&start_time);
    if !matches!(
        tokio::time::timeout(LAST_REPORT, reporter.send(&last)).await,
        Ok(Ok(()))
    ) {
        tracing::warn!("the local controller did not take the last report");
    }
    Ok(())
}

async fn work(samples: Vec<Sample>, rate: f64, mut worker: Worker) {
    let mut tick = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for sample in samples.iter().cycle() {
        tick.tick().await;
        worker.meet(sample).await;
    }
}

/// Reports whenever something was counted; after a failure sooner than the period asks, with the counts of then.
async fn report_for_ever(counts: &Shared, reporter: &Reporter, period: Duration, start_time: &str) {
    let mut delivered = Counts::default();
    let (mut pause, mut next_pause) = (period, FIRST_REPORT_PAUSE);
    loop {
        tokio::time::sleep(pause).await;
        let now = *lock(counts);
        if now == delivered {
            continue;
        }
        let report = now.report(start_time);
        match reporter.send(&report).await {
            Ok(()) => {
                tracing::info!("{}", json!(report.owner_info));
                (delivered, pause, next_pause) = (now, period, FIRST_REPORT_PAUSE);
            }
            Err(error) => {
                pause = next_pause.min(period);
                next_pause = pause * 2;
                tracing::warn!("{error}; trying again in {pause:?}");
            }
        }
    }
}

struct Worker {
    network: Network,
    filter: Filter,
    cloud: Cloud,
    counts: Shared,
}

impl Worker {
    async fn meet(&mut self, sample: &Sample) {
        let probabilities = self.network.probabilities(&sample.pixels);
        let alone = most_probable(&probabilities);
        let hard = self.filter.is_hard(&as_answer(probabilities, alone));
        let from_cloud = if hard { self.cloud.ask(sample).await } else { None };
        let jointly = from_cloud.as_deref().map_or(alone, most_probable);
        let mut counts = lock(&self.counts);
        counts.inferences += 1;
        counts.hard += u32::from(hard);
        counts.unanswered += u32::from(hard && from_cloud.is_none());
        counts.right_alone += u32::from(alone == sample.label);
        counts.right_jointly += u32::from(jointly == sample.label);
    }
}

/// For filters that look at boxes: the digit fills the image, its score is its probability.
#[expect(clippy::cast_precision_loss, reason = "a digit")]
fn as_answer(probabilities: Vec<f64>, digit: usize) -> Answer {
    let score = probabilities.get(digit).copied().unwrap_or_default();
    Answer {
        probabilities,
        boxes: vec![vec![0.0, 0.0, 8.0, 8.0, score, digit as f64]],
    }
}

struct Cloud {
    client: reqwest::Client,
    url: String,
    away_until: Option<Instant>,
}

impl Cloud {
    /// What the large model says; none when it cannot be asked.
    async fn ask(&mut self, sample: &Sample) -> Option<Vec<f64>> {
        if self.away_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let answer = self.request(sample).await;
        let was_away = self.away_until.take().is_some();
        match &answer {
            Ok(_) if was_away => tracing::info!("the cloud answers again"),
            Ok(_) => {}
            Err(error) => {
                if !was_away {
                    tracing::warn!("the cloud does not answer, the small model's answers stand: {error}");
                }
                self.away_until = Some(Instant::now() + CLOUD_PAUSE);
            }
        }
        answer.ok()
    }

    async fn request(&self, sample: &Sample) -> Result<Vec<f64>, String> {
        #[derive(Deserialize)]
        struct Prediction {
            result: Vec<f64>,
        }
        let body = json!({"data": sample.pixels, "callback": null}).to_string();
        let request = self
            .client
            .post(&self.url)
            .header("Content-Type", "application/json")
            .body(body);
        let answer = request.send().await.and_then(reqwest::Response::error_for_status);
        let failed = |error: reqwest::Error| report::cause(&error.without_url());
        let body = answer.map_err(failed)?.bytes().await.map_err(failed)?;
        serde_json::from_slice(&body)
            .map(|prediction: Prediction| prediction.result)
            .map_err(|error| error.to_string())
    }
}
