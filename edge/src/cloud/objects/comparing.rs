//! How what the node has is found out: by the position of its store, or by a digest.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{Entry, Known, NodeObjects, Want};
use crate::{
    digest::{self, ChunkHash},
    limits,
    object::{Item, ItemKey, ObjectKey, Row},
};

impl NodeObjects {
    /// The node says that its store stands at `version` of the present epoch: whether that is enough to go on from.
    pub(in crate::cloud) fn resume(&mut self, version: u64) -> bool {
        let sound = self.known == Known::Synced && (self.acked..=self.version).contains(&version);
        if sound {
            self.ack(version);
        }
        sound
    }

    /// Starts to find out what the node holds, which says that it is about `holds` items. Credentials take part only
    /// where the connection may carry them.
    pub(in crate::cloud) fn begin_digest(&mut self, holds: u64, confidential: bool) -> Vec<ChunkHash> {
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
    pub(in crate::cloud) fn finish_digest(
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
    pub(in crate::cloud) fn acked(&self) -> u64 {
        self.acked
    }
}
