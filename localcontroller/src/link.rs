//! The link to the manager: the protocol crate's session over the node's own store.
//!
//! Decides nothing of the protocol. What is stored is durable before the session hears of it; a report that was
//! answered is removed in the background, since one that stays is only sent, and answered, once more.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use skerry_edge::{
    Position, ReportResult, Row,
    link::{self, Signals},
    message::OutboxDepth,
    node::{Batch, Identity, Outgoing, Session, State, Wanted},
    transport::client::Dialer,
};

use crate::{
    metrics::{Metrics, Outcome},
    store::{Store, StoreError, Totals},
};

/// What it means that this node had more, or the manager from it, than its store knows of.
pub(crate) const OUT_OF_STEP: &str = "this store is not as the node last had it: an old one was put back, or the node was \
    away for too many deletions, or held what it should not; the manager compares it with what the node should have, and \
    sends what differs";

/// Runs the link until it is told to stop.
pub async fn run(
    node: String,
    dialer: impl Dialer,
    store: Store,
    metrics: Arc<Metrics>,
    signals: Signals,
) -> Result<(), StoreError> {
    let identity = Identity {
        node,
        boot: store.boot().to_owned(),
        agent: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let position = store.position().await?;
    let session = Session::new(identity, position.clone(), store.holds().await?);
    let log = tokio::spawn(log(signals.clone(), metrics.clone()));
    // Of a store that was put back it was said already.
    let at = position.filter(|_| !store.is_put_back());
    let linked = Linked::new(store, at, metrics);
    link::run(session, dialer, Arc::new(linked), signals, rand::random::<f64>).await;
    log.abort();
    Ok(())
}

/// Says when the link comes up and why it goes down.
pub(crate) async fn log(signals: Signals, metrics: Arc<Metrics>) {
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
    /// Answered reports that are not removed from the outbox yet, or could not be, by a full disk most likely. Sent
    /// again, they might take effect again.
    kept: Arc<Mutex<BTreeSet<u64>>>,
    stands: Mutex<Stands>,
}

/// Where the store stands.
#[derive(Debug)]
struct Stands {
    at: Option<Position>,
    /// What it holds was asked for since: the manager has it compared as a whole.
    compared: bool,
}

impl Stands {
    /// The store has come to stand here. Where it was compared, and for a manager that it knew already, that manager had
    /// more from this node than the store knows of; then, where it stood.
    fn moved(&mut self, to: &Position) -> Option<u64> {
        let compared = std::mem::take(&mut self.compared);
        let before = self.at.replace(to.clone())?;
        let same = before.cluster == to.cluster && before.epoch == to.epoch;
        (compared && same).then_some(before.version)
    }
}

impl Linked {
    fn new(store: Store, at: Option<Position>, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            metrics,
            kept: Arc::default(),
            stands: Mutex::new(Stands { at, compared: false }),
        }
    }

    fn stands(&self) -> MutexGuard<'_, Stands> {
        self.stands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
        let (changes, position) = (batch.changes.len() as u64, batch.position.clone());
        let holds = self.counted(self.store.apply(batch).await)?;
        let known = position.version;
        if let Some(stored) = self.stands().moved(&position) {
            self.metrics.store_out_of_step.inc();
            tracing::warn!(stored, known, "{OUT_OF_STEP}");
        }
        self.metrics.changes_stored.inc_by(changes);
        Ok(holds)
    }

    async fn rows(&self) -> Result<Vec<Row>, StoreError> {
        let rows = self.counted(self.store.rows().await)?;
        // Of a node that holds nothing, the manager keeps nothing either once it has gone.
        self.stands().compared = !rows.is_empty();
        Ok(rows)
    }

    async fn outbox(&self) -> Result<Option<OutboxDepth>, StoreError> {
        let Totals { count, bytes, .. } = self.counted(self.store.outbox().await)?;
        let messages = count;
        Ok(Some(OutboxDepth { messages, bytes }))
    }

    async fn fetch(&self, mut wanted: Wanted) -> Result<Vec<Outgoing>, StoreError> {
        let kept = self.kept().clone();
        for seq in kept {
            if self.store.settle(seq).await?.await.is_ok() {
                self.kept().remove(&seq);
            }
        }
        loop {
            let mut outgoing = self.counted(self.store.fetch_wanted(wanted.clone()).await)?;
            let Some(last) = outgoing.last().map(Outgoing::seq) else {
                return Ok(outgoing);
            };
            let kept = self.kept();
            outgoing.retain(|outgoing| !kept.contains(&outgoing.seq()));
            if !outgoing.is_empty() {
                return Ok(outgoing);
            }
            // Nothing would mean that there is no more.
            wanted.after = last;
        }
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
        self.kept().insert(seq);
        let settled = self.store.settle(seq).await?;
        let kept = self.kept.clone();
        tokio::spawn(async move {
            match settled.await {
                Ok(_) => {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).remove(&seq);
                }
                Err(error) => tracing::warn!(seq, %error, "an answered report could not be removed from the outbox"),
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skerry_edge::{
        Epoch, Object, ObjectKey, ReportPayload,
        link::Store as _,
        node::{Batch, Change},
    };
    use tempfile::TempDir;

    use super::*;
    use crate::store::{NewReport, OutboxLimits};

    #[tokio::test]
    async fn a_report_that_was_answered_is_not_sent_again_because_the_disk_was_full() {
        let directory = TempDir::new().unwrap();
        let store = Store::open(&directory.path().join("store.db"), OutboxLimits::default())
            .await
            .unwrap();
        let linked = Linked::new(store.clone(), None, Arc::default());
        let key = ObjectKey::new("reidjob", "default", "job");
        let epoch = Epoch {
            lease: "lease".to_owned(),
            transitions: 0,
            made: None,
        };
        let put = Change::Put(Object {
            key: key.clone(),
            uid: "u".to_owned(),
            generation: 1,
            body: json!({}).into(),
        });
        let batch = Batch {
            changes: vec![put],
            position: Position::start("cluster", epoch),
        };
        linked.store(batch).await.unwrap();
        for number in 0..2 {
            let message = json!(number).into();
            let payload = ReportPayload::Event { message };
            let report = NewReport {
                key: key.clone(),
                worker: None,
                payload,
            };
            store.push(report).await.unwrap();
        }
        store.break_outbox(true).await;
        linked.settle(1, ReportResult::Accepted {}).await.unwrap();
        let wanted = |limit| Wanted {
            of: None,
            after: 0,
            limit,
        };
        let left = linked.fetch(wanted(10)).await.unwrap();
        assert_eq!(left.iter().map(Outgoing::seq).collect::<Vec<_>>(), [2]);
        let left = linked.fetch(wanted(1)).await.unwrap();
        assert_eq!(
            left.iter().map(Outgoing::seq).collect::<Vec<_>>(),
            [2],
            "it hides nothing behind it"
        );
        assert_eq!(store.fetch(0, 10).await.unwrap().len(), 2, "it could not be removed");
        store.break_outbox(false).await;
        linked.fetch(wanted(10)).await.unwrap();
        assert_eq!(
            store.fetch(0, 10).await.unwrap().len(),
            1,
            "it was removed when it could be"
        );
    }
}
