//! What workers (and probes) talk to over HTTP: Sedna's one worker route, byte for byte, beside health and metrics.
//!
//! Decides what a worker is answered and when: a report is in the durable outbox before its worker hears that all is
//! well, so that no worker ever waits for the manager. It never looks at the link except to say how it stands.

mod message;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, Request, State, rejection::BytesRejection},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use skerry_edge::{limits, node};
use tokio::{sync::watch, time::timeout};

pub use self::message::{Meant, MessageError, read};
use crate::{
    metrics::{Metrics, Outcome},
    store::{Store, StoreError},
};

/// How long a request may take from its head to its answer. Workers are on this node, and the store is quick.
const PATIENCE: Duration = Duration::from_secs(10);

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
    Router::new()
        .route("/sedna/workers/{worker}/info", post(info))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .layer(DefaultBodyLimit::max(limits::MAX_REPORT))
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
    timeout(PATIENCE, next.run(request)).await.unwrap_or_else(|_| late())
}

async fn info(
    State(api): State<Api>,
    Path(worker): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let (outcome, response) = take(&api.store, &worker, &headers, body).await;
    api.metrics.worker_messages.get_or_create(&Outcome::new(outcome)).inc();
    response
}

async fn take(
    store: &Store,
    worker: &str,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> (&'static str, Response) {
    let refuse = |status, message: String| {
        tracing::warn!(worker, %status, message, "a worker's message is refused");
        ("refused", answer(status, message))
    };
    if !is_json(headers) {
        let message = "a worker's message has to be JSON, with Content-Type: application/json";
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, message.to_owned());
    }
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return refuse(rejection.status(), rejection.body_text()),
    };
    let report = match read(worker, &body) {
        Ok(Meant::Report(report)) => *report,
        Ok(Meant::Nothing(why)) => {
            tracing::warn!(worker, why, "a worker's message is dropped");
            return ("dropped", answer(StatusCode::OK, "OK"));
        }
        Err(error) => {
            let status = match error {
                MessageError::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
                MessageError::Malformed(_) | MessageError::Name { .. } | MessageError::TooDeep => {
                    StatusCode::BAD_REQUEST
                }
            };
            return refuse(status, error.to_string());
        }
    };
    match store.push(report).await {
        Ok(()) => ("accepted", answer(StatusCode::OK, "OK")),
        Err(error) => {
            tracing::error!(worker, %error, "a worker's report cannot be kept");
            let status = match error {
                StoreError::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            ("failed", answer(status, error.to_string()))
        }
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
    match api.store.holds().await {
        Ok(items) => (StatusCode::OK, format!("ok\nstore: {items} items\nlink: {link}\n")).into_response(),
        Err(error) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready\nstore: {error}\nlink: {link}\n"),
        )
            .into_response(),
    }
}

async fn metrics(State(api): State<Api>) -> Response {
    let Api { store, link, metrics } = api;
    let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    if let (Ok(items), Ok(totals)) = (store.holds().await, store.outbox().await) {
        metrics.items.set(gauge(items));
        metrics.outbox_reports.set(gauge(totals.count));
        metrics.outbox_bytes.set(gauge(totals.bytes));
    }
    metrics.link_live.set(i64::from(*link.borrow() == node::State::Live));
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
