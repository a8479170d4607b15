//! The changes on their way from the link to the store: which versions may come, how many may wait, what goes into one
//! transaction.

use std::collections::VecDeque;

use super::store::Change;
use crate::limits;

/// Changes that were received and are not stored, and the last version received in this session.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: VecDeque<(u64, Option<Change>)>,
    bytes: usize,
    last: u64,
}

impl Inbox {
    /// A session in which the versions after `version` may come.
    pub(super) fn starting_at(version: u64) -> Self {
        Self {
            last: version,
            ..Self::default()
        }
    }

    /// The set is at `version`, whatever it was counted by before.
    pub(super) fn rebase(&mut self, version: u64) {
        self.last = version;
        self.waiting.push_back((version, None));
    }

    /// Whether the store has enough to go on with, and nothing more is to be read meanwhile.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= limits::READ_AHEAD
    }

    /// Takes a change, or says what the manager does wrong.
    pub(super) fn push(&mut self, version: u64, change: Change) -> Result<(), &'static str> {
        if version <= self.last {
            return Err("versions have to rise within a session");
        }
        let bytes = self.bytes + size(&change);
        if self.waiting.len() >= limits::WINDOW_FRAMES as usize || bytes > limits::WINDOW_BYTES.max(size(&change)) {
            return Err("more changes than the window allows");
        }
        self.last = version;
        self.bytes = bytes;
        self.waiting.push_back((version, Some(change)));
        Ok(())
    }

    /// What to store next, with the version that it leads to.
    pub(super) fn batch(&mut self) -> Option<(u64, Vec<Change>)> {
        let taken: Vec<_> = self
            .waiting
            .drain(..self.waiting.len().min(limits::BATCH_CHANGES))
            .collect();
        let version = taken.last()?.0;
        let changes: Vec<_> = taken.into_iter().filter_map(|(_, change)| change).collect();
        self.bytes -= changes.iter().map(size).sum::<usize>();
        Some((version, changes))
    }
}

/// What a change costs of the window, in bytes: its content.
fn size(change: &Change) -> usize {
    match change {
        Change::Put(object) => object.body.json().len(),
        Change::PutCredential(credential) => credential.size(),
        Change::Delete(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::{Object, ObjectKey};

    fn put(bytes: usize) -> Change {
        let key = ObjectKey::new("dataset", "default", "d");
        Change::Put(Object {
            key,
            uid: "u".to_owned(),
            generation: 1,
            body: json!("x".repeat(bytes - 2)).into(),
        })
    }

    #[test]
    fn versions_rise() {
        let mut inbox = Inbox::starting_at(7);
        assert!(inbox.push(7, put(10)).is_err());
        assert!(inbox.push(9, put(10)).is_ok());
        assert!(inbox.push(9, put(10)).is_err());
        assert!(inbox.push(8, put(10)).is_err());
        assert_eq!(
            inbox.batch().map(|(version, changes)| (version, changes.len())),
            Some((9, 1))
        );
        assert_eq!(inbox.batch(), None);
    }

    #[test]
    fn a_window_full_of_changes_is_taken_and_no_more() {
        let mut inbox = Inbox::default();
        for version in 1..=u64::from(limits::WINDOW_FRAMES) {
            inbox.push(version, put(10)).unwrap();
        }
        assert!(inbox.push(u64::MAX, put(10)).is_err());
        let (version, changes) = inbox.batch().unwrap();
        assert_eq!(
            (version, changes.len()),
            (limits::BATCH_CHANGES as u64, limits::BATCH_CHANGES)
        );
        assert!(inbox.push(u64::MAX, put(10)).is_ok());
    }

    #[test]
    fn nothing_more_is_read_while_the_store_has_enough_to_do() {
        let mut inbox = Inbox::default();
        for version in 1..=limits::READ_AHEAD as u64 {
            assert!(!inbox.is_full());
            inbox.push(version, put(10)).unwrap();
        }
        assert!(inbox.is_full());
        inbox.batch().unwrap();
        assert!(!inbox.is_full());
    }

    #[test]
    fn bytes_are_bounded_but_one_large_change_always_goes() {
        let mut inbox = Inbox::default();
        inbox.push(1, put(limits::WINDOW_BYTES + 1)).unwrap();
        assert!(inbox.push(2, put(10)).is_err());
        inbox.batch().unwrap();
        assert!(inbox.push(3, put(10)).is_ok());
    }

    #[test]
    fn a_rebase_is_stored_even_without_a_change_and_may_go_back() {
        let mut inbox = Inbox::starting_at(40);
        inbox.rebase(3);
        inbox.push(4, put(10)).unwrap();
        let (version, changes) = inbox.batch().unwrap();
        assert_eq!((version, changes.len()), (4, 1));
        inbox.rebase(4);
        assert_eq!(inbox.batch(), Some((4, vec![])));
    }
}
