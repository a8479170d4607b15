//! What the hub counts, and the log lines that nodes can cause.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use parking_lot::Mutex;
use skerry_edge::seldom::Seldom;

/// What happened since the process began.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) connections: AtomicU64,
    pub(super) refused: Tally,
    pub(super) ended: Tally,
    pub(super) unknown_frames: AtomicU64,
    pub(super) acked: AtomicU64,
    pub(super) slowest_ack_ms: AtomicU64,
    pub(super) reports_accepted: AtomicU64,
    pub(super) reports_refused: AtomicU64,
    pub(super) reports_denied: Tally,
    pub(super) reports_put_off: AtomicU64,
    pub(super) reports_given_up: AtomicU64,
    pub(super) oversize: AtomicU64,
}

/// Counts by word. The words are ours, so that they are few, whatever nodes say.
#[derive(Default)]
pub(super) struct Tally(Mutex<BTreeMap<&'static str, u64>>);

impl Tally {
    pub(super) fn count(&self, word: &'static str) {
        *self.0.lock().entry(word).or_default() += 1;
    }

    pub(super) fn read(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().clone()
    }
}

/// Lines that a node can cause as often as it likes.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) refused: Seldom,
    pub(super) ended: Seldom,
    pub(super) denied: Seldom,
    pub(super) report_refused: Seldom,
    pub(super) given_up: Seldom,
}
