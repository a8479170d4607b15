//! How fast a node tells what it owes.
//!
//! Decides by a bucket that holds a window of reports: a node that owes little tells it at once, one that comes back with a
//! full outbox at the rate that the manager has set, however fast it is answered. One that has used up its bucket lets it
//! fill for a while, so that it does not read its outbox for each report.

use std::time::Duration;

use crate::limits;

/// How many reports an empty bucket fills by before it is looked at again, unless that takes longer than [`REST`].
const SOME: u32 = 16;

/// How long it fills at most, if a single report does not need longer.
const REST: Duration = Duration::from_millis(100);

/// The bucket; without a rate it is never empty.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// From one report to the next.
    every: Option<Duration>,
    /// When it will be full again. Kept from session to session: to dial again fills nothing.
    full_at: Duration,
    /// Until when an empty one fills.
    rests: Option<Duration>,
}

impl Pace {
    /// What the manager has set for this session; none of a manager that sets nothing.
    pub(super) fn set(&mut self, per_second: Option<u32>) {
        let every = |per_second: u32| (Duration::from_secs(1) / per_second.max(1)).max(Duration::from_nanos(1));
        self.every = per_second.map(every);
        self.rests = None;
    }

    /// How many reports may go now.
    pub(super) fn left(&mut self, now: Duration) -> usize {
        let Some(every) = self.every else {
            return limits::REPORT_WINDOW;
        };
        self.rests.take_if(|rests| now >= *rests);
        if self.rests.is_some() {
            return 0;
        }
        self.full_at = self.full_at.max(now);
        let missing = self.full_at.saturating_sub(now).as_nanos().div_ceil(every.as_nanos());
        let left = limits::REPORT_WINDOW.saturating_sub(usize::try_from(missing).unwrap_or(usize::MAX));
        if left == 0 {
            self.rests = Some(now.saturating_add(every.saturating_mul(SOME).min(REST).max(every)));
        }
        left
    }

    /// So many have gone, of those that were left.
    pub(super) fn take(&mut self, count: usize) {
        let every = self.every.unwrap_or_default();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.full_at = self.full_at.saturating_add(every.saturating_mul(count));
    }

    /// Until when an empty bucket fills.
    pub(super) fn wake_at(&self) -> Option<Duration> {
        self.rests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(7);
    const WINDOW: usize = limits::REPORT_WINDOW;

    fn pace(per_second: u32) -> Pace {
        let mut pace = Pace::default();
        pace.set(Some(per_second));
        pace
    }

    /// Takes all that may go at each moment that it names, until then; how many went.
    fn drain(pace: &mut Pace, mut now: Duration, until: Duration) -> usize {
        let mut went = 0;
        while now <= until {
            let left = pace.left(now);
            pace.take(left);
            went += left;
            if left == 0 {
                now = pace.wake_at().unwrap();
            }
        }
        went
    }

    #[test]
    fn a_window_goes_at_once_and_then_so_many_a_second() {
        for per_second in [1, 5, 500, 20_000] {
            let mut pace = pace(per_second);
            assert_eq!(pace.left(NOW), WINDOW);
            assert_eq!(drain(&mut pace, NOW, NOW), WINDOW);
            let went = drain(&mut pace, NOW, NOW + Duration::from_secs(10));
            let most = 10 * per_second as usize;
            assert!(
                (most.saturating_sub(SOME as usize)..=most).contains(&went),
                "{per_second}: {went} of {most}"
            );
        }
    }

    #[test]
    fn an_empty_bucket_fills_for_a_while_before_it_is_looked_at_again() {
        for (per_second, some, rest) in [(500, 16, 32), (50, 5, 100), (4, 1, 250)] {
            let mut pace = pace(per_second);
            assert_eq!(drain(&mut pace, NOW, NOW), WINDOW);
            let rest = Duration::from_millis(rest);
            assert_eq!(pace.wake_at(), Some(NOW + rest));
            assert_eq!(pace.left(NOW + rest / 2), 0, "it still fills");
            assert_eq!((pace.left(NOW + rest), pace.wake_at()), (some, None));
            assert_eq!(pace.left(NOW + rest * 1000), WINDOW, "no more is saved up");
        }
    }

    #[test]
    fn another_session_does_not_fill_it() {
        let mut pace = pace(10);
        let left = pace.left(NOW);
        pace.take(left);
        assert_eq!(pace.left(NOW), 0);
        pace.set(Some(10));
        assert_eq!(pace.left(NOW), 0);
    }

    #[test]
    fn whatever_a_manager_says_something_goes() {
        let mut none = Pace::default();
        for _ in 0..100 {
            assert_eq!(none.left(NOW), WINDOW, "no rate, no end");
            none.take(WINDOW);
        }
        for (per_second, until, then) in [(0, Duration::from_secs(5), 5), (u32::MAX, Duration::from_nanos(32), 32)] {
            let went = drain(&mut pace(per_second), NOW, NOW + until);
            assert_eq!(went, WINDOW + then, "{per_second}");
        }
    }
}
