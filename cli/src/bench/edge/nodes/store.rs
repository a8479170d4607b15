//! A node's store in memory: what it would compare by a digest, and what it has seen, without the bodies.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use parking_lot::Mutex;
use skerry_edge::{
    ItemKey, Position, ReportResult, Row, link,
    node::{Batch, Change, Outgoing, Wanted},
};

use super::{
    super::{clock, orders::Held},
    ledger::Ledger,
};

/// The store of one node.
#[derive(Default)]
pub(super) struct Memory {
    ledger: Arc<Ledger>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    content: Content,
    /// An older one.
    copy: Content,
    counts: Counts,
}

/// What a database would hold.
#[derive(Clone, Default)]
struct Content {
    position: Option<Position>,
    rows: BTreeMap<ItemKey, Row>,
}

/// What a node has been sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) bodies: u64,
    pub(super) deletions: u64,
    /// Versions that were older than what was held of the same resource.
    pub(super) backwards: u64,
}

impl Memory {
    /// An empty one.
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self {
            ledger,
            ..Self::default()
        }
    }

    /// Where it stands, and how many items it holds.
    pub(super) fn stands(&self) -> (Option<Position>, u64) {
        let Content { position, rows } = &self.state.lock().content;
        (position.clone(), rows.len() as u64)
    }

    pub(super) fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// The objects that it holds.
    pub(super) fn held(&self, node: &str) -> Vec<Held> {
        let state = self.state.lock();
        let objects = state.content.objects();
        objects
            .map(|row| Held {
                node: node.to_owned(),
                name: row.key.object.name.clone(),
                uid: row.uid.clone(),
                generation: row.generation,
            })
            .collect()
    }

    fn take(&self, batch: &Batch) -> u64 {
        let mut state = self.state.lock();
        for change in &batch.changes {
            state.change(change);
        }
        state.content.position = Some(batch.position.clone());
        state.content.rows.len() as u64
    }

    /// Keeps a copy of what it holds.
    pub(super) fn copy(&self) {
        let mut state = self.state.lock();
        state.copy = state.content.clone();
    }

    /// Puts the copy in the place of what it holds, as somebody does who restores a backup.
    pub(super) fn put_back(&self) {
        let mut state = self.state.lock();
        state.content = state.copy.clone();
        let objects = state.content.objects();
        self.ledger
            .know(objects.map(|row| (row.key.object.name.as_str(), row.generation)));
    }
}

impl Content {
    fn objects(&self) -> impl Iterator<Item = &Row> {
        self.rows.values().filter(|row| !row.key.is_credential())
    }
}

impl State {
    fn change(&mut self, change: &Change) {
        let Some(row) = change.row() else {
            self.content.rows.remove(&change.key());
            self.counts.deletions += 1;
            return;
        };
        let newer = |held: &Row| held.uid == row.uid && held.generation > row.generation;
        if self.content.rows.get(&row.key).is_some_and(newer) {
            self.counts.backwards += 1;
        }
        self.counts.bodies += 1;
        self.content.rows.insert(row.key.clone(), row);
    }
}

impl link::Store for Memory {
    type Error = Infallible;

    async fn store(&self, batch: Batch) -> Result<u64, Infallible> {
        let holds = self.take(&batch);
        // The session sends the acknowledgement as soon as this returns.
        let objects = batch.changes.iter().filter_map(|change| match change {
            Change::Put(object) => Some((object.key.name.as_str(), object.generation)),
            Change::PutCredential(_) | Change::Delete(_) => None,
        });
        self.ledger.note(clock::now(), objects);
        Ok(holds)
    }

    async fn rows(&self) -> Result<Vec<Row>, Infallible> {
        Ok(self.state.lock().content.rows.values().cloned().collect())
    }

    async fn fetch(&self, _wanted: Wanted) -> Result<Vec<Outgoing>, Infallible> {
        Ok(Vec::new())
    }

    async fn settle(&self, _seq: u64, _result: ReportResult) -> Result<(), Infallible> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skerry_edge::{Epoch, Object, ObjectKey};

    use super::*;

    fn put(uid: &str, generation: i64) -> Change {
        Change::Put(Object {
            key: ObjectKey::new("dataset", "default", "d"),
            uid: uid.to_owned(),
            generation,
            body: json!({"generation": generation}).into(),
        })
    }

    fn batch(changes: Vec<Change>) -> Batch {
        let epoch = Epoch {
            lease: "lease".to_owned(),
            transitions: 0,
            made: None,
        };
        Batch {
            changes,
            position: Position::start("cluster", epoch),
        }
    }

    #[test]
    fn an_older_version_of_the_same_resource_goes_backwards_and_one_of_another_does_not() {
        let store = Memory::default();
        store.take(&batch(vec![put("u", 2), put("u", 1), put("v", 1)]));
        let counts = Counts {
            bodies: 3,
            deletions: 0,
            backwards: 1,
        };
        assert_eq!(store.counts(), counts);
    }

    #[test]
    fn a_copy_that_is_put_back_is_held_with_its_position() {
        let store = Memory::default();
        store.take(&batch(vec![put("u", 1)]));
        store.copy();
        let mut newer = batch(vec![put("u", 2)]);
        newer.position.version = 7;
        store.take(&newer);
        store.put_back();
        assert_eq!(store.held("edge")[0].generation, 1);
        assert_eq!(store.stands().0.unwrap().version, 0);
    }

    #[test]
    fn what_was_deleted_is_not_held() {
        let store = Memory::default();
        assert_eq!(store.take(&batch(vec![put("u", 1)])), 1);
        assert_eq!((store.held("edge").len(), store.counts().deletions), (1, 0));
        let key = put("u", 1).key();
        assert_eq!(store.take(&batch(vec![Change::Delete(key)])), 0);
        assert_eq!(store.held("edge"), []);
        assert_eq!(store.stands().1, 0);
        assert_eq!(store.counts().deletions, 1, "what the bench tells as `edge.deleted`");
    }
}
