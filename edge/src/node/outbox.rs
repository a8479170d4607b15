//! The reports on their way from the durable outbox to the manager: which are to be read, which are in flight.

use std::{collections::BTreeSet, time::Duration};

use super::store::Outgoing;
use crate::{limits, message::Upstream};

/// The window over the durable outbox.
#[derive(Debug, Default)]
pub(super) struct Window {
    in_flight: BTreeSet<u64>,
    /// The last number read in this session.
    read_to: u64,
    reading: Option<Reading>,
    /// Whether the outbox may hold more than was read.
    more: bool,
    /// When to go back to which number, because the manager could not carry it out yet.
    retry: Option<(Duration, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Reading {
    /// What comes is sent.
    Current,
    /// The session that asked is over: what comes is dropped, since earlier reports have to go first again.
    Stale,
}

impl Window {
    /// A session has come up: everything that the outbox holds is owed.
    pub(super) fn open(&mut self) {
        self.in_flight.clear();
        self.read_to = 0;
        self.more = true;
        self.retry = None;
        self.reading = self.reading.map(|_| Reading::Stale);
    }

    /// Something was put into the outbox.
    pub(super) fn grew(&mut self) {
        self.more = true;
    }

    /// What to read now, if anything: after which number, and how many.
    pub(super) fn want(&mut self, now: Duration) -> Option<(u64, usize)> {
        if self.reading.is_some() {
            return None;
        }
        if let Some((_, seq)) = self.retry.take_if(|(at, _)| now >= *at) {
            self.read_to = self.read_to.min(seq.saturating_sub(1));
            self.more = true;
        }
        let room = limits::REPORT_WINDOW.saturating_sub(self.in_flight.len());
        if !self.more || room == 0 {
            return None;
        }
        // Cleared before the outbox is read: what is put in meanwhile sets it again.
        self.more = false;
        self.reading = Some(Reading::Current);
        Some((self.read_to, room))
    }

    /// Takes what was read; the frames to send.
    pub(super) fn read(&mut self, outgoing: Vec<Outgoing>) -> Vec<Upstream> {
        let current = self.reading.take() == Some(Reading::Current);
        if !current || outgoing.is_empty() {
            return Vec::new();
        }
        // Whether there was more than was asked for is found out by asking again.
        self.more = true;
        self.read_to = self.read_to.max(outgoing.last().map_or(0, Outgoing::seq));
        // What is in flight is met again where the window went back.
        let fresh: Vec<_> = outgoing
            .into_iter()
            .filter(|outgoing| self.in_flight.insert(outgoing.seq()))
            .collect();
        let settled = self.in_flight.first().copied().unwrap_or_default();
        fresh
            .into_iter()
            .map(|outgoing| outgoing.into_message(settled))
            .collect()
    }

    /// The outbox could not be read.
    pub(super) fn read_failed(&mut self) {
        self.reading = None;
        self.more = true;
    }

    /// Takes the answer to a report; false where the report was not in flight.
    pub(super) fn answered(&mut self, seq: u64) -> bool {
        self.in_flight.remove(&seq)
    }

    /// The manager could not carry out this report: it goes again at `at`, and does not hold up others until then.
    pub(super) fn later(&mut self, seq: u64, at: Duration) {
        if self.in_flight.remove(&seq) {
            let (sooner, first) = self.retry.unwrap_or((at, seq));
            self.retry = Some((sooner.min(at), first.min(seq)));
        }
    }

    /// When [`Window::want`] has to be asked again although nothing happened.
    pub(super) fn wake_at(&self) -> Option<Duration> {
        // What is being read comes first, and wakes us.
        self.retry.filter(|_| self.reading.is_none()).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn gaps(seqs: std::ops::RangeInclusive<u64>) -> Vec<Outgoing> {
        seqs.map(|seq| Outgoing::Gap { seq, count: 1 }).collect()
    }

    #[test]
    fn reads_on_until_nothing_comes_and_again_when_the_outbox_grew() {
        let mut window = Window::default();
        assert_eq!(window.want(NOW), None, "no session yet");
        window.open();
        assert_eq!(window.want(NOW), Some((0, limits::REPORT_WINDOW)));
        assert_eq!(window.want(NOW), None, "one read at a time");
        assert_eq!(window.read(gaps(5..=6)).len(), 2);
        assert_eq!(window.want(NOW), Some((6, limits::REPORT_WINDOW - 2)));
        assert!(window.read(vec![]).is_empty());
        assert_eq!(window.want(NOW), None);
        window.grew();
        assert!(window.want(NOW).is_some());
    }

    #[test]
    fn what_is_put_in_while_the_outbox_is_read_is_not_overlooked() {
        let mut window = Window::default();
        window.open();
        window.want(NOW);
        window.grew();
        window.read(vec![]);
        assert!(window.want(NOW).is_some());
    }

    #[test]
    fn the_window_is_bounded_and_answers_open_it() {
        let mut window = Window::default();
        window.open();
        window.want(NOW);
        window.read(gaps(1..=limits::REPORT_WINDOW as u64));
        assert_eq!(window.want(NOW), None);
        assert!(window.answered(3));
        assert!(!window.answered(3), "once");
        assert_eq!(window.want(NOW), Some((limits::REPORT_WINDOW as u64, 1)));
    }

    #[test]
    fn a_new_session_starts_over_and_drops_what_the_old_one_asked_for() {
        let mut window = Window::default();
        window.open();
        window.want(NOW);
        window.read(gaps(1..=4));
        window.want(NOW);
        window.open();
        assert_eq!(window.want(NOW), None, "the old read has to return first");
        assert!(window.read(gaps(5..=6)).is_empty());
        assert_eq!(window.want(NOW), Some((0, limits::REPORT_WINDOW)));
    }

    #[test]
    fn settled_is_the_lowest_in_flight() {
        let mut window = Window::default();
        window.open();
        window.want(NOW);
        window.read(gaps(3..=5));
        window.answered(3);
        window.want(NOW);
        let report = |seq| {
            Outgoing::Report(crate::report::Report {
                seq,
                key: crate::object::ObjectKey::new("dataset", "default", "d"),
                uid: String::new(),
                observed_at: jiff::Timestamp::UNIX_EPOCH,
                payload: crate::report::ReportPayload::DatasetSamples { count: 1 },
            })
        };
        let frames = window.read(vec![report(6)]);
        assert!(matches!(frames[..], [Upstream::Report { settled: 4, .. }]));
    }

    #[test]
    fn what_has_to_wait_is_read_again_in_its_time_and_holds_up_nothing() {
        let mut window = Window::default();
        window.open();
        window.want(NOW);
        window.read(gaps(1..=3));
        window.later(2, NOW * 3);
        window.later(3, NOW * 2);
        assert_eq!(
            window.want(NOW),
            Some((3, limits::REPORT_WINDOW - 1)),
            "the next ones go on"
        );
        assert_eq!(window.read(gaps(4..=4)).len(), 1);
        window.want(NOW);
        window.read(vec![]);
        assert_eq!((window.want(NOW), window.wake_at()), (None, Some(NOW * 2)));
        assert_eq!(window.want(NOW * 2), Some((1, limits::REPORT_WINDOW - 2)));
        let again: Vec<_> = window.read(gaps(2..=4)).into_iter().collect();
        assert_eq!(
            again,
            [2, 3].map(|seq| Upstream::Gap { seq, count: 1 }),
            "4 is in flight still"
        );
        assert_eq!(window.wake_at(), None);
    }
}
