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
//! What gives way to others waits as well: until nothing is due, but for every [few](DUE_IN_A_ROW) turns, so that it moves on
//! however much is asked for. What that costs the others is a share of the turns, and so the same for each of a few as for each
//! of many.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

/// First wait after a failure; doubled with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest wait after failures: an object that fails for hours is still tried every five minutes.
pub(crate) const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// So many turns of what is due are followed by one of what gave way, where both wait.
const DUE_IN_A_ROW: u32 = 15;

/// How a pass over a resource ended, as far as the queue cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Well; a watch tells when to look again.
    Well,
    /// Well; look again after this time even if nothing was seen to change.
    Again(Duration),
    /// Well so far; look again after what is due, and after what has given way since before this time.
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
    waiting: BTreeMap<K, Waits>,
    due: BTreeSet<(Instant, K)>,
    behind: BTreeSet<(Instant, K)>,
    /// How many turns there were of what is due, since the last of what gave way.
    due_in_a_row: u32,
    running: BTreeMap<K, Running>,
    failures: BTreeMap<K, Failures>,
    longest_retry: Duration,
}

/// What a key waits for: one of these, or both.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    /// It was asked for, and is due then.
    due: Option<Instant>,
    /// It has given way to others since then.
    behind: Option<Instant>,
}

/// A key that is being looked at.
#[derive(Clone, Copy, Debug)]
struct Running {
    turn: Turn,
    /// When it was asked for meanwhile.
    asked: Option<Instant>,
}

/// Why a key is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Due,
    GaveWay,
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
            due_in_a_row: 0,
            running: BTreeMap::new(),
            failures: BTreeMap::new(),
            longest_retry,
        }
    }

    /// Asks for a look at `key` at `at`; an earlier time already asked for stands.
    pub(crate) fn ask(&mut self, key: K, at: Instant) {
        if let Some(running) = self.running.get_mut(&key) {
            running.asked = Some(running.asked.map_or(at, |earlier| earlier.min(at)));
            return;
        }
        let waits = self.waiting.entry(key.clone()).or_default();
        match waits.due {
            Some(earlier) if earlier <= at => return,
            Some(later) => drop(self.due.remove(&(later, key.clone()))),
            None => {}
        }
        waits.due = Some(at);
        self.due.insert((at, key));
    }

    /// The next key to look at, which then counts as running until [`Queue::done`]: one that is due at `now`, or one that gave
    /// way, where nothing is due or it is its turn.
    pub(crate) fn next(&mut self, now: Instant) -> Option<K> {
        let due = self.due.first().filter(|(at, _)| *at <= now);
        let behind = self.behind.first();
        let (turn, (_, key)) = match (due, behind) {
            (Some(due), None) => (Turn::Due, due),
            (Some(due), Some(_)) if self.due_in_a_row < DUE_IN_A_ROW => (Turn::Due, due),
            (_, Some(behind)) => (Turn::GaveWay, behind),
            (None, None) => return None,
        };
        let key = key.clone();
        self.due_in_a_row = match turn {
            Turn::Due if !self.behind.is_empty() => self.due_in_a_row + 1,
            Turn::Due | Turn::GaveWay => 0,
        };
        let waits = self.waiting.remove(&key).unwrap_or_default();
        if let Some(at) = waits.due {
            self.due.remove(&(at, key.clone()));
        }
        if let Some(since) = waits.behind {
            self.behind.remove(&(since, key.clone()));
        }
        self.running.insert(key.clone(), Running { turn, asked: None });
        Some(key)
    }

    /// When the next key will be due.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Whether others come before `key`, which is running and would give way since then: they are due, or have given way for
    /// longer. Not where it has given way, and this is its turn.
    pub(crate) fn others_come_before(&self, key: &K, since: Instant, now: Instant) -> bool {
        let its_turn = self
            .running
            .get(key)
            .is_some_and(|running| running.turn == Turn::GaveWay);
        let others_are_due = self.due_at().is_some_and(|due| due <= now);
        let others_gave_way = self.behind.first().is_some_and(|(earlier, _)| *earlier < since);
        !its_turn && (others_are_due || others_gave_way)
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
        let meanwhile = self.running.remove(&key).and_then(|running| running.asked);
        let again = match ended {
            Ended::Well => {
                self.failures.remove(&key);
                None
            }
            Ended::Again(after) => {
                self.failures.remove(&key);
                Some(now + spread(after, jitter))
            }
            Ended::AfterOthers(since) => {
                self.failures.remove(&key);
                self.waiting.entry(key.clone()).or_default().behind = Some(since);
                self.behind.insert((since, key.clone()));
                None
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
    fn what_gives_way_is_looked_at_once_nothing_is_due_or_it_is_asked_for() {
        let (mut queue, start) = (Queue::new(LONGEST_RETRY), Instant::now());
        let next = |queue: &mut Queue<_>, seconds| queue.next(at(start, seconds));
        give_way(&mut queue, "a", start);
        assert_eq!((queue.due_at(), queue.depth()), (None, 1));
        assert!(
            !queue.idle_until(at(start, 1)),
            "it is looked at as soon as somebody may"
        );
        queue.ask("b", at(start, 1));
        queue.ask("c", at(start, 2));
        assert_eq!(next(&mut queue, 1), Some("b"), "due is due");
        assert!(
            queue.others_come_before(&"b", at(start, 1), at(start, 1)),
            "a has given way for longer"
        );
        assert_eq!(next(&mut queue, 1), Some("a"), "before what is due later");
        assert!(
            !queue.others_come_before(&"a", at(start, 0), at(start, 2)),
            "whatever is due, this is its turn"
        );
        assert_eq!((next(&mut queue, 1), next(&mut queue, 2)), (None, Some("c")));

        give_way(&mut queue, "d", at(start, 3));
        queue.ask("d", at(start, 300));
        queue.ask("e", at(start, 4));
        assert_eq!(queue.depth(), 2, "once, whatever it waits for");
        assert_eq!(next(&mut queue, 4), Some("e"));
        assert_eq!(
            next(&mut queue, 4),
            Some("d"),
            "a later look is no reason to wait for that"
        );
        assert_eq!((next(&mut queue, 300), queue.depth()), (None, 0));

        give_way(&mut queue, "f", at(start, 301));
        queue.ask("f", at(start, 302));
        queue.ask("g", at(start, 303));
        assert_eq!(next(&mut queue, 303), Some("f"), "something was seen of it");
        assert!(queue.others_come_before(&"f", at(start, 301), at(start, 303)));
        assert_eq!((next(&mut queue, 303), queue.depth()), (Some("g"), 0));
    }

    #[test]
    fn what_gives_way_moves_on_by_a_share_of_the_turns_however_much_is_due() {
        let (mut queue, now) = (Queue::new(LONGEST_RETRY), Instant::now());
        for key in [1, 2] {
            give_way(&mut queue, key, now);
        }
        let mut turns = vec![];
        for other in 10..50 {
            // There is always more to do than there are turns.
            queue.ask(2 * other, now);
            queue.ask(2 * other + 1, now);
            let next = queue.next(now).unwrap();
            queue.done(next, Ended::Well, now, 0.5);
            turns.push(next);
        }
        let of = |key| turns.iter().position(|turn| *turn == key).unwrap();
        let few = usize::try_from(DUE_IN_A_ROW).unwrap();
        assert!(of(1) <= few, "{turns:?}");
        assert_eq!(of(2), of(1) + few + 1, "{turns:?}");
    }

    fn give_way<K: Ord + Clone + std::fmt::Debug>(queue: &mut Queue<K>, key: K, since: Instant) {
        queue.ask(key.clone(), since);
        assert_eq!(queue.next(since), Some(key.clone()));
        queue.done(key, Ended::AfterOthers(since), since, 0.5);
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
