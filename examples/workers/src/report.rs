//! Reports to the local controller: `POST {LC_SERVER}/sedna/workers/{name}/info`, as Sedna's worker library sends them.
//!
//! A local controller that is away costs no worker its life and no round its report: reports wait and are sent again.

use std::time::Duration;

use jiff::Zoned;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::env::{Env, EnvError};

/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(10);
/// The first pause after a failed attempt; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause: Sedna's library knows no other.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// Who reports, and for whom.
#[derive(Debug, Clone)]
pub struct Reporter {
    client: reqwest::Client,
    url: String,
    identity: Identity,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    name: String,
    namespace: String,
    owner_name: String,
    owner_kind: &'static str,
    /// The phase that the worker is in.
    kind: &'static str,
}

/// What is reported.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `running` or `completed`; a service reports none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'static str>,
    /// The models that were made.
    pub results: Vec<ModelResult>,
    /// Counts and times, by the names that the manager knows, and any others.
    pub owner_info: Map<String, Value>,
}

/// A model and how good it is.
#[derive(Debug, Clone, Serialize)]
pub struct ModelResult {
    /// The file's extension.
    pub format: String,
    /// The file, as the user named it.
    pub url: String,
    /// Measures by name.
    pub metrics: Map<String, Value>,
}

/// Why a report did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// No answer.
    #[error("the local controller does not answer: {0}")]
    Unreachable(String),
    /// An answer that is not the 200 with JSON that the contract asks for.
    #[error("the local controller answers {status}: {body}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What the answer says, shortened.
        body: String,
    },
}

impl Reporter {
    /// A reporter for the worker that this environment describes. `kind` is the phase, `train` or `inference`.
    pub fn from_env(env: &Env, owner_kind: &'static str, kind: &'static str) -> Result<Self, EnvError> {
        let owner_name = env.owner_name()?.to_owned();
        let identity = Identity {
            name: env.required("WORKER_NAME", "the name of this worker")?.to_owned(),
            namespace: env.get("NAMESPACE").unwrap_or(&owner_name).to_owned(),
            owner_name,
            owner_kind,
            kind,
        };
        let server = env
            .get("LC_SERVER")
            .unwrap_or("http://127.0.0.1:9100")
            .trim_end_matches('/');
        let client = http_client(ATTEMPT).map_err(|error| EnvError::Invalid {
            name: "LC_SERVER",
            value: server.to_owned(),
            wanted: format!("a server that can be spoken to ({error})"),
        })?;
        Ok(Self {
            client,
            url: format!("{server}/sedna/workers/{}/info", identity.name),
            identity,
        })
    }

    /// The name of the worker that reports.
    pub fn worker(&self) -> &str {
        &self.identity.name
    }

    /// The job or service that the worker belongs to.
    pub fn owner(&self) -> &str {
        &self.identity.owner_name
    }

    /// One attempt.
    pub async fn send(&self, report: &Report) -> Result<(), ReportError> {
        #[derive(Serialize)]
        struct Body<'a> {
            #[serde(flatten)]
            identity: &'a Identity,
            #[serde(flatten)]
            report: &'a Report,
        }
        let body = serde_json::to_vec(&Body {
            identity: &self.identity,
            report,
        })
        .unwrap_or_default();
        let request = self
            .client
            .post(&self.url)
            .header("Content-Type", "application/json")
            .body(body);
        let answer = request
            .send()
            .await
            .map_err(|error| ReportError::Unreachable(cause(&error)))?;
        let status = answer.status().as_u16();
        let body = answer
            .bytes()
            .await
            .map_err(|error| ReportError::Unreachable(cause(&error)))?;
        if status == 200 && serde_json::from_slice::<Value>(&body).is_ok() {
            return Ok(());
        }
        Err(ReportError::Refused {
            status,
            body: String::from_utf8_lossy(&body).chars().take(200).collect(),
        })
    }

    /// Sends reports in the background, in order, each until it has arrived.
    pub fn queue(self) -> ReportQueue {
        let (queue, mut reports) = mpsc::unbounded_channel::<Report>();
        let task = tokio::spawn(async move {
            while let Some(report) = reports.recv().await {
                let mut pause = FIRST_PAUSE;
                while let Err(error) = self.send(&report).await {
                    tracing::warn!("{error}; trying again in {pause:?}");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        });
        ReportQueue { queue, task }
    }
}

/// Reports on their way.
#[derive(Debug)]
pub struct ReportQueue {
    queue: mpsc::UnboundedSender<Report>,
    task: JoinHandle<()>,
}

impl ReportQueue {
    /// Adds a report. A job has few rounds, so the queue needs no bound.
    pub fn push(&self, report: Report) {
        // The receiver lives as long as this queue.
        let _ = self.queue.send(report);
    }

    /// Waits until all have arrived, but not longer than `limit`; says whether they have.
    pub async fn drain(self, limit: Duration) -> bool {
        drop(self.queue);
        let abort = self.task.abort_handle();
        let drained = tokio::time::timeout(limit, self.task).await.is_ok();
        abort.abort();
        drained
    }
}

/// A client for the plain HTTP between workers, their local controller and each other. It trusts no certificate, so
/// that it needs none on the machine; TLS there is what a mesh adds.
pub fn http_client(timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .timeout(timeout)
        .no_proxy()
        .tls_certs_only([])
        .build()
}

/// The error at the end of the chain, which says what happened; those before it say that something did.
pub fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}

/// Now, as Sedna's reports write times.
pub fn now() -> String {
    Zoned::now().strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// A measure with four decimals, which is what samples of this size can tell.
pub fn rounded(value: f64) -> Value {
    Value::from((value * 10_000.0).round() / 10_000.0)
}
