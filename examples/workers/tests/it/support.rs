//! A local controller that keeps what workers report, and what the tests share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use skerry_workers::data::Sample;
use skerry_workers::network::Network;
use skerry_workers::recipe::ROUND;
use skerry_workers::tensor::federated_average;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Far more than any step of a test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps every report that it accepts, in order.
pub(crate) struct LocalController {
    pub(crate) url: String,
    outages: Arc<AtomicU32>,
    reports: mpsc::UnboundedReceiver<Value>,
}

#[derive(Clone)]
struct Served {
    outages: Arc<AtomicU32>,
    reports: mpsc::UnboundedSender<Value>,
}

impl LocalController {
    pub(crate) async fn start() -> Self {
        // What `main` does; a second time is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (sender, reports) = mpsc::unbounded_channel();
        let outages = Arc::new(AtomicU32::new(0));
        let served = Served {
            outages: Arc::clone(&outages),
            reports: sender,
        };
        let router = Router::new()
            .route("/sedna/workers/{name}/info", post(take))
            .with_state(served);
        let url = format!("http://{}", serve(router).await);
        Self { url, outages, reports }
    }

    /// The next so many reports are refused.
    pub(crate) fn refuse(&self, reports: u32) {
        self.outages.store(reports, Ordering::SeqCst);
    }

    /// The next report.
    pub(crate) async fn next(&mut self) -> Value {
        tokio::time::timeout(PATIENCE, self.reports.recv())
            .await
            .expect("no report came")
            .unwrap()
    }

    /// Reports that have come and were not looked at.
    pub(crate) fn rest(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.reports.try_recv().ok()).collect()
    }
}

async fn take(State(served): State<Served>, Path(name): Path<String>, Json(report): Json<Value>) -> Response {
    let refused = served
        .outages
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
        .is_ok();
    if refused {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    assert_eq!(report["name"], name);
    served.reports.send(report).unwrap();
    Json(json!({"Status": 200, "Message": "OK"})).into_response()
}

/// Serves on a free port of this machine.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

/// What a federated job of these shares should arrive at, without any socket.
pub(crate) fn federated(shares: &[Vec<Sample>], rounds: u32) -> Network {
    (0..rounds).fold(ROUND.untrained(), |average, round| {
        let trained: Vec<_> = shares
            .iter()
            .map(|share| {
                let mut network = average.clone();
                ROUND.train_round(&mut network, share, round);
                (u32::try_from(share.len()).unwrap(), network.weights())
            })
            .collect();
        let parts: Vec<_> = trained
            .iter()
            .map(|(samples, weights)| (*samples, weights.as_slice()))
            .collect();
        Network::from_weights(&federated_average(&parts).unwrap()).unwrap()
    })
}

/// A share as the examples' page tells it.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", (share * 1000.0).round() / 10.0)
}

/// Checks that the examples' page says so, however its lines are broken.
pub(crate) fn page_tells(sentence: &str) {
    println!("{sentence}");
    let page = include_str!("../../../README.md")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(page.contains(sentence), "examples/README.md does not say: {sentence}");
}
