//! What a session asks of the node's durable store and outbox, as plain data.
//!
//! The store has three parts, which one SQLite file can hold: the items (object or credential, with their [`Row`]),
//! the [`Position`], and the outbox.

use crate::{
    message::Upstream,
    object::{Credential, Item, ItemKey, Object, Row},
    position::Position,
    report::Report,
};

/// Changes that are stored in one transaction together with the position that they lead to. A batch without changes
/// moves the position alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// In the order in which they take effect; a key may occur more than once.
    pub changes: Vec<Change>,
    /// The position to store with them, whole.
    pub position: Position,
}

/// One change of what the store holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Hold this under its key, in place of what is there. Another uid there is another resource: its deletion and the
    /// new one's insertion in one.
    Put(Object),
    /// Hold this under its key. Credentials are kept with mode 0600 and never printed.
    PutCredential(Credential),
    /// Hold nothing under this key. That nothing is there is no error.
    Delete(ItemKey),
}

impl Change {
    /// Under which key something changes.
    pub fn key(&self) -> ItemKey {
        match self {
            Self::Put(object) => object.key.clone().into(),
            Self::PutCredential(credential) => credential.key(),
            Self::Delete(key) => key.clone(),
        }
    }

    /// The row to store beside the item; none for a deletion.
    pub fn row(&self) -> Option<Row> {
        match self {
            Self::Put(object) => Some(Item::Object(object.clone()).row()),
            Self::PutCredential(credential) => Some(Item::Credential(credential.clone()).row()),
            Self::Delete(_) => None,
        }
    }
}

/// What the outbox holds, numbered in the order in which it was put in. Numbers rise and are never used again, also
/// not for what replaces a coalesced report.
#[derive(Clone, Debug, PartialEq)]
pub enum Outgoing {
    /// A report.
    Report(Report),
    /// Reports that were given up because the outbox was full.
    Gap {
        /// Its number.
        seq: u64,
        /// How many.
        count: u64,
    },
}

impl Outgoing {
    /// Its number in the outbox.
    pub fn seq(&self) -> u64 {
        match self {
            Self::Report(report) => report.seq,
            Self::Gap { seq, .. } => *seq,
        }
    }

    /// The frame that carries it.
    pub fn into_message(self, settled: u64) -> Upstream {
        match self {
            Self::Report(report) => Upstream::Report { settled, report },
            Self::Gap { seq, count } => Upstream::Gap { seq, count },
        }
    }
}
