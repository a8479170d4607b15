//! The changes on their way to the node, from the first frame to the acknowledgement.

use std::{collections::BTreeMap, ops::Bound, time::Duration};

use super::{NodeObjects, Want};
use crate::{message::Downstream, object::Item};

impl NodeObjects {
    /// The first change after `version`, as a frame. Where the connection is not `confidential`, credentials are laid
    /// aside on the way.
    pub(in crate::cloud) fn next(&mut self, version: u64, confidential: bool) -> Option<(u64, Downstream)> {
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
    pub(in crate::cloud) fn release_withheld(&mut self, now: Duration) {
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
    pub(in crate::cloud) fn ack(&mut self, version: u64) -> (usize, Option<Duration>) {
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
