//! What was stored when, on whatever node, and what is waited for.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;

use super::super::orders::Stored;

/// The ledger of all nodes.
#[derive(Default)]
pub(super) struct Ledger(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    stored: BTreeMap<String, Vec<Stored>>,
    /// By object, the newest generation that is held.
    newest: BTreeMap<String, i64>,
    /// Generations that are waited for and were not stored when this was looked at last.
    expected: BTreeMap<String, i64>,
}

impl Ledger {
    /// These objects were stored, all at once.
    pub(super) fn note<'a>(&self, at: Duration, objects: impl IntoIterator<Item = (&'a str, i64)>) {
        let mut entries = self.0.lock();
        for (name, generation) in objects {
            let stored = Stored { generation, at };
            // Most objects are known, and their names need not be copied.
            if let Some(before) = entries.stored.get_mut(name) {
                before.push(stored);
            } else {
                entries.stored.insert(name.to_owned(), vec![stored]);
            }
            if let Some(newest) = entries.newest.get_mut(name) {
                *newest = generation.max(*newest);
            } else {
                entries.newest.insert(name.to_owned(), generation);
            }
        }
    }

    /// Nodes hold this, although nothing was stored now.
    pub(super) fn know<'a>(&self, objects: impl IntoIterator<Item = (&'a str, i64)>) {
        let objects = objects.into_iter();
        let objects = objects.map(|(name, generation)| (name.to_owned(), generation));
        self.0.lock().newest.extend(objects);
    }

    /// Forgets what nodes hold: older stores were put in the place of theirs. What was stored when is history, and stays.
    pub(super) fn forget(&self) {
        self.0.lock().newest.clear();
    }

    /// What was noted since this was called last.
    pub(super) fn take(&self) -> BTreeMap<String, Vec<Stored>> {
        std::mem::take(&mut self.0.lock().stored)
    }

    /// Waits for these generations, too.
    pub(super) fn expect(&self, generations: BTreeMap<String, i64>) {
        self.0.lock().expected.extend(generations);
    }

    /// How many of those that are waited for were not stored yet.
    pub(super) fn missing(&self) -> usize {
        let Entries { newest, expected, .. } = &mut *self.0.lock();
        expected.retain(|name, generation| newest.get(name).is_none_or(|newest| newest < generation));
        expected.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_missing_until_its_generation_or_a_newer_one_is_stored() {
        let ledger = Ledger::default();
        ledger.note(Duration::ZERO, [("a", 1)]);
        let wanted = [("a", 1), ("b", 3), ("c", 1)];
        ledger.expect(wanted.map(|(name, generation)| (name.to_owned(), generation)).into());
        assert_eq!(ledger.missing(), 2);
        ledger.note(Duration::ZERO, [("b", 2), ("c", 5)]);
        assert_eq!(ledger.missing(), 1);
        ledger.note(Duration::ZERO, [("b", 3)]);
        assert_eq!(ledger.missing(), 0);
    }

    #[test]
    fn an_object_is_missing_again_when_an_older_store_was_put_back() {
        let ledger = Ledger::default();
        ledger.note(Duration::ZERO, [("a", 3), ("b", 1)]);
        ledger.forget();
        ledger.know([("a", 2), ("b", 1)]);
        let wanted = [("a", 3), ("b", 1)];
        ledger.expect(wanted.map(|(name, generation)| (name.to_owned(), generation)).into());
        assert_eq!(ledger.missing(), 1);
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let ledger = Ledger::default();
        let at = Duration::from_secs(1);
        ledger.note(at, [("a", 1), ("a", 2)]);
        let told = ledger.take();
        assert_eq!(told["a"], [1, 2].map(|generation| Stored { generation, at }));
        assert!(ledger.take().is_empty());
    }
}
