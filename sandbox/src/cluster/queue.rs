//! What is to be looked at, and when: each key once, the earliest time wins, failures wait longer each time. No clock
//! of its own and no waiting; the caller says what time it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// The wait after a first failure; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Queue<K> {
    due: BTreeMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
    failures: BTreeMap<K, u32>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            order: BTreeSet::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// Asks for a look at `key` at `at`, or earlier if that was asked before.
    pub(crate) fn add(&mut self, key: K, at: Instant) {
        if let Some(due) = self.due.get(&key) {
            if *due <= at {
                return;
            }
            self.order.remove(&(*due, key.clone()));
        }
        self.due.insert(key.clone(), at);
        self.order.insert((at, key));
    }

    /// When the next key is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.order.first().map(|(due, _)| *due)
    }

    /// Takes a key that is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<K> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.due.remove(&key);
        Some(key)
    }

    /// A look at `key` went well.
    pub(crate) fn succeeded(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// A look at `key` failed: it is tried again after a while.
    pub(crate) fn failed(&mut self, key: K, now: Instant) {
        let failures = self.failures.entry(key.clone()).or_default();
        let wait = FIRST_RETRY
            .saturating_mul(1_u32.checked_shl(*failures).unwrap_or(u32::MAX))
            .min(LONGEST_RETRY);
        *failures = failures.saturating_add(1);
        self.add(key, now + wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_earliest_time_wins_and_each_key_comes_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add("a", now + Duration::from_secs(5));
        queue.add("a", now);
        queue.add("a", now + Duration::from_secs(9));
        queue.add("b", now + Duration::from_secs(1));
        assert_eq!(queue.pop(now), Some("a"));
        assert_eq!(queue.pop(now), None);
        assert_eq!(queue.pop(now + Duration::from_secs(9)), Some("b"));
        assert_eq!(queue.next_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_up_to_a_limit() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let mut waits = vec![];
        for _ in 0..40 {
            queue.failed("a", now);
            waits.push(queue.next_due().unwrap() - now);
            assert_eq!(queue.pop(now + LONGEST_RETRY), Some("a"));
        }
        assert_eq!(
            (waits[0], waits[1], waits[39]),
            (FIRST_RETRY, FIRST_RETRY * 2, LONGEST_RETRY)
        );
        queue.succeeded(&"a");
        queue.failed("a", now);
        assert_eq!(queue.next_due().unwrap() - now, FIRST_RETRY);
    }
}
