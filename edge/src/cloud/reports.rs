//! Which reports of a node are being worked on, and what became of those whose answer the node may not have got.
//!
//! Decides that a report which is sent again, because its answer was lost with a connection, is answered again rather
//! than carried out again. The numbers are unique within one start of the node's local controller only, so another
//! start begins with nothing: what then comes of before is found out by what the resource itself says of it, which is
//! for whoever carries reports out. What is being worked on of earlier starts takes its place in the window all the same,
//! or whoever starts again and again would have as much kept as he likes.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use crate::{limits, message::Downstream, report::ReportResult};

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
    /// What is being worked on.
    pending: BTreeSet<u64>,
    /// How much is being worked on of earlier starts.
    before: usize,
    /// In the order in which they were last answered.
    done: VecDeque<(u64, ReportResult)>,
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
    /// A session of this start of the node's local controller begins.
    pub(super) fn boot(&mut self, boot: &str) {
        if self.boot != boot {
            *self = Self {
                boot: boot.to_owned(),
                before: self.before + self.pending.len(),
                ..Self::default()
            };
        }
    }

    /// Whether what is being worked on of earlier starts leaves no room for another report.
    pub(super) fn crowded(&self) -> bool {
        self.before > 0 && self.before + self.pending.len() >= limits::REPORT_WINDOW
    }

    /// Something with this number has come.
    pub(super) fn take(&mut self, seq: u64) -> Taken {
        if let Some(again) = self.take_again(seq) {
            return again;
        }
        if self.pending.len() >= limits::REPORT_WINDOW {
            return Taken::TooMany;
        }
        self.pending.insert(seq);
        Taken::New
    }

    /// Something with this number has come, which may have come before: then it is done, or pending.
    pub(super) fn take_again(&mut self, seq: u64) -> Option<Taken> {
        let at = self.done.iter().position(|(done, _)| *done == seq);
        if let Some((_, result)) = at.and_then(|at| self.done.remove(at)) {
            self.done.push_back((seq, result.clone()));
            return Some(Taken::Done(result));
        }
        self.pending.contains(&seq).then_some(Taken::Pending)
    }

    /// Whether something with this number came and was not put off: it is being worked on, or its answer may be on its way.
    pub(super) fn has(&self, seq: u64) -> bool {
        self.pending.contains(&seq) || self.done.iter().any(|(done, _)| *done == seq)
    }

    /// The node has the answers of all before `seq`.
    pub(super) fn settled(&mut self, seq: u64) {
        self.done.retain(|(done, _)| *done >= seq);
    }

    /// A report of this start was carried out; false where another start has come meanwhile.
    pub(super) fn finish(&mut self, boot: &str, seq: u64, verdict: &Verdict) -> bool {
        if self.boot != boot || !self.pending.remove(&seq) {
            self.before = self.before.saturating_sub(1);
            return false;
        }
        if let Verdict::Done(result) = verdict {
            self.done.push_back((seq, result.clone()));
        }
        // Answers arrive in their order, and the node waits for a window of them at most: for the last ones.
        while self.done.len() > limits::REPORT_WINDOW {
            self.done.pop_front();
        }
        if self.pending.is_empty() {
            // A node that has nothing to say now keeps no room of a busy time, which an empty set does.
            self.pending = BTreeSet::new();
            self.done.shrink_to_fit();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCEPTED: ReportResult = ReportResult::Accepted {};
    const OK: &Verdict = &Verdict::Done(ACCEPTED);

    #[test]
    fn a_report_is_carried_out_once_and_answered_as_often_as_asked() {
        let mut reports = Reports::default();
        reports.boot("a");
        assert_eq!(reports.take(1), Taken::New);
        assert_eq!(reports.take(1), Taken::Pending);
        assert!(reports.finish("a", 1, OK));
        assert_eq!(reports.take(1), Taken::Done(ACCEPTED));
        reports.boot("a");
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
        reports.boot("a");
        reports.take(1);
        reports.take(2);
        reports.finish("a", 1, OK);
        reports.boot("b");
        assert_eq!(reports.take(1), Taken::New);
        assert!(!reports.finish("a", 2, OK), "an answer to the old start");
    }

    #[test]
    fn what_is_worked_on_of_earlier_starts_leaves_the_later_ones_less_room() {
        let mut reports = Reports::default();
        let seqs = 1..=limits::REPORT_WINDOW as u64 / 2;
        for start in ["a", "b"] {
            reports.boot(start);
            for seq in seqs.clone() {
                assert!(!reports.crowded());
                assert_eq!(reports.take(seq), Taken::New);
            }
        }
        assert!(reports.crowded());
        // As if it went back to what it was.
        reports.boot("a");
        assert!(reports.crowded());
        reports.finish("a", 1, OK);
        assert!(!reports.crowded(), "of any start");
        assert_eq!(reports.take(1), Taken::New);
        assert!(reports.crowded());
        for (start, seq) in ["a", "b"]
            .into_iter()
            .flat_map(|start| seqs.clone().map(move |seq| (start, seq)))
        {
            reports.finish(start, seq, OK);
        }
        assert_eq!((reports.before, reports.pending.len()), (0, 0));
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
        assert_eq!(reports.take(1_001), Taken::New);
        reports.settled(1_001);
        reports.finish("", 1_001, OK);
        assert!(reports.done.capacity() < 5, "{}", reports.done.capacity());
        for seq in 0..limits::REPORT_WINDOW as u64 {
            assert_eq!(reports.take(2_000 + seq), Taken::New);
        }
        assert_eq!(reports.take(3_000), Taken::TooMany);
    }
}
