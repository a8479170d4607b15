//! The reports on their way from the durable outbox to the manager: which are to be read, which are in flight.

use std::collections::BTreeSet;

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
        self.reading = self.reading.map(|_| Reading::Stale);
    }

    /// Something was put into the outbox.
    pub(super) fn grew(&mut self) {
        self.more = true;
    }

    /// What to read now, if anything: after which number, and how many.
    pub(super) fn want(&mut self) -> Option<(u64, usize)> {
        let room = limits::REPORT_WINDOW.saturating_sub(self.in_flight.len());
        if self.reading.is_some() || !self.more || room == 0 {
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
        self.in_flight.extend(outgoing.iter().map(Outgoing::seq));
        let settled = self.in_flight.first().copied().unwrap_or_default();
        self.read_to = self.read_to.max(outgoing.last().map_or(0, Outgoing::seq));
        outgoing
            .into_iter()
            .map(|outgoing| outgoing.into_message(settled))
            .collect()
    }

    /// Takes the answer to a report; false where the report was not in flight.
    pub(super) fn answered(&mut self, seq: u64) -> bool {
        self.in_flight.remove(&seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(seqs: std::ops::RangeInclusive<u64>) -> Vec<Outgoing> {
        seqs.map(|seq| Outgoing::Gap { seq, count: 1 }).collect()
    }

    #[test]
    fn reads_on_until_nothing_comes_and_again_when_the_outbox_grew() {
        let mut window = Window::default();
        assert_eq!(window.want(), None, "no session yet");
        window.open();
        assert_eq!(window.want(), Some((0, limits::REPORT_WINDOW)));
        assert_eq!(window.want(), None, "one read at a time");
        assert_eq!(window.read(gaps(5..=6)).len(), 2);
        assert_eq!(window.want(), Some((6, limits::REPORT_WINDOW - 2)));
        assert!(window.read(vec![]).is_empty());
        assert_eq!(window.want(), None);
        window.grew();
        assert!(window.want().is_some());
    }

    #[test]
    fn what_is_put_in_while_the_outbox_is_read_is_not_overlooked() {
        let mut window = Window::default();
        window.open();
        window.want();
        window.grew();
        window.read(vec![]);
        assert!(window.want().is_some());
    }

    #[test]
    fn the_window_is_bounded_and_answers_open_it() {
        let mut window = Window::default();
        window.open();
        window.want();
        window.read(gaps(1..=limits::REPORT_WINDOW as u64));
        assert_eq!(window.want(), None);
        assert!(window.answered(3));
        assert!(!window.answered(3), "once");
        assert_eq!(window.want(), Some((limits::REPORT_WINDOW as u64, 1)));
    }

    #[test]
    fn a_new_session_starts_over_and_drops_what_the_old_one_asked_for() {
        let mut window = Window::default();
        window.open();
        window.want();
        window.read(gaps(1..=4));
        window.want();
        window.open();
        assert_eq!(window.want(), None, "the old read has to return first");
        assert!(window.read(gaps(5..=6)).is_empty());
        assert_eq!(window.want(), Some((0, limits::REPORT_WINDOW)));
    }

    #[test]
    fn settled_is_the_lowest_in_flight() {
        let mut window = Window::default();
        window.open();
        window.want();
        window.read(gaps(3..=5));
        window.answered(3);
        window.want();
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
}
