//! What workers (and probes) talk to over HTTP: Sedna's one worker route, byte for byte, beside health and metrics.
//!
//! Decides what a worker is answered and when: a report is in the durable outbox before its worker hears that all is
//! well, so that no worker ever waits for the manager. It never looks at the link except to say how it stands.

pub mod limits;
mod message;
mod origin;
mod serve;
#[cfg(test)]
mod tests;

use std::{fmt::Write as _, sync::Arc};

use axum::{
    Extension, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, Request, State, rejection::BytesRejection},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use skerry_edge::{limits::MAX_REPORT, node, rate::Rates, seldom::Seldom};
use tokio::{sync::watch, time::timeout};

pub use self::{
    message::{Meant, MessageError, read},
    origin::{Network, Origin, Stranger},
    serve::{Caller, Port},
};
use crate::{
    link::OUT_OF_STEP,
    metrics::{Metrics, Outcome},
    store::{Admission, NewReport, Store, StoreError},
};

/// What the routes work with.
#[derive(Clone, Debug)]
pub struct Api {
    /// Where reports go.
    pub store: Store,
    /// How the link stands.
    pub link: watch::Receiver<node::State>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// All routes.
pub fn router(api: Api) -> Router {
    let workers = Workers::new(api.clone());
    Router::new()
        .route("/sedna/workers/{worker}/info", post(info).with_state(workers))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .layer(DefaultBodyLimit::max(MAX_REPORT))
        .layer(middleware::from_fn(in_time))
        .with_state(api)
}

/// Sedna's answer: both its fields begin with a capital.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    status: u16,
    message: String,
}

/// An answer as Sedna writes it: indented by one space, no line break at the end.
fn answer(status: StatusCode, message: impl Into<String>) -> Response {
    let answer = Answer {
        status: status.as_u16(),
        message: message.into(),
    };
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b" "));
    match answer.serialize(&mut serializer) {
        Ok(()) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn in_time(request: Request, next: Next) -> Response {
    let late = || answer(StatusCode::REQUEST_TIMEOUT, "the request took too long");
    timeout(limits::REQUEST, next.run(request))
        .await
        .unwrap_or_else(|_| late())
}

/// What the workers' route works with.
#[derive(Clone, Debug)]
struct Workers {
    api: Api,
    rates: Arc<Rates>,
    /// Whatever a worker sends, it does not fill the log.
    line: Arc<Seldom>,
}

/// Why a worker's message is not taken: a word for metrics, and what the worker is told.
struct Refusal(&'static str, StatusCode, String);

impl Refusal {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self("refused", status, message.into())
    }
}

async fn info(
    State(workers): State<Workers>,
    Extension(caller): Extension<Caller>,
    Path(worker): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let (outcome, response) = match workers.take(&worker, caller, &headers, body).await {
        Ok(outcome) => (outcome, answer(StatusCode::OK, "OK")),
        Err(Refusal(outcome, status, message)) => {
            if let Some(left_out) = workers.line.line() {
                let worker: String = worker.chars().take(skerry_edge::limits::MAX_NAME).collect();
                tracing::warn!(worker, %status, message, left_out, "a worker's message is refused");
            }
            (outcome, answer(status, message))
        }
    };
    let counted = &workers.api.metrics.worker_messages;
    counted.get_or_create(&Outcome::new(outcome)).inc();
    response
}

impl Workers {
    fn new(api: Api) -> Self {
        Self {
            api,
            rates: Arc::new(Rates::new(limits::BURST, limits::EVERY, limits::COUNTED)),
            line: Arc::default(),
        }
    }

    /// Takes a message, in the order in which it costs little to refuse it; a word for what became of it.
    async fn take(
        &self,
        worker: &str,
        Caller(caller): Caller,
        headers: &HeaderMap,
        body: Result<Bytes, BytesRejection>,
    ) -> Result<&'static str, Refusal> {
        caller.map_err(|stranger| Refusal("stranger", StatusCode::FORBIDDEN, stranger.to_string()))?;
        if !is_json(headers) {
            let message = "a worker's message has to be JSON, with Content-Type: application/json";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let body = body.map_err(|rejection| Refusal::new(rejection.status(), rejection.body_text()))?;
        let report = match read(worker, &body) {
            Ok(Meant::Report(report)) => *report,
            Ok(Meant::Nothing(why)) => {
                if let Some(left_out) = self.line.line() {
                    tracing::warn!(worker, why, left_out, "a worker's message is dropped");
                }
                return Ok("dropped");
            }
            Err(error) => return Err(error.into()),
        };
        self.admit(worker, &report).await?;
        self.api.store.push(report).await?;
        Ok("accepted")
    }

    /// Whether the node has this worker, and the worker has not had its share.
    async fn admit(&self, worker: &str, report: &NewReport) -> Result<(), Refusal> {
        let key = &report.key;
        let share = match self.api.store.admits(key, worker).await? {
            Admission::Listed => format!("{key}/{worker}"),
            // Of whom nothing is known yet, all have one share.
            Admission::Homeless => String::new(),
            Admission::NotListed => {
                let message = format!("{key} has no worker {worker:?} on this node");
                return Err(Refusal("unknown_worker", StatusCode::FORBIDDEN, message));
            }
        };
        self.rates.take(&share).map_err(|wait| {
            let message = format!(
                "more than {} messages at once, and one in {} ms: try again in {} ms",
                limits::BURST,
                limits::EVERY.as_millis(),
                wait.as_millis()
            );
            Refusal("too_many", StatusCode::TOO_MANY_REQUESTS, message)
        })
    }
}

impl From<MessageError> for Refusal {
    fn from(error: MessageError) -> Self {
        let status = match error {
            MessageError::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            MessageError::Malformed(_) | MessageError::Name { .. } | MessageError::TooDeep => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "a worker's report cannot be kept");
        let status = match error {
            StoreError::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self("failed", status, error.to_string())
    }
}

/// Whether the body is said to be JSON, or nothing is said of it.
fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_none_or(|value| {
        let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("application/json")
    })
}

/// Ready is who can take a worker's report; without the manager a node is as ready as with it.
async fn readyz(State(api): State<Api>) -> Response {
    let link = match &*api.link.borrow() {
        node::State::Live => "connected".to_owned(),
        node::State::Connecting => "connecting".to_owned(),
        node::State::Waiting { cause: None, .. } => "not yet connected".to_owned(),
        node::State::Waiting { cause: Some(cause), .. } => format!("not connected: {cause}"),
    };
    let held = match api.store.trouble() {
        None => api.store.holds().await,
        Some(trouble) => Err(trouble),
    };
    let (status, word, store) = match held {
        Ok(items) => (StatusCode::OK, "ok", format!("{items} items")),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, "not ready", error.to_string()),
    };
    let mut text = format!("{word}\nstore: {store}\nlink: {link}\n");
    for aside in api.store.moved_aside() {
        let lost = "reports of it that could not be read are only there";
        // Writing to a text cannot fail.
        let _ = writeln!(text, "a damaged store was moved to {}: {lost}", aside.display());
    }
    let times = api.metrics.store_out_of_step.get();
    if times > 0 {
        let _ = writeln!(text, "store out of step ({times} since the start): {OUT_OF_STEP}");
    }
    (status, text).into_response()
}

async fn metrics(State(api): State<Api>) -> Response {
    let Api { store, link, metrics } = api;
    let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    if let (Ok(items), Ok(totals)) = (store.holds().await, store.outbox().await) {
        metrics.items.set(gauge(items));
        metrics.outbox_reports.set(gauge(totals.count));
        metrics.outbox_bytes.set(gauge(totals.bytes));
    }
    metrics.stores_moved_aside.set(gauge(store.moved_aside().len() as u64));
    metrics.link_live.set(i64::from(*link.borrow() == node::State::Live));
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
