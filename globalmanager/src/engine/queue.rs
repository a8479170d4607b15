//! Which resource is looked at next: one entry a resource, never looked at twice at once, with a capped back-off of
//! its own after failures. Pure: time is an argument, nothing waits here.
//!
//! ```text
//!              ask                 next                    done
//!   (absent) ───────▶ waiting(at) ──────▶ running ──────────────────▶ (absent), or waiting again
//!                      ▲ earlier time wins   │ ask: remembered          where it was asked for meanwhile
//!                      └─────────────────────┘ and due when done
//! ```
//!
//! What gives way to others waits as well, and its turn also comes when nothing is due.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

/// First wait after a failure; doubled with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest wait after failures: an object that fails for hours is still tried every five minutes.
pub(crate) const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// How a pass over a resource ended, as far as the queue cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Well; a watch tells when to look again.
    Well,
    /// Well; look again after this time even if nothing was seen to change.
    Again(Duration),
    /// Well so far; look again once nothing else is due, and at this time in any case.
    AfterOthers(Instant),
    /// It failed: try again after the resource's back-off.
    Failed,
}

impl Ended {
    /// A stable word for metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Again(_) | Self::AfterOthers(_) => "again",
            Self::Failed => "failed",
        }
    }
}

/// The queue over keys of type `K`.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    waiting: BTreeMap<K, Instant>,
    due: BTreeSet<(Instant, K)>,
    /// Those of them that give way to others until they are due.
    behind: BTreeSet<(Instant, K)>,
    /// What is being looked at, and when it was asked for meanwhile.
    running: BTreeMap<K, Option<Instant>>,
    failures: BTreeMap<K, Failures>,
    longest_retry: Duration,
}

/// That a key failed, so many times in a row, and when it is tried again.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    retry: Instant,
}

impl<K: Ord + Clone> Queue<K> {
    /// A queue that waits at most so long after failures.
    pub(crate) fn new(longest_retry: Duration) -> Self {
        Self {
            waiting: BTreeMap::new(),
            due: BTreeSet::new(),
            behind: BTreeSet::new(),
            running: BTreeMap::new(),
            failures: BTreeMap::new(),
            longest_retry,
        }
    }

    /// Asks for a look at `key` at `at`; an earlier time already asked for stands.
    pub(crate) fn ask(&mut self, key: K, at: Instant) {
        if let Some(meanwhile) = self.running.get_mut(&key) {
            *meanwhile = Some(meanwhile.map_or(at, |earlier| earlier.min(at)));
            return;
        }
        match self.waiting.get(&key) {
            Some(earlier) if *earlier <= at => return,
            Some(later) => {
                let later = (*later, key.clone());
                self.due.remove(&later);
                self.behind.remove(&later);
            }
            None => {}
        }
        self.due.insert((at, key.clone()));
        self.waiting.insert(key, at);
    }

    /// The next key that is due at `now`, or else one that gave way, which then counts as running until [`Queue::done`].
    pub(crate) fn next(&mut self, now: Instant) -> Option<K> {
        let due = self.due.first().filter(|(at, _)| *at <= now);
        let next = due.or_else(|| self.behind.first())?.clone();
        self.due.remove(&next);
        self.behind.remove(&next);
        let (_, key) = next;
        self.waiting.remove(&key);
        self.running.insert(key.clone(), None);
        Some(key)
    }

    /// When the next key will be due.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Whether something gave way until a time before `then`, and has not had its turn yet.
    pub(crate) fn owes_a_turn(&self, then: Instant) -> bool {
        self.behind.first().is_some_and(|(at, _)| *at < then)
    }

    /// Whether nothing runs, and nothing will before `then`.
    pub(crate) fn idle_until(&self, then: Instant) -> bool {
        self.running.is_empty() && self.behind.is_empty() && self.due_at().is_none_or(|due| due >= then)
    }

    /// How many keys wait, due or not.
    pub(crate) fn depth(&self) -> usize {
        self.waiting.len()
    }

    /// Records how the look at `key` ended. `jitter` in `0.0..1.0` spreads retries over ±10 %.
    pub(crate) fn done(&mut self, key: K, ended: Ended, now: Instant, jitter: f64) {
        let meanwhile = self.running.remove(&key).flatten();
        let again = match ended {
            Ended::Well => {
                self.failures.remove(&key);
                None
            }
            Ended::Again(after) => {
                self.failures.remove(&key);
                Some(now + spread(after, jitter))
            }
            Ended::AfterOthers(at) => {
                self.failures.remove(&key);
                self.behind.insert((at, key.clone()));
                Some(at)
            }
            Ended::Failed => {
                let failures = match self.failures.get(&key) {
                    // Looked at before its time, because something was seen: that lengthens no wait.
                    Some(failures) if now < failures.retry => *failures,
                    known => {
                        let count = known.map_or(0, |failures| failures.count);
                        let wait = FIRST_RETRY.saturating_mul(1 << count.min(16)).min(self.longest_retry);
                        Failures {
                            count: count.saturating_add(1),
                            retry: now + spread(wait, jitter),
                        }
                    }
                };
                self.failures.insert(key.clone(), failures);
                Some(failures.retry)
            }
        };
        if let Some(at) = again {
            self.ask(key.clone(), at);
        }
        if let Some(at) = meanwhile {
            self.ask(key, at);
        }
    }
}

/// A wait ±10 %.
fn spread(wait: Duration, jitter: f64) -> Duration {
    wait.mul_f64(0.9 + 0.2 * jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn asked_twice_is_looked_at_once_at_the_earlier_time() {
        let (mut queue, start) = (Queue::new(LONGEST_RETRY), Instant::now());
        queue.ask("a", at(start, 5));
        queue.ask("a", at(start, 2));
        queue.ask("a", at(start, 9));
        assert_eq!(queue.due_at(), Some(at(start, 2)));
        assert_eq!(queue.next(at(start, 1)), None);
        assert_eq!(queue.next(at(start, 2)), Some("a"));
        queue.done("a", Ended::Well, at(start, 3), 0.5);
        assert_eq!((queue.due_at(), queue.depth()), (None, 0));
    }

    #[test]
    fn what_is_asked_for_while_it_runs_is_not_lost_and_does_not_run_twice_at_once() {
        let (mut queue, start) = (Queue::new(LONGEST_RETRY), Instant::now());
        queue.ask("a", start);
        assert_eq!(queue.next(start), Some("a"));
        queue.ask("a", start);
        assert_eq!(queue.next(start), None);
        queue.done("a", Ended::Well, start, 0.5);
        assert_eq!(queue.next(start), Some("a"));
    }

    #[test]
    fn what_gives_way_is_looked_at_once_nothing_else_is_due_or_its_time_has_come_or_it_is_asked_for() {
        let (mut queue, start) = (Queue::new(LONGEST_RETRY), Instant::now());
        let next = |queue: &mut Queue<_>, seconds| queue.next(at(start, seconds));
        let give_way = |queue: &mut Queue<_>, key, seconds| {
            queue.ask(key, at(start, seconds));
            assert_eq!(queue.next(at(start, seconds)), Some(key));
            queue.done(key, Ended::AfterOthers(at(start, seconds + 9)), at(start, seconds), 0.5);
        };
        give_way(&mut queue, "a", 0);
        assert_eq!((queue.due_at(), queue.depth()), (Some(at(start, 9)), 1));
        assert!(
            !queue.idle_until(at(start, 1)),
            "it is looked at as soon as somebody may"
        );
        queue.ask("b", at(start, 1));
        queue.ask("c", at(start, 2));
        assert_eq!(next(&mut queue, 1), Some("b"), "due is due");
        assert_eq!(next(&mut queue, 1), Some("a"), "before what is due later");
        assert_eq!((next(&mut queue, 1), queue.owes_a_turn(at(start, 10))), (None, false));
        assert_eq!(next(&mut queue, 2), Some("c"));

        give_way(&mut queue, "d", 3);
        queue.ask("e", at(start, 11));
        queue.ask("f", at(start, 12));
        assert_eq!(next(&mut queue, 13), Some("e"));
        assert_eq!(next(&mut queue, 13), Some("d"), "it has waited long enough");
        assert_eq!(next(&mut queue, 13), Some("f"));

        give_way(&mut queue, "g", 14);
        queue.ask("g", at(start, 15));
        queue.ask("h", at(start, 16));
        assert_eq!(next(&mut queue, 16), Some("g"), "something was seen of it");
        assert_eq!((next(&mut queue, 16), queue.depth()), (Some("h"), 0));
    }

    #[test]
    fn failures_back_off_for_that_key_alone_up_to_a_cap_and_success_forgets_them() {
        let (mut queue, mut now) = (Queue::new(LONGEST_RETRY), Instant::now());
        let mut waits = vec![];
        queue.ask("bad", now);
        for _ in 0..12 {
            assert_eq!(queue.next(now), Some("bad"));
            queue.done("bad", Ended::Failed, now, 0.5);
            let due = queue.due_at().unwrap();
            waits.push((due - now).as_secs());
            queue.ask("good", now);
            assert_eq!(queue.next(now), Some("good"));
            queue.done("good", Ended::Well, now, 0.5);
            now = due;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(queue.next(now), Some("bad"));
        queue.done("bad", Ended::Well, now, 0.5);
        queue.ask("bad", now);
        assert_eq!(queue.next(now), Some("bad"));
        queue.done("bad", Ended::Failed, now, 0.5);
        assert_eq!(queue.due_at(), Some(now + FIRST_RETRY));
    }

    #[test]
    fn what_fails_again_before_its_time_waits_no_longer_for_that() {
        let (mut queue, start) = (Queue::new(LONGEST_RETRY), Instant::now());
        queue.ask("a", start);
        for look in 0..10 {
            let now = start + Duration::from_millis(look);
            queue.ask("a", now);
            assert_eq!(queue.next(now), Some("a"));
            queue.done("a", Ended::Failed, now, 0.5);
            assert_eq!(queue.due_at(), Some(start + FIRST_RETRY));
        }
        assert_eq!(queue.next(start + FIRST_RETRY), Some("a"));
        queue.done("a", Ended::Failed, start + FIRST_RETRY, 0.5);
        assert_eq!(queue.due_at(), Some(start + 3 * FIRST_RETRY));
    }
}
