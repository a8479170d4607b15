//! What of the outbox Sedna's own manager has read.
//!
//! It acknowledges nothing. But it reads a connection in order, and its WebSocket library answers pings as they are read: the
//! answer to a ping that was sent after a report says that the report was read. Decides what is under way, what goes again
//! over the next connection, and what is done with.

use std::collections::BTreeSet;

use crate::limits;

/// The window over the durable outbox.
#[derive(Debug, Default)]
pub struct Receipts {
    unread: BTreeSet<u64>,
    /// The last number that was sent over this connection.
    sent_to: u64,
    /// Whether the outbox may hold more than was sent.
    more: bool,
}

impl Receipts {
    /// There is a new connection: everything that the outbox holds is owed.
    pub fn connected(&mut self) {
        *self = Self {
            more: true,
            ..Self::default()
        };
    }

    /// Something was put into the outbox.
    pub fn grew(&mut self) {
        self.more = true;
    }

    /// What to read of the outbox now, if anything: after which number, and how many.
    pub fn want(&self) -> Option<(u64, usize)> {
        let room = limits::REPORT_WINDOW.saturating_sub(self.unread.len());
        (self.more && room > 0).then_some((self.sent_to, room))
    }

    /// Nothing was there.
    pub fn exhausted(&mut self) {
        self.more = false;
    }

    /// What has this number is done with, sent or not; `sent` is whether it was sent.
    pub fn passed(&mut self, seq: u64, sent: bool) {
        self.sent_to = self.sent_to.max(seq);
        if sent {
            self.unread.insert(seq);
        }
    }

    /// The mark of a ping: its answer says that all was read that was sent until now.
    pub fn mark(&self) -> u64 {
        self.sent_to
    }

    /// A ping with this mark was answered; what was read.
    pub fn answered(&mut self, mark: u64) -> BTreeSet<u64> {
        // One that nobody has sent.
        if mark > self.sent_to {
            return BTreeSet::new();
        }
        let rest = self.unread.split_off(&mark.saturating_add(1));
        std::mem::replace(&mut self.unread, rest)
    }

    /// Whether something was sent of which it is not known that it was read.
    pub fn waits(&self) -> bool {
        !self.unread.is_empty()
    }
}
