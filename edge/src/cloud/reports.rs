//! Which reports of a node are being worked on, and what became of those whose answer the node may not have got.
//!
//! Decides that a report which is sent again, because its answer was lost with a connection, is answered again rather
//! than carried out again. The numbers are unique within one start of the node's local controller only, so another
//! start begins with nothing.
//!
//! But where a store of before was put back, figures come that were answered then, and newer ones were since. They are
//! older by their number and by the node's clock, of which one alone says nothing: a clock may be put right, and numbers
//! begin again where an old store goes on. Those are answered, and what is newer stands. Rounds and events that come again
//! say what is there already.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    limits,
    message::Downstream,
    report::{Report, ReportResult},
};

/// Of how many resources it is remembered which figures are the newest.
const FIGURES: usize = 4096;

/// What carrying out a report came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is done with, either way.
    Done(ReportResult),
    /// Not now: the node keeps it and sends it again.
    Later {
        /// After so long, within [`limits::REPORT_RETRY`].
        retry_after: Duration,
    },
}

impl Verdict {
    /// The frame that tells the node.
    pub(super) fn frame(self, seq: u64) -> Downstream {
        match self {
            Self::Done(result) => Downstream::ReportResult { seq, result },
            Self::Later { retry_after } => Downstream::ReportLater {
                seq,
                retry_after_ms: u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX),
            },
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Reports {
    boot: String,
    /// How many starts there were before this one.
    starts: u32,
    /// What is being worked on; of figures, which.
    pending: BTreeMap<u64, Option<(u64, Figures)>>,
    /// In the order in which they were last answered.
    done: VecDeque<(u64, ReportResult)>,
    /// The newest that were carried out, by the hash of their resource.
    newest: BTreeMap<u64, Figures>,
}

/// Figures of a resource, as far as they can be older or newer than others. Small, since most nodes have reported some.
#[derive(Clone, Debug)]
struct Figures {
    start: u32,
    seq: u64,
    observed_at: Timestamp,
}

impl Figures {
    fn are_before(&self, newest: &Self) -> bool {
        self.start != newest.start && self.seq <= newest.seq && self.observed_at <= newest.observed_at
    }
}

/// What a report that came is.
#[derive(Debug, PartialEq)]
pub(super) enum Taken {
    /// To be carried out.
    New,
    /// Being carried out.
    Pending,
    /// Carried out before, with this result.
    Done(ReportResult),
    /// More than the window allows.
    TooMany,
}

impl Reports {
    /// A session of this start of the node's local controller begins. A store that was there before goes on from some
    /// number; an empty one, of a node that was installed anew, say, begins again, and so may its clock: what it has to say
    /// is new whatever its number.
    pub(super) fn boot(&mut self, boot: &str, has_store: bool) {
        if self.boot != boot {
            let newest = std::mem::take(&mut self.newest);
            *self = Self {
                boot: boot.to_owned(),
                starts: self.starts.wrapping_add(1),
                newest: if has_store { newest } else { BTreeMap::new() },
                ..Self::default()
            };
        }
    }

    /// A report has come.
    pub(super) fn take_report(&mut self, report: &Report) -> Taken {
        let seq = report.seq;
        let Some((resource, figures)) = self.figures(report) else {
            return self.take(seq);
        };
        let newest = self.newest.get(&resource);
        if newest.is_some_and(|newest| figures.are_before(newest)) {
            return Taken::Done(ReportResult::Accepted {});
        }
        let taken = self.take(seq);
        if taken == Taken::New {
            self.pending.insert(seq, Some((resource, figures)));
        }
        taken
    }

    fn figures(&self, report: &Report) -> Option<(u64, Figures)> {
        let mut resource = DefaultHasher::new();
        (&report.key, &report.uid).hash(&mut resource);
        let figures = Figures {
            start: self.starts,
            seq: report.seq,
            observed_at: report.observed_at,
        };
        report.payload.coalesces().then(|| (resource.finish(), figures))
    }

    fn carried_out(&mut self, (resource, figures): (u64, Figures)) {
        self.newest.insert(resource, figures);
        // Which one is forgotten does not matter: a node has hardly so many.
        if self.newest.len() > FIGURES {
            self.newest.pop_first();
        }
    }

    /// Something with this number has come.
    pub(super) fn take(&mut self, seq: u64) -> Taken {
        let at = self.done.iter().position(|(done, _)| *done == seq);
        if let Some((_, result)) = at.and_then(|at| self.done.remove(at)) {
            self.done.push_back((seq, result.clone()));
            return Taken::Done(result);
        }
        if self.pending.contains_key(&seq) {
            return Taken::Pending;
        }
        if self.pending.len() >= limits::REPORT_WINDOW {
            return Taken::TooMany;
        }
        self.pending.insert(seq, None);
        Taken::New
    }

    /// The node has the answers of all before `seq`.
    pub(super) fn settled(&mut self, seq: u64) {
        self.done.retain(|(done, _)| *done >= seq);
    }

    /// A report of this start was carried out; false where another start has come meanwhile.
    pub(super) fn finish(&mut self, boot: &str, seq: u64, verdict: &Verdict) -> bool {
        if self.boot != boot {
            return false;
        }
        let Some(figures) = self.pending.remove(&seq) else {
            return false;
        };
        if let Verdict::Done(result) = verdict {
            self.done.push_back((seq, result.clone()));
            if let (Some(figures), ReportResult::Accepted {}) = (figures, result) {
                self.carried_out(figures);
            }
        }
        // Answers arrive in their order, and the node waits for a window of them at most: for the last ones.
        while self.done.len() > limits::REPORT_WINDOW {
            self.done.pop_front();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ObjectKey, ReportPayload};

    const ACCEPTED: ReportResult = ReportResult::Accepted {};
    const OK: &Verdict = &Verdict::Done(ACCEPTED);

    #[test]
    fn a_report_is_carried_out_once_and_answered_as_often_as_asked() {
        let mut reports = Reports::default();
        reports.boot("a", true);
        assert_eq!(reports.take(1), Taken::New);
        assert_eq!(reports.take(1), Taken::Pending);
        assert!(reports.finish("a", 1, OK));
        assert_eq!(reports.take(1), Taken::Done(ACCEPTED));
        reports.boot("a", true);
        assert_eq!(
            reports.take(1),
            Taken::Done(ACCEPTED),
            "another session of the same start"
        );
    }

    #[test]
    fn a_report_that_has_to_wait_is_new_when_it_comes_again() {
        let mut reports = Reports::default();
        reports.take(1);
        assert!(reports.finish(
            "",
            1,
            &Verdict::Later {
                retry_after: Duration::from_secs(1)
            }
        ));
        assert_eq!(reports.take(1), Taken::New);
    }

    #[test]
    fn another_start_of_the_node_counts_anew() {
        let mut reports = Reports::default();
        reports.boot("a", true);
        reports.take(1);
        reports.take(2);
        reports.finish("a", 1, OK);
        reports.boot("b", true);
        assert_eq!(reports.take(1), Taken::New);
        assert!(!reports.finish("a", 2, OK), "an answer to the old start");
    }

    /// What is said of a Dataset.
    fn count(dataset: usize, seq: u64, second: i64) -> Report {
        Report {
            seq,
            key: ObjectKey::new("dataset", "default", dataset.to_string()),
            uid: "u".to_owned(),
            observed_at: Timestamp::from_second(second).unwrap(),
            payload: ReportPayload::DatasetSamples { count: 1 },
        }
    }

    #[test]
    fn of_a_store_that_was_put_back_figures_do_not_replace_newer_ones() {
        let mut reports = Reports::default();
        reports.boot("a", true);
        for report in [count(0, 1, 100), count(1, 2, 101), count(0, 3, 102)] {
            assert_eq!(reports.take_report(&report), Taken::New);
            assert!(reports.finish("a", report.seq, OK));
        }
        reports.boot("b", true);
        assert_eq!(reports.take_report(&count(0, 1, 100)), Taken::Done(ACCEPTED));
        let round = ReportPayload::Event {
            message: serde_json::json!({}).into(),
        };
        let event = Report {
            payload: round,
            ..count(0, 1, 100)
        };
        assert_eq!(reports.take_report(&event), Taken::New, "events are never left out");
        for (new, why) in [
            (count(0, 2, 103), "the store goes on from where it was"),
            (count(0, 4, 7), "the clock was put right"),
            (count(2, 3, 100), "of this one nothing was said"),
        ] {
            assert_eq!(reports.take_report(&new), Taken::New, "{why}");
        }
        assert!(reports.finish("b", 4, OK));
        reports.boot("a", true);
        assert_eq!(
            reports.take_report(&count(0, 3, 102)),
            Taken::New,
            "newer by the clock than what is there"
        );
    }

    #[test]
    fn figures_that_were_refused_or_put_off_stand_in_the_way_of_none() {
        let later = Verdict::Later {
            retry_after: Duration::from_secs(1),
        };
        let refused = Verdict::Done(ReportResult::Refused {
            reason: "no".to_owned(),
        });
        for verdict in [later, refused] {
            let mut reports = Reports::default();
            reports.take_report(&count(0, 9, 100));
            reports.finish("", 9, &verdict);
            reports.boot("b", true);
            assert_eq!(reports.take_report(&count(0, 8, 99)), Taken::New);
        }
    }

    #[test]
    fn a_node_that_was_installed_anew_is_heard_whatever_its_clock_says() {
        let mut reports = Reports::default();
        reports.boot("a", true);
        reports.take_report(&count(0, 9, 100));
        reports.finish("a", 9, OK);
        reports.boot("b", false);
        assert_eq!(reports.take_report(&count(0, 1, 0)), Taken::New);
    }

    #[test]
    fn the_newest_figures_are_remembered_of_so_many_resources() {
        let mut reports = Reports::default();
        let all = || (0..FIGURES + 10).zip(1..);
        for (dataset, seq) in all() {
            reports.take_report(&count(dataset, seq, 100));
            reports.finish("", seq, OK);
        }
        reports.boot("b", true);
        let known = all().filter(|(dataset, seq)| {
            let taken = reports.take_report(&count(*dataset, *seq, 100));
            reports.finish(
                "b",
                *seq,
                &Verdict::Later {
                    retry_after: Duration::ZERO,
                },
            );
            taken == Taken::Done(ACCEPTED)
        });
        assert_eq!(known.count(), FIGURES);
    }

    #[test]
    fn the_answers_that_were_given_last_are_kept_whatever_their_numbers() {
        let mut reports = Reports::default();
        let far = 1_000_000;
        for seq in (far..).take(limits::REPORT_WINDOW).chain([1]) {
            assert_eq!(reports.take(seq), Taken::New);
            reports.finish("", seq, OK);
        }
        assert_eq!(reports.take(1), Taken::Done(ACCEPTED));
        assert_eq!(reports.take(far + 1), Taken::Done(ACCEPTED), "given once more");
        assert_eq!(reports.take(2), Taken::New);
        reports.finish("", 2, OK);
        assert_eq!(reports.take(far + 1), Taken::Done(ACCEPTED));
        assert_eq!(reports.take(far + 2), Taken::New, "the node has had that one");
    }

    #[test]
    fn memory_is_bounded_by_the_window() {
        let mut reports = Reports::default();
        for seq in 1..=1_000 {
            assert_eq!(reports.take(seq), Taken::New);
            reports.finish("", seq, OK);
        }
        assert_eq!(reports.done.len(), limits::REPORT_WINDOW);
        reports.settled(1_000);
        assert_eq!(reports.done.len(), 1);
        for seq in 0..limits::REPORT_WINDOW as u64 {
            assert_eq!(reports.take(2_000 + seq), Taken::New);
        }
        assert_eq!(reports.take(3_000), Taken::TooMany);
    }
}
