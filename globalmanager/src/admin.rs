//! `/healthz`, `/readyz` and `/metrics`: whether the process lives, whether it can work (and what it lacks), and what it
//! counted.

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, routing::get};

use crate::{engine::Engine, metrics::Metrics};

/// The admin routes.
pub fn router(engine: Engine, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready).with_state(engine))
        .route("/metrics", get(counted).with_state(metrics))
}

/// Ready once every kind has been listed; a standby is ready too, since it can take over at once.
async fn ready(State(engine): State<Engine>) -> (StatusCode, String) {
    let missing: Vec<_> = engine
        .missing()
        .iter()
        .map(|kind| format!("{}.{}", kind.plural, kind.group))
        .collect();
    if missing.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        let missing = missing.join(", ");
        (StatusCode::SERVICE_UNAVAILABLE, format!("not yet listed: {missing}\n"))
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
