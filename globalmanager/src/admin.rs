//! `/healthz`, `/readyz` and `/metrics`: whether the process lives, whether it can work (and what it lacks), and what it
//! counted.

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::sync::watch;

use crate::{engine::Engine, hub::Hub, metrics::Metrics};

/// What readiness is told from.
#[derive(Clone)]
pub struct Readiness {
    /// Knows which kinds have not been listed.
    pub engine: Engine,
    /// What the Lease is called.
    pub lease: String,
    /// Why it cannot be known who holds the Lease.
    pub trouble: watch::Receiver<Option<String>>,
    /// Knows what is revoked, where nodes connect over TLS.
    pub hub: Option<Hub>,
}

/// The admin routes.
pub fn router(readiness: Readiness, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(counted).with_state(metrics))
}

/// Ready once every kind has been listed, it is known who holds the Lease and, over TLS, which nodes were turned away; a standby is ready too, since it can take
/// over at once.
async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let Readiness {
        engine,
        lease,
        trouble,
        hub,
    } = readiness;
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
    let unproven = hub.is_some_and(|hub| !hub.knows_revocations());
    let unproven =
        unproven.then(|| "nodes over TLS: there is no authority, or EdgeNodes are not yet listed\n".to_owned());
    let missing: String = unlisted.into_iter().chain(unheld).chain(unproven).collect();
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
