//! The link to the manager: the protocol crate's session over the node's own store.
//!
//! Decides nothing of the protocol. What is stored is durable before the session hears of it; a report that was
//! answered is removed in the background, since one that stays is only sent, and answered, once more.

use std::sync::Arc;

use skerry_edge::{
    ReportResult, Row,
    link::{self, Signals},
    node::{Batch, Identity, Outgoing, Session, State},
    transport::client::TcpDialer,
};
use uuid::Uuid;

use crate::{
    metrics::{Metrics, Outcome},
    store::{Store, StoreError},
};

/// Runs the link until it is told to stop.
pub async fn run(
    node: String,
    manager: String,
    store: Store,
    metrics: Arc<Metrics>,
    signals: Signals,
) -> Result<(), StoreError> {
    let identity = Identity {
        node,
        boot: Uuid::new_v4().to_string(),
        agent: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let session = Session::new(identity, store.position().await?, store.holds().await?);
    let log = tokio::spawn(log(signals.clone(), metrics.clone()));
    let linked = Linked { store, metrics };
    let dialer = TcpDialer::new(manager);
    link::run(session, dialer, Arc::new(linked), signals, rand::random::<f64>).await;
    log.abort();
    Ok(())
}

/// Says when the link comes up and why it goes down.
async fn log(signals: Signals, metrics: Arc<Metrics>) {
    let mut state = signals.state.subscribe();
    let mut said = None;
    while state.changed().await.is_ok() {
        match &*state.borrow_and_update() {
            State::Live => {
                said = None;
                metrics.sessions.inc();
                tracing::info!("connected with the manager");
            }
            State::Waiting { cause: Some(cause), .. } if said.as_ref() != Some(cause) => {
                said = Some(cause.clone());
                tracing::warn!(cause, "not connected with the manager; the node goes on by itself");
            }
            State::Waiting { .. } | State::Connecting => {}
        }
    }
}

/// The store as the session sees it.
#[derive(Debug)]
struct Linked {
    store: Store,
    metrics: Arc<Metrics>,
}

impl Linked {
    fn counted<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        result.inspect_err(|error| {
            tracing::error!(%error, "the link cannot use the store");
            let outcome = Outcome::new(error.category());
            self.metrics.store_failures.get_or_create(&outcome).inc();
        })
    }
}

impl link::Store for Linked {
    type Error = StoreError;

    async fn store(&self, batch: Batch) -> Result<u64, StoreError> {
        let changes = batch.changes.len() as u64;
        let holds = self.counted(self.store.apply(batch).await)?;
        self.metrics.changes_stored.inc_by(changes);
        Ok(holds)
    }

    async fn rows(&self) -> Result<Vec<Row>, StoreError> {
        self.counted(self.store.rows().await)
    }

    async fn fetch(&self, after: u64, limit: usize) -> Result<Vec<Outgoing>, StoreError> {
        self.counted(self.store.fetch(after, limit).await)
    }

    async fn settle(&self, seq: u64, result: ReportResult) -> Result<(), StoreError> {
        let outcome = match result {
            ReportResult::Accepted {} => "accepted",
            ReportResult::Refused { reason } => {
                tracing::warn!(seq, reason, "the manager refuses a report");
                "refused"
            }
        };
        self.metrics.reports_settled.get_or_create(&Outcome::new(outcome)).inc();
        self.store.settle(seq).await
    }
}
