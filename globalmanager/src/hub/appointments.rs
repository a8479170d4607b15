//! Who is let in when many come at once, and when nodes that are sent away are to come back: each at the next time that is
//! free.
//!
//! Decides that so many come a second, however many are sent away, and however often; and that nobody is kept away for longer
//! than a Lease may stand. Whoever invents nodes keeps none out that has proven who it is: these have turns of their own. Has
//! no clock.

use std::time::Duration;

use crate::lease;

/// Between two of them: a manager on two cores takes up about a thousand sessions a second.
const EVERY: Duration = Duration::from_millis(1);

/// How many sessions may begin at once: the last of them waits two seconds until it is taken up. More would wait until they
/// take their manager for dead, and come again.
const AT_ONCE: u32 = 2_000;

/// The sessions that begin: of nodes that have proven who they are, and of whoever only says a name.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    proven: Turns,
    said: Turns,
}

impl Admissions {
    /// Whether another one may begin at `now`.
    pub(super) fn admit(&mut self, proven: bool, now: Duration) -> bool {
        let turns = if proven { &mut self.proven } else { &mut self.said };
        turns.admit(now)
    }
}

#[derive(Debug, Default)]
struct Turns {
    /// When the last of them is taken up.
    taken_up: Duration,
}

impl Turns {
    fn admit(&mut self, now: Duration) -> bool {
        let then = self.taken_up.max(now) + EVERY;
        let admitted = then <= now + EVERY * AT_ONCE;
        if admitted {
            self.taken_up = then;
        }
        admitted
    }
}

/// The times that are given away.
#[derive(Debug, Default)]
pub(super) struct Appointments {
    /// The last of them.
    last: Duration,
}

impl Appointments {
    /// How long a node is to stay away that is sent away at `now`.
    pub(super) fn next(&mut self, now: Duration) -> Duration {
        let wait = (self.last.saturating_sub(now) + EVERY).min(lease::DURATION);
        self.last = now + wait;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn however_many_are_sent_away_a_thousand_a_second_come_back() {
        let mut appointments = Appointments::default();
        let waits: Vec<_> = (0..5000).map(|_| appointments.next(NOW)).collect();
        assert!(waits.windows(2).all(|pair| pair[1] == pair[0] + EVERY));
        assert_eq!(waits.last(), Some(&Duration::from_secs(5)));
        // Those who are sent away again queue up behind the others.
        assert_eq!(appointments.next(NOW + EVERY), Duration::from_secs(5));
    }

    #[test]
    fn so_many_are_let_in_at_once_and_then_a_thousand_a_second() {
        let mut admissions = Admissions::default();
        let mut admitted = |now: Duration| (0..5_000).filter(|_| admissions.admit(false, now)).count();
        assert_eq!(admitted(NOW), AT_ONCE as usize);
        assert_eq!(admitted(NOW + EVERY * 10), 10);
        assert_eq!(admitted(NOW + EVERY * 10), 0);
        assert_eq!(admitted(NOW * 2), AT_ONCE as usize);
        assert!(
            admissions.admit(true, NOW * 2),
            "one with a certificate does not wait for names"
        );
    }

    #[test]
    fn the_first_one_in_a_while_comes_back_at_once() {
        let mut appointments = Appointments::default();
        for _ in 0..5000 {
            appointments.next(NOW);
        }
        assert_eq!(appointments.next(NOW + Duration::from_secs(60)), EVERY);
    }

    #[test]
    fn nobody_is_kept_away_for_longer_than_a_lease_stands() {
        let mut appointments = Appointments::default();
        for _ in 0..1_000_000 {
            appointments.next(NOW);
        }
        assert_eq!(appointments.next(NOW), lease::DURATION);
        assert_eq!(appointments.next(NOW + lease::DURATION + EVERY), EVERY);
    }
}
