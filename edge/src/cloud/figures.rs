//! Which figures that a node reports are older than others that were carried out.
//!
//! Where a store of before was put back, figures come that were answered then, and newer ones were since. They are older by
//! their number and by the node's clock, of which one alone says nothing: a clock may be put right, and numbers begin again
//! where an old store goes on. The newest are kept with the object that they are about ([`super::NodeObjects`]), and go
//! with it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use jiff::Timestamp;

use crate::report::Report;

/// Figures of a resource, as far as they can be older or newer than others. Small: many nodes have reported some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Figures {
    /// Of the resource's uid.
    uid: u64,
    seq: u64,
    observed_at: Timestamp,
    /// In which start of the node's local controller they came, counted from any.
    start: u32,
}

impl Figures {
    /// What this report says of itself, where it is one of figures.
    pub(super) fn of(report: &Report, start: u32) -> Option<Self> {
        let mut uid = DefaultHasher::new();
        report.uid.hash(&mut uid);
        report.payload.coalesces().then(|| Self {
            uid: uid.finish(),
            seq: report.seq,
            observed_at: report.observed_at,
            start,
        })
    }

    /// Whether these were worth something before `newest` were carried out, and are nothing now.
    pub(super) fn are_before(&self, newest: &Self) -> bool {
        self.uid == newest.uid
            && self.start != newest.start
            && self.seq <= newest.seq
            && self.observed_at <= newest.observed_at
    }
}
