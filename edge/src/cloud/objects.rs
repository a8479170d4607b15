//! The set of items that a node should have, and what is known of what it has.
//!
//! Decides what has to be sent. Every change of the set gets the next version; a change that is not acknowledged yet
//! gives way to a newer one of the same key, so that only the newest is ever sent, and an acknowledgement of a version
//! acknowledges all before it. Whether an item that the set lacks may be deleted is decided by the caller.
//!
//! ```text
//!   Nothing ── begin_digest ──▶ Digesting ── finish_digest ──▶ Synced
//!      ▲                            │                            │
//!      └────────────────────────────┴──────── forget ────────────┘
//! ```
//!
//! While nothing is known of the node, changes need no version and deletions no trace: the digest will find both.

mod comparing;
mod reporting;
mod sending;

use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::Duration};

use crate::{
    limits,
    object::{Item, ItemKey, ObjectKey, Row},
};

/// What a node should hold, and what it is known to hold.
#[derive(Debug, Default)]
pub struct NodeObjects {
    /// Boxed: a map has room for eleven from its first on, and most nodes have few.
    items: BTreeMap<Arc<ItemKey>, Box<Entry>>,
    /// What the node has not acknowledged, by version; one version per key.
    changes: BTreeMap<u64, Change>,
    version: u64,
    acked: u64,
    known: Known,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Known {
    #[default]
    Nothing,
    Digesting,
    Synced,
}

#[derive(Debug)]
struct Entry {
    want: Want,
    /// The version of the change that is not acknowledged; none where the node has what is wanted, or may have.
    change: Option<u64>,
    /// What the node held before the change, where that is known.
    held: Option<Box<Row>>,
    /// A credential that waits for a connection that may carry it.
    withheld: bool,
}

impl Entry {
    /// One that nothing is on its way for.
    fn new(want: Want, held: Option<Box<Row>>) -> Box<Self> {
        Box::new(Self {
            want,
            change: None,
            held,
            withheld: false,
        })
    }
}

#[derive(Debug)]
enum Want {
    Present(Item),
    Absent,
    /// The node has it, the set lacks it, and nobody has said that it may go.
    Stray,
}

#[derive(Debug)]
struct Change {
    key: Arc<ItemKey>,
    since: Duration,
}

/// How much of a node's set has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Items that the node should hold.
    pub assigned: usize,
    /// Changes that the node has not acknowledged, deletions included.
    pub unacked: usize,
    /// Deletions among them.
    pub deletions: usize,
    /// Items that the node holds although nobody wants them, and that nobody has said may go.
    pub strays: usize,
    /// Credentials that wait for a connection that may carry them.
    pub withheld: usize,
}

impl NodeObjects {
    /// An empty set whose versions come after `version`: where a set was dropped and is made anew within one epoch, its
    /// versions have to rise all the same.
    pub fn counting_from(version: u64) -> Self {
        Self {
            version,
            ..Self::default()
        }
    }

    /// Makes the node hold exactly these items of `owner`; false where that changes nothing.
    ///
    /// Order counts where an item needs another: it is kept on the way.
    pub fn replace(&mut self, now: Duration, owner: &ObjectKey, items: Vec<Item>) -> bool {
        let mut changed = false;
        for key in self.keys_of(owner) {
            if !items.iter().any(|item| item.key() == key) {
                changed |= self.remove(now, &key);
            }
        }
        for item in items {
            changed |= self.set(now, item);
        }
        changed
    }

    /// Whether these are what the node is to hold of `owner`, and nothing else.
    pub fn holds(&self, owner: &ObjectKey, items: &[Item]) -> bool {
        let wanted = |item: &Item| {
            let entry = self.items.get(&item.key());
            entry.is_some_and(|entry| matches!(&entry.want, Want::Present(present) if present == item))
        };
        self.keys_of(owner).len() == items.len() && items.iter().all(wanted)
    }

    /// Makes the node hold this item; false where it is wanted already.
    pub fn set(&mut self, now: Duration, item: Item) -> bool {
        let key = Arc::new(item.key());
        let Some(entry) = self.items.get_mut(&key) else {
            self.counts.assigned += 1;
            self.items.insert(key.clone(), Entry::new(Want::Present(item), None));
            self.queue(now, &key);
            return true;
        };
        match &entry.want {
            Want::Present(present) if *present == item => return false,
            Want::Present(present) => {
                if entry.change.is_none() && !entry.withheld && self.known != Known::Nothing {
                    entry.held = Some(Box::new(present.row()));
                }
            }
            Want::Absent => {
                self.counts.assigned += 1;
                self.counts.deletions -= 1;
            }
            Want::Stray => {
                self.counts.assigned += 1;
                self.counts.strays -= 1;
                if entry.held.as_ref().is_some_and(|held| **held == item.row()) {
                    *entry = Entry::new(Want::Present(item), None);
                    return true;
                }
            }
        }
        entry.want = Want::Present(item);
        self.queue(now, &key);
        true
    }

    /// Makes the node hold nothing under this key; false where it is known to hold nothing, or told so already.
    pub fn remove(&mut self, now: Duration, key: &ItemKey) -> bool {
        let Some((key, entry)) = self
            .items
            .get_key_value(key)
            .map(|(key, _)| key.clone())
            .and_then(|key| {
                let entry = self.items.get_mut(&key)?;
                Some((key, entry))
            })
        else {
            return false;
        };
        match &entry.want {
            Want::Absent => return false,
            Want::Stray => self.counts.strays -= 1,
            Want::Present(present) => {
                self.counts.assigned -= 1;
                if self.known == Known::Nothing {
                    self.items.remove(&key);
                    return true;
                }
                if entry.change.is_none() && !entry.withheld {
                    entry.held = Some(Box::new(present.row()));
                }
            }
        }
        entry.want = Want::Absent;
        self.counts.deletions += 1;
        self.queue(now, &key);
        if self.counts.deletions > limits::MAX_TOMBSTONES {
            self.forget();
        }
        true
    }

    /// The keys of `owner`'s items on the node, strays included.
    pub fn keys_of(&self, owner: &ObjectKey) -> Vec<ItemKey> {
        let first = ItemKey::from(owner.clone());
        self.items
            .range::<ItemKey, _>((Bound::Included(&first), Bound::Unbounded))
            .take_while(|(key, _)| key.object == *owner)
            .filter(|(_, entry)| !matches!(entry.want, Want::Absent))
            .map(|(key, _)| (**key).clone())
            .collect()
    }

    /// Gives the entry of `key` the next version.
    fn queue(&mut self, now: Duration, key: &Arc<ItemKey>) {
        let Some(entry) = self.items.get_mut(key).filter(|_| self.known != Known::Nothing) else {
            return;
        };
        if std::mem::take(&mut entry.withheld) {
            self.counts.withheld -= 1;
        }
        if let Some(superseded) = entry.change {
            self.changes.remove(&superseded);
        }
        self.version += 1;
        entry.change = Some(self.version);
        self.changes.insert(
            self.version,
            Change {
                key: key.clone(),
                since: now,
            },
        );
    }

    /// What the node holds in excess, and what nobody has said may go.
    pub fn strays(&self) -> Vec<ObjectKey> {
        let strays = self.items.iter().filter(|(_, entry)| matches!(entry.want, Want::Stray));
        strays.map(|(key, _)| key.object.clone()).collect()
    }

    /// How much of the set has arrived: nothing as far as is known, until a digest has told what the node holds.
    pub fn counts(&self) -> Counts {
        let unacked = if self.is_synced() {
            self.changes.len()
        } else {
            self.counts.assigned
        };
        Counts { unacked, ..self.counts }
    }

    /// Since when the oldest change waits for its acknowledgement.
    pub fn oldest_unacked(&self) -> Option<Duration> {
        self.changes.values().next().map(|change| change.since)
    }

    /// The version of the newest change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether the set is empty and nothing is known or owed: nothing is lost with it.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether a digest has told what the node holds.
    pub(super) fn is_synced(&self) -> bool {
        self.known == Known::Synced
    }

    pub(super) fn is_digesting(&self) -> bool {
        self.known == Known::Digesting
    }

    /// Forgets what is known of the node: its session ends, the next starts with a digest.
    pub fn forget(&mut self) {
        self.known = Known::Nothing;
        self.changes.clear();
        self.items.retain(|_, entry| {
            (entry.change, entry.held, entry.withheld) = (None, None, false);
            matches!(entry.want, Want::Present(_))
        });
        self.counts = Counts {
            assigned: self.items.len(),
            ..Counts::default()
        };
    }
}
