//! `/healthz`, `/readyz` and `/metrics`: whether the process lives, whether it can work (and what it lacks), and what it
//! counted. `/nodes`: how the nodes stand that it serves, for `skerry nodes`.

use std::sync::Arc;

use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use tokio::sync::watch;

use crate::{
    engine::Engine,
    hub::{Hub, NodeStatus},
    metrics::Metrics,
};

/// What readiness is told from.
#[derive(Clone)]
pub struct Readiness {
    /// Knows which kinds have not been listed.
    pub engine: Engine,
    /// What the Lease is called.
    pub lease: String,
    /// Why it cannot be known who holds the Lease.
    pub trouble: watch::Receiver<Option<String>>,
    /// Knows the nodes.
    pub hub: Hub,
    /// Whether nodes connect over TLS: then it has to know what is revoked.
    pub tls: bool,
}

/// The admin routes.
pub fn router(readiness: Readiness, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/nodes", get(nodes).with_state(readiness.hub.clone()))
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
        tls,
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
    let unproven = tls && !hub.knows_revocations();
    let unproven =
        unproven.then(|| "nodes over TLS: there is no authority, or EdgeNodes are not yet listed\n".to_owned());
    let missing: String = unlisted.into_iter().chain(unheld).chain(unproven).collect();
    if missing.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, missing)
    }
}

/// All nodes of which the leader knows; a standby serves none.
async fn nodes(State(hub): State<Hub>) -> Result<Json<Vec<NodeStatus>>, (StatusCode, &'static str)> {
    if hub.leads() {
        Ok(Json(hub.nodes()))
    } else {
        Err((
            StatusCode::SERVICE_UNAVAILABLE,
            "this manager does not serve nodes now\n",
        ))
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
