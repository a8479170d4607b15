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

use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::Duration};

use super::Denial;
use crate::{
    digest::{self, ChunkHash},
    limits,
    message::Downstream,
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

    /// Whether the node may report on this resource: it is placed there, or its deletion is not acknowledged.
    pub fn may_report(&self, key: &ObjectKey, uid: &str) -> Result<(), Denial> {
        key.check()?;
        let Some(entry) = self.items.get(&ItemKey::from(key.clone())) else {
            return Err(Denial::NotPlaced(key.clone()));
        };
        let wanted = matches!(&entry.want, Want::Present(item) if item.uid() == uid);
        if wanted || entry.held.as_ref().is_some_and(|held| held.uid == uid) {
            return Ok(());
        }
        Err(match entry.want {
            Want::Present(_) => Denial::OtherUid(key.clone()),
            Want::Absent | Want::Stray => Denial::NotPlaced(key.clone()),
        })
    }

    /// What the node holds in excess, and what nobody has said may go.
    pub fn strays(&self) -> Vec<ObjectKey> {
        let strays = self.items.iter().filter(|(_, entry)| matches!(entry.want, Want::Stray));
        strays.map(|(key, _)| key.object.clone()).collect()
    }

    /// How much of the set has arrived: nothing as far as is known, until a digest has told what the node holds.
    pub fn counts(&self) -> Counts {
        let unacked = if self.is_digesting() {
            self.counts.assigned
        } else {
            self.changes.len()
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

    /// The node says that its store stands at `version` of the present epoch: whether that is enough to go on from.
    pub(super) fn resume(&mut self, version: u64) -> bool {
        let sound = self.known == Known::Synced && (self.acked..=self.version).contains(&version);
        if sound {
            self.ack(version);
        }
        sound
    }

    /// Starts to find out what the node holds, which says that it is about `holds` items. Credentials take part only
    /// where the connection may carry them.
    pub(super) fn begin_digest(&mut self, holds: u64, confidential: bool) -> Vec<ChunkHash> {
        self.forget();
        self.known = Known::Digesting;
        // No two digests lead to the same version, so that a store of before a digest is never taken for one of after.
        self.version += 1;
        self.acked = self.version;
        let mut rows = Vec::with_capacity(self.items.len());
        for entry in self.items.values_mut() {
            if let Want::Present(item) = &entry.want {
                entry.withheld = !confidential && matches!(item, Item::Credential(_));
                self.counts.withheld += usize::from(entry.withheld);
                rows.extend((!entry.withheld).then(|| item.row()));
            }
        }
        let holds = usize::try_from(holds).unwrap_or(usize::MAX).min(limits::MAX_ITEMS);
        digest::chunk_hashes(&rows, digest::chunk_count(rows.len().max(holds)))
    }

    /// Takes what the node holds in the chunks that differ (`differs`, one flag per chunk): queues what has to change
    /// and returns what the node holds in excess and `may_delete` does not let go.
    pub(super) fn finish_digest(
        &mut self,
        now: Duration,
        differs: &[bool],
        mut rows: BTreeMap<ItemKey, Row>,
        may_delete: &dyn Fn(&ObjectKey) -> bool,
    ) -> Vec<ItemKey> {
        self.known = Known::Synced;
        let mut owed = Vec::new();
        for (key, entry) in &mut self.items {
            if differs.get(digest::chunk_of(key, differs.len())) != Some(&true) {
                continue;
            }
            let row = rows.remove(&**key);
            let same = matches!((&entry.want, &row), (Want::Present(item), Some(row)) if item.row() == *row);
            if same && std::mem::take(&mut entry.withheld) {
                self.counts.withheld -= 1;
            }
            // What was changed since the digest began has its version already.
            if entry.change.is_none() && !entry.withheld && !same {
                owed.push(key.clone());
            }
            entry.held = row.filter(|_| !same).map(Box::new);
        }
        let mut strays = Vec::new();
        for (key, row) in rows {
            let may_delete = may_delete(&key.object);
            let want = if may_delete { Want::Absent } else { Want::Stray };
            let shared = Arc::new(key);
            if may_delete {
                self.counts.deletions += 1;
                owed.push(shared.clone());
            } else {
                self.counts.strays += 1;
                strays.push((*shared).clone());
            }
            let held = Some(Box::new(row));
            self.items.insert(shared, Entry::new(want, held));
        }
        for key in owed {
            self.queue(now, &key);
        }
        strays
    }

    /// The version that a digest leads to: all that is owed counts on from it.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    /// The first change after `version`, as a frame. Where the connection is not `confidential`, credentials are laid
    /// aside on the way.
    pub(super) fn next(&mut self, version: u64, confidential: bool) -> Option<(u64, Downstream)> {
        loop {
            let (&version, change) = self
                .changes
                .range((Bound::Excluded(version), Bound::Unbounded))
                .next()?;
            let key = change.key.clone();
            let entry = self.items.get_mut(&key)?;
            match &entry.want {
                Want::Present(Item::Credential(_)) if !confidential => {
                    entry.change = None;
                    entry.withheld = true;
                    self.counts.withheld += 1;
                    self.changes.remove(&version);
                }
                Want::Present(Item::Credential(credential)) => {
                    return Some((
                        version,
                        Downstream::PutCredential {
                            version,
                            credential: credential.clone(),
                        },
                    ));
                }
                Want::Present(Item::Object(object)) => {
                    return Some((
                        version,
                        Downstream::Put {
                            version,
                            object: object.clone(),
                        },
                    ));
                }
                Want::Absent | Want::Stray => {
                    return Some((
                        version,
                        Downstream::Delete {
                            version,
                            key: (*key).clone(),
                        },
                    ));
                }
            }
        }
    }

    /// Queues the credentials that were laid aside: there is a connection that may carry them.
    pub(super) fn release_withheld(&mut self, now: Duration) {
        if self.counts.withheld > 0 {
            let withheld: Vec<_> = self
                .items
                .iter()
                .filter(|(_, entry)| entry.withheld)
                .map(|(key, _)| key.clone())
                .collect();
            for key in withheld {
                self.queue(now, &key);
            }
        }
    }

    /// The node has stored every change up to `version`; how many those were, and since when the oldest waited.
    pub(super) fn ack(&mut self, version: u64) -> (usize, Option<Duration>) {
        self.acked = self.acked.max(version);
        let (before, since) = (self.changes.len(), self.oldest_unacked());
        while let Some(first) = self.changes.first_entry().filter(|first| *first.key() <= version) {
            let key = first.remove().key;
            match self.items.get_mut(&key) {
                Some(entry) if matches!(entry.want, Want::Present(_)) => {
                    entry.change = None;
                    entry.held = None;
                }
                Some(_) => {
                    self.items.remove(&key);
                    self.counts.deletions -= 1;
                }
                None => {}
            }
        }
        if self.changes.is_empty() {
            // An empty map keeps the room of its last entries.
            self.changes = BTreeMap::new();
        }
        (before - self.changes.len(), since)
    }
}
