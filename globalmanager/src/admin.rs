//! `/healthz`, `/readyz` and `/metrics`: whether the process lives, whether it can work (and what it lacks), and what it
//! counted.

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::sync::watch;

use crate::{engine::Engine, metrics::Metrics};

/// What readiness is told from.
#[derive(Clone)]
pub struct Readiness {
    /// Knows which kinds have not been listed.
    pub engine: Engine,
    /// What the Lease is called.
    pub lease: String,
    /// Why it cannot be known who holds the Lease.
    pub trouble: watch::Receiver<Option<String>>,
}

/// The admin routes.
pub fn router(readiness: Readiness, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(counted).with_state(metrics))
}

/// Ready once every kind has been listed and it is known who holds the Lease; a standby is ready too, since it can take
/// over at once.
async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let Readiness { engine, lease, trouble } = readiness;
    let unlisted: Vec<_> = engine
        .missing()
        .iter()
        .map(|kind| match kind.group {
            "" => kind.plural.to_owned(),
            group => format!("{}.{group}", kind.plural),
        })
        .collect();
    let unlisted = (!unlisted.is_empty()).then(|| format!("not yet listed: {}\n", unlisted.join(", ")));
    let unheld = trouble.borrow().as_ref().map(|why| format!("{lease}: {why}\n"));
    let missing: String = unlisted.into_iter().chain(unheld).collect();
    if missing.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, missing)
    }
}

async fn counted(State(metrics): State<Arc<Metrics>>) -> ([(&'static str, &'static str); 1], String) {
    (
        [(
            "content-type",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )],
        metrics.encode(),
    )
}
