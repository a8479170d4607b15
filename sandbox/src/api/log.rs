//! What was asked of the server, in order. Tests count writes with it.
//!
//! It never decides anything, and forgets the oldest entries beyond a fixed number.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;

use super::request::RequestInfo;

/// Entries kept. A test that needs more should take marks more often.
const CAPACITY: usize = 1_000_000;

/// One request and, once it is known, how it ended.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// Position in the log; rises by one with each request.
    pub sequence: u64,
    /// When it arrived, by the server's clock.
    pub at: Timestamp,
    /// What was asked.
    pub request: RequestInfo,
    /// The HTTP status that was answered; `None` while it is unanswered, or was never answered.
    pub status: Option<u16>,
}

impl LogEntry {
    /// True if it asked for a change that was to be kept (a dry run is none), whatever came of it.
    pub fn is_mutating(&self) -> bool {
        self.request.verb.is_mutating() && !self.request.dry_run
    }
}

/// A place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// The log of requests. Clones share it.
#[derive(Clone, Default)]
pub struct RequestLog {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    entries: VecDeque<LogEntry>,
}

impl RequestLog {
    /// The present end of the log.
    pub fn mark(&self) -> Mark {
        Mark(self.lock().next)
    }

    /// All entries after a mark.
    pub fn since(&self, mark: Mark) -> Vec<LogEntry> {
        let inner = self.lock();
        let first = inner.entries.partition_point(|entry| entry.sequence < mark.0);
        inner.entries.iter().skip(first).cloned().collect()
    }

    /// All entries that are kept.
    pub fn all(&self) -> Vec<LogEntry> {
        self.since(Mark(0))
    }

    /// The mutating ones after a mark: the writes that the budgets count, no-op or not, answered or not.
    pub fn writes_since(&self, mark: Mark) -> Vec<LogEntry> {
        let mut entries = self.since(mark);
        entries.retain(LogEntry::is_mutating);
        entries
    }

    pub(super) fn push(&self, at: Timestamp, request: RequestInfo) -> u64 {
        let mut inner = self.lock();
        let sequence = inner.next;
        inner.next += 1;
        if inner.entries.len() == CAPACITY {
            inner.entries.pop_front();
        }
        inner.entries.push_back(LogEntry {
            sequence,
            at,
            request,
            status: None,
        });
        sequence
    }

    pub(super) fn answered(&self, sequence: u64, status: u16) {
        let mut inner = self.lock();
        let index = inner.entries.partition_point(|entry| entry.sequence < sequence);
        if let Some(entry) = inner.entries.get_mut(index)
            && entry.sequence == sequence
        {
            entry.status = Some(status);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
