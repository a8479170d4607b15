//! What a node keeps, in memory: its items, and an outbox of a few reports.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use serde_json::json;
use skerry_edge::{
    ItemKey, Object, ObjectKey, Report, ReportPayload, ReportResult, Row, limits,
    link::Store,
    node::{Batch, Outgoing, Wanted},
};

/// Objects that a node should have, and reports that it has to make.
pub(crate) const FEW: u64 = 3;

/// One of these objects.
pub(crate) fn object(number: u64) -> Object {
    Object {
        key: ObjectKey::new("dataset", "default", format!("d{number}")),
        uid: format!("uid-{number}"),
        generation: 1,
        body: json!({"number": number}).into(),
    }
}

fn outgoing(seq: u64) -> Outgoing {
    if seq == FEW {
        return Outgoing::Gap { seq, count: 2 };
    }
    Outgoing::Report(Report {
        seq,
        id: None,
        key: object(seq).key,
        uid: format!("uid-{seq}"),
        observed_at: Timestamp::UNIX_EPOCH,
        payload: ReportPayload::DatasetSamples { count: seq },
    })
}

/// A store in memory.
pub(crate) struct Kept {
    rows: BTreeMap<ItemKey, Row>,
    outbox: Vec<u64>,
}

impl Default for Kept {
    /// Nothing is held, and all that there is to report waits.
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            outbox: (1..=FEW).collect(),
        }
    }
}

impl Kept {
    /// Takes a batch; how many items there are then.
    pub(crate) fn store(&mut self, batch: &Batch) -> u64 {
        let changes = &batch.changes;
        assert!(
            changes.len() <= limits::BATCH_CHANGES,
            "{} changes at once",
            changes.len()
        );
        for change in changes {
            match change.row() {
                Some(row) => drop(self.rows.insert(row.key.clone(), row)),
                None => drop(self.rows.remove(&change.key())),
            }
        }
        self.rows.len() as u64
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.rows.values().cloned().collect()
    }

    pub(crate) fn fetch(&self, wanted: &Wanted) -> Vec<Outgoing> {
        wanted.pick(self.outbox.iter().map(|&seq| outgoing(seq)))
    }

    /// How many reports wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.outbox.len() as u64
    }

    pub(crate) fn settle(&mut self, seq: u64) {
        self.outbox.retain(|known| *known != seq);
    }
}

/// The same for a link, which calls it from a future.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Kept>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Shared {
    type Error = Infallible;

    async fn store(&self, batch: Batch) -> Result<u64, Infallible> {
        Ok(self.lock().store(&batch))
    }

    async fn rows(&self) -> Result<Vec<Row>, Infallible> {
        Ok(self.lock().rows())
    }

    async fn fetch(&self, wanted: Wanted) -> Result<Vec<Outgoing>, Infallible> {
        Ok(self.lock().fetch(&wanted))
    }

    async fn settle(&self, seq: u64, _: ReportResult) -> Result<(), Infallible> {
        self.lock().settle(seq);
        Ok(())
    }
}
