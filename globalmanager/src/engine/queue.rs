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
//! What gives way to others, since it was asked for so or has ended so, waits as well: until nothing is due, but for every
//! [few](DUE_IN_A_ROW) turns, so that it moves on however much is asked for. What that costs the others is a share of the
//! turns, and so the same for each of a few as for each of many. Where nothing is due for a moment only, while what was due is
//! still looked at, one at once of what gave way is: more of it would be in the way of what is due next.

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
    /// Well so far; look again from this time on, after what is due by then, and after what has given way for longer.
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
    /// It gives way to others, and has since then or will from then on.
    behind: Option<Instant>,
}

/// A key that is being looked at.
#[derive(Clone, Copy, Debug)]
struct Running {
    turn: Turn,
    /// What it was asked for meanwhile.
    asked: Waits,
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
        self.wait(key, Waits::due(at));
    }

    /// Asks for a look at `key` from `since` on, after what is due by then; an earlier time already asked for stands.
    pub(crate) fn ask_after_others(&mut self, key: K, since: Instant) {
        self.wait(key, Waits::behind(since));
    }

    fn wait(&mut self, key: K, asked: Waits) {
        if let Some(running) = self.running.get_mut(&key) {
            running.asked = running.asked.or_earlier(asked);
            return;
        }
        let before = self.waiting.get(&key).copied().unwrap_or_default();
        let waits = before.or_earlier(asked);
        reorder(&mut self.due, &key, before.due, waits.due);
        reorder(&mut self.behind, &key, before.behind, waits.behind);
        self.waiting.insert(key, waits);
    }

    /// The next key to look at, which then counts as running until [`Queue::done`]: one that is due at `now`, or one that gave
    /// way, where nothing is due and what was due leaves it room, or it is its turn.
    pub(crate) fn next(&mut self, now: Instant) -> Option<K> {
        let due = self.due.first().filter(|(at, _)| *at <= now);
        let behind = self.behind.first().filter(|(since, _)| *since <= now);
        let (turn, (_, key)) = match (due, behind) {
            (Some(due), None) => (Turn::Due, due),
            (Some(due), Some(_)) if self.due_in_a_row < DUE_IN_A_ROW => (Turn::Due, due),
            (Some(_), Some(behind)) => (Turn::GaveWay, behind),
            (None, Some(behind)) if self.leaves_room() => (Turn::GaveWay, behind),
            (None, _) => return None,
        };
        let key = key.clone();
        self.due_in_a_row = match turn {
            Turn::Due if behind.is_some() => self.due_in_a_row + 1,
            Turn::Due | Turn::GaveWay => 0,
        };
        let waits = self.waiting.remove(&key).unwrap_or_default();
        reorder(&mut self.due, &key, waits.due, None);
        reorder(&mut self.behind, &key, waits.behind, None);
        let asked = Waits::default();
        self.running.insert(key.clone(), Running { turn, asked });
        Some(key)
    }

    /// When the next key will be due.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// When there may be a [next](Queue::next) key even if nothing was asked for, and nothing done, by then. What gives way by
    /// `now` has its turn once something is done.
    pub(crate) fn next_at(&self, now: Instant) -> Option<Instant> {
        let behind = self.behind.first().map(|(since, _)| *since);
        let behind = behind.filter(|since| *since > now);
        self.due_at().into_iter().chain(behind).min()
    }

    /// Whether others come before `key`, which is running and would give way since then: they are due, or were and are looked at
    /// now, or have given way for longer. Not where it has given way, and this is its turn.
    pub(crate) fn others_come_before(&self, key: &K, since: Instant, now: Instant) -> bool {
        let its_turn = self
            .running
            .get(key)
            .is_some_and(|running| running.turn == Turn::GaveWay);
        let others_are_due = self.due_at().is_some_and(|due| due <= now);
        let others_were_due = self.running_for(Turn::Due).any(|running| running != key);
        let others_gave_way = self.behind.first().is_some_and(|(earlier, _)| *earlier < since);
        !its_turn && (others_are_due || others_were_due || others_gave_way)
    }

    /// Whether what runs leaves room for another that gave way: all of it gave way itself, or none.
    fn leaves_room(&self) -> bool {
        self.running_for(Turn::Due).next().is_none() || self.running_for(Turn::GaveWay).next().is_none()
    }

    /// Which keys run for this reason.
    fn running_for(&self, turn: Turn) -> impl Iterator<Item = &K> {
        let of_turn = self.running.iter().filter(move |(_, running)| running.turn == turn);
        of_turn.map(|(key, _)| key)
    }

    /// Whether nothing runs, and nothing will before `then`.
    pub(crate) fn idle_until(&self, then: Instant) -> bool {
        let waiting = [self.due.first(), self.behind.first()];
        self.running.is_empty() && waiting.into_iter().flatten().all(|(at, _)| *at >= then)
    }

    /// How many keys wait, due or not.
    pub(crate) fn depth(&self) -> usize {
        self.waiting.len()
    }

    /// Records how the look at `key` ended. `jitter` in `0.0..1.0` spreads retries over ±10 %.
    pub(crate) fn done(&mut self, key: K, ended: Ended, now: Instant, jitter: f64) {
        let asked = self.running.remove(&key).map(|running| running.asked);
        let again = match ended {
            Ended::Well => {
                self.failures.remove(&key);
                Waits::default()
            }
            Ended::Again(after) => {
                self.failures.remove(&key);
                Waits::due(now + spread(after, jitter))
            }
            Ended::AfterOthers(since) => {
                self.failures.remove(&key);
                Waits::behind(since)
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
                Waits::due(failures.retry)
            }
        };
        let waits = asked.unwrap_or_default().or_earlier(again);
        if waits.due.or(waits.behind).is_some() {
            self.wait(key, waits);
        }
    }
}

impl Waits {
    fn due(at: Instant) -> Self {
        let due = Some(at);
        Self { due, behind: None }
    }

    fn behind(since: Instant) -> Self {
        let behind = Some(since);
        Self { due: None, behind }
    }

    /// What whoever waits for both waits for. What is due by then does not give way: it is looked at once.
    fn or_earlier(self, other: Self) -> Self {
        let earlier = |one: Option<Instant>, other: Option<Instant>| one.into_iter().chain(other).min();
        let due = earlier(self.due, other.due);
        let behind = earlier(self.behind, other.behind);
        Self {
            due,
            behind: behind.filter(|since| due.is_none_or(|due| *since < due)),
        }
    }
}

/// Has `key` wait in this order from another time on, or not at all.
fn reorder<K: Ord + Clone>(order: &mut BTreeSet<(Instant, K)>, key: &K, from: Option<Instant>, to: Option<Instant>) {
    if from == to {
        return;
    }
    if let Some(from) = from {
        order.remove(&(from, key.clone()));
    }
    if let Some(to) = to {
        order.insert((to, key.clone()));
    }
}

/// A wait ±10 %.
fn spread(wait: Duration, jitter: f64) -> Duration {
    wait.mul_f64(0.9 + 0.2 * jitter)
}

#[cfg(test)]
mod tests;
