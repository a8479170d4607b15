//! What a session asks of the node's durable store and outbox, as plain data.
//!
//! The store has three parts, which one SQLite file can hold: the items (object or credential, with their [`Row`]),
//! the [`Position`], and the outbox.

use crate::{
    message::Upstream,
    object::{Credential, Item, ItemKey, Object, ObjectKey, Row},
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
    /// Reports that were given up because the outbox was full, or they were too old.
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

    /// The resource that it is about. A gap is about none: the parts of its key are empty, and so they are in the outbox.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Report(report) => report.key.clone(),
            Self::Gap { .. } => ObjectKey::new("", "", ""),
        }
    }

    /// The frame that carries it; of a report, `after` that one on the same resource.
    pub fn into_message(self, settled: u64, after: Option<u64>) -> Upstream {
        match self {
            Self::Report(report) => Upstream::Report { settled, after, report },
            Self::Gap { seq, count } => Upstream::Gap { seq, count },
        }
    }
}

/// What is to be read of the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Only what is about this resource; see [`Outgoing::key`].
    pub of: Option<ObjectKey>,
    /// Only what has a higher number.
    pub after: u64,
    /// At most so many.
    pub limit: usize,
}

impl Wanted {
    /// Picks what is wanted out of all that is waiting, which comes in order.
    pub fn pick(&self, waiting: impl IntoIterator<Item = Outgoing>) -> Vec<Outgoing> {
        let Self { of, after, limit } = self;
        let wanted = waiting
            .into_iter()
            .filter(|outgoing| outgoing.seq() > *after && of.as_ref().is_none_or(|of| outgoing.key() == *of));
        wanted.take(*limit).collect()
    }
}
