//! When a node dials again: full jitter, so that thousands of nodes that lost the same manager do not return at once.

use std::time::Duration;

use crate::limits;

/// The wait before the next dial.
#[derive(Debug, Default)]
pub struct Reconnect {
    failures: u32,
    ask: Option<Ask>,
    /// The next dial is made as somebody else.
    anew: bool,
}

/// What the end of a session asks for instead of the usual wait.
#[derive(Clone, Copy, Debug)]
enum Ask {
    /// The manager has named a time.
    After(Duration),
    /// Nothing will be better soon.
    Slowly,
}

impl Reconnect {
    /// The manager asks to be dialled after `after`.
    pub(super) fn after(&mut self, after: Duration) {
        self.ask = Some(Ask::After(after.min(limits::MAX_RECONNECT_AFTER)));
    }

    /// Dialling soon would change nothing: the peer was refused, or refuses.
    pub(super) fn slowly(&mut self) {
        self.ask = Some(Ask::Slowly);
    }

    /// What was refused or failed was who the node was, and that has changed: the next dial is made at once, once.
    pub(super) fn anew(&mut self) {
        *self = Self {
            anew: true,
            ..Self::default()
        };
    }

    /// The wait from now, with `jitter` from [0, 1); `lasted` is how long the session was up, if it came up at all.
    pub fn next(&mut self, lasted: Option<Duration>, jitter: f64) -> Duration {
        let (first, last) = limits::RECONNECT;
        if lasted.is_some_and(|lasted| lasted >= limits::SOUND_SESSION) {
            self.failures = 0;
        }
        let bound = first.saturating_mul(2_u32.saturating_pow(self.failures)).min(last);
        self.failures = self.failures.saturating_add(1);
        let ask = self.ask.take();
        if std::mem::take(&mut self.anew) {
            return Duration::ZERO;
        }
        match ask {
            Some(Ask::After(after)) => after,
            Some(Ask::Slowly) => last.mul_f64(f64::midpoint(1.0, jitter.clamp(0.0, 1.0))),
            None => bound.mul_f64(jitter.clamp(0.0, 1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_the_last_and_falls_back_after_a_sound_session() {
        let mut reconnect = Reconnect::default();
        let bounds: Vec<_> = (0..8).map(|_| reconnect.next(None, 1.0).as_millis()).collect();
        assert_eq!(bounds, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(
            reconnect.next(Some(Duration::from_secs(29)), 1.0),
            Duration::from_secs(30)
        );
        assert_eq!(
            reconnect.next(Some(limits::SOUND_SESSION), 1.0),
            Duration::from_millis(500)
        );
    }

    #[test]
    fn jitter_spreads_over_the_whole_bound() {
        let wait = |jitter| Reconnect::default().next(None, jitter).as_millis();
        assert_eq!([wait(0.0), wait(0.5), wait(1.0)], [0, 250, 500]);
    }

    #[test]
    fn a_manager_may_ask_for_a_time_but_not_for_ever() {
        let mut reconnect = Reconnect::default();
        reconnect.after(Duration::from_millis(1_234));
        assert_eq!(reconnect.next(None, 0.9), Duration::from_millis(1_234));
        reconnect.after(Duration::MAX);
        assert_eq!(reconnect.next(None, 0.9), limits::MAX_RECONNECT_AFTER);
    }

    #[test]
    fn who_has_become_somebody_else_does_not_wait_once() {
        let mut reconnect = Reconnect::default();
        let before: Duration = (0..6).map(|_| reconnect.next(None, 1.0)).sum();
        assert!(before > Duration::from_secs(30));
        reconnect.anew();
        reconnect.slowly();
        let waits: Vec<_> = (0..3).map(|_| reconnect.next(None, 1.0).as_millis()).collect();
        assert_eq!(waits, [0, 1_000, 2_000]);
    }

    #[test]
    fn a_refused_node_waits_at_least_half_of_the_last_bound() {
        let mut reconnect = Reconnect::default();
        reconnect.slowly();
        assert_eq!(reconnect.next(None, 0.0), Duration::from_secs(15));
        assert_eq!(reconnect.next(None, 0.0), Duration::ZERO, "asked once only");
    }
}
