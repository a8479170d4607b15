//! `/healthz`, `/readyz` and `/metrics`: whether the process lives, whether it can work (and what it lacks), and what it
//! counted. `/nodes`: how the nodes stand that it serves, for `skerry nodes`.
//!
//! Whoever reaches the port may ask, and costs as little as one that has proven nothing where nodes come.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderValue, StatusCode, header::CONNECTION},
    middleware,
    response::Response,
    routing::get,
    serve::Listener,
};
use skerry_edge::transport::{
    doors::{Capacity, Doors},
    plain::PlainListener,
    server,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    engine::Engine,
    hub::{Hub, NodeStatus},
    metrics::Metrics,
};

/// Connections at once: a few scrapers, the probes of the kubelet, and people.
pub const CONNECTIONS: usize = 256;

/// Of these, from one address: one scraper or person does not take the place of the probes.
pub const CONNECTIONS_PER_ADDRESS: usize = 64;

/// Serves the admin routes until `stop`, and waits for nobody then: what is asked is answered at once, or was never asked in
/// full.
pub async fn serve(listener: impl Listener<Addr = SocketAddr>, router: Router, stop: CancellationToken) {
    let doors = Doors::new(Capacity {
        unproven: CONNECTIONS,
        unproven_per_address: CONNECTIONS_PER_ADDRESS,
        nodes: 0,
        per_node: 0,
    });
    let router = router.layer(middleware::map_response(last));
    server::serve(PlainListener::new(listener, doors), router, stop).await;
}

/// A connection is for one request: how long it may last is then for that one alone, and cuts off none that comes late.
async fn last(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_documented_with_its_value() {
        let documented = include_str!("../../docs/edge-limits.md");
        let (_, ours) = documented.split_once("## Of the admin port").unwrap();
        for (name, value) in [
            ("CONNECTIONS", CONNECTIONS),
            ("CONNECTIONS_PER_ADDRESS", CONNECTIONS_PER_ADDRESS),
        ] {
            let row = format!("| `{name}` | {value} |");
            assert!(ours.contains(&row), "docs/edge-limits.md has no row {row}");
        }
    }
}
