//! What nodes report on one resource: what is written together, when, and what each report is answered.
//!
//! ```text
//!   report ─┬─ one before it is owed ─▶ later
//!           └─▶ waiting ── a pace after the last write ─▶ batch ─┬─▶ in the API server, or refused: answered
//!                  ▲                                             ├─▶ not now: later, with all of its node behind it
//!                  └───────────── apart, if together refused ────┘
//! ```
//!
//! Decides that whatever waits goes as one batch, so that a flood costs one write a [`limits::STATUS_PACE`], however many
//! reports of however many nodes it is: of figures the newest is left then, and every event and every round is in it. The
//! reports of one node stay in their order, also when some have to come again: what was put off comes before what came
//! after it. Has no clock and does no I/O.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use skerry_edge::{Report, ReportResult, cloud::Verdict, limits};

use super::{NodeName, reports::Answers};
use crate::engine::Taken;

/// When a node sends a report again that could not be taken: the API server is away, or the resource does not parse.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// For how long later ones are put off beyond that, where the one that is owed does not come: its node may have given it
/// up for a newer one.
const GRACE: Duration = Duration::from_secs(5);
/// And how soon they come again then.
const SOON: Duration = Duration::from_secs(1);
/// Reports in a batch at most: what they come to is computed at a stretch.
const BATCH: usize = 256;

/// A report, who made it, and the start of the local controller that sent it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reported {
    /// The node.
    pub node: NodeName,
    /// The start of its local controller.
    pub boot: String,
    /// The report.
    pub report: Report,
}

/// The reports on one resource.
#[derive(Debug, Default)]
pub(super) struct Stream {
    waiting: VecDeque<Reported>,
    /// What waited of a start of a node that is over.
    dropped: Vec<Reported>,
    /// The starts of local controllers of which something may wait.
    boots: HashMap<NodeName, String>,
    /// The API server is left alone until then.
    rest_until: Duration,
    /// Of nodes that were told to send some again: the first of those.
    owed: HashMap<NodeName, Owed>,
    /// How often a batch was halved because the API server refused it.
    halved: u32,
}

#[derive(Debug)]
struct Owed {
    boot: String,
    seq: u64,
    due: Duration,
}

/// What to do now.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// Take these, then tell [`Stream::answered`].
    Batch(Vec<Reported>),
    /// Nothing until then, or until another report has come.
    Rest(Duration),
    /// Nothing, and nothing is to be kept in mind: the stream may be dropped.
    Over,
}

impl Stream {
    /// A report has come; how long it is to wait at the node, where it may not go before one that is owed.
    pub(super) fn push(&mut self, now: Duration, reported: Reported) -> Option<Duration> {
        if let Some(owed) = self.owed.get(&reported.node) {
            let other_start = owed.boot != reported.boot;
            if !other_start && reported.report.seq > owed.seq && now < owed.due + GRACE {
                return Some(owed.due.saturating_sub(now).max(SOON));
            }
            self.owed.remove(&reported.node);
        }
        let before = self.boots.insert(reported.node.clone(), reported.boot.clone());
        if before.is_some_and(|before| before != reported.boot) {
            // None of it was answered, so it comes again: a node has nothing twice here, however often it starts.
            let of_before = |waiting: &Reported| waiting.node == reported.node && waiting.boot != reported.boot;
            let (dropped, waiting): (VecDeque<_>, VecDeque<_>) = self.waiting.drain(..).partition(of_before);
            self.dropped.extend(dropped);
            self.waiting = waiting;
        }
        self.waiting.push_back(reported);
        None
    }

    /// What was dropped since this was asked last: it is to be finished, though nobody waits for the answer.
    pub(super) fn dropped(&mut self) -> Vec<(Reported, Verdict)> {
        let later = |reported| (reported, Verdict::Later { retry_after: SOON });
        std::mem::take(&mut self.dropped).into_iter().map(later).collect()
    }

    /// What to do at `now`. No batch may be under way.
    pub(super) fn next(&mut self, now: Duration) -> Next {
        self.owed.retain(|_, owed| now < owed.due + GRACE);
        if now < self.rest_until {
            return Next::Rest(self.rest_until);
        }
        if self.waiting.is_empty() {
            self.boots.clear();
            let kept = self.owed.values().map(|owed| owed.due + GRACE).min();
            return kept.map_or(Next::Over, Next::Rest);
        }
        let most = (BATCH >> self.halved.min(BATCH.ilog2())).min(self.waiting.len());
        Next::Batch(self.waiting.drain(..most).collect())
    }

    /// What became of a batch; the answers that are to be given.
    pub(super) fn answered(
        &mut self,
        now: Duration,
        batch: Vec<Reported>,
        answers: Answers,
    ) -> Vec<(Reported, Verdict)> {
        let Answers { each, asked } = answers;
        if asked {
            self.rest_until = now + limits::STATUS_PACE;
        }
        let together = batch.len();
        let (mut told, mut again) = (Vec::with_capacity(together), VecDeque::new());
        // What is not spoken of is not known to be written.
        let each = each.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        for (reported, taken) in batch.into_iter().zip(each) {
            match taken {
                Some(Taken::Accepted) => told.push((reported, Verdict::Done(ReportResult::Accepted {}))),
                Some(Taken::Refused(reason)) => told.push((reported, Verdict::Done(ReportResult::Refused { reason }))),
                Some(Taken::Apart(_)) if together > 1 => again.push_back(reported),
                Some(Taken::Apart(_) | Taken::Later(_)) | None => told.push(self.put_off(now, reported)),
            }
        }
        if again.is_empty() {
            self.halved = self.halved.saturating_sub(1);
        } else {
            let allowed = BATCH >> self.halved.min(BATCH.ilog2());
            // At least one halving below what there was.
            self.halved += 1 + allowed.div_ceil(together).ilog2();
            // Those of an earlier start come again from the present one, and are there already where it has come so far.
            let present = |reported: &Reported| self.boots.get(&reported.node) == Some(&reported.boot);
            let (mut again, over): (VecDeque<_>, VecDeque<_>) = again.into_iter().partition(present);
            self.dropped.extend(over);
            again.append(&mut self.waiting);
            self.waiting = again;
        }
        self.put_off_behind(now, &mut told);
        told
    }

    fn put_off(&mut self, now: Duration, reported: Reported) -> (Reported, Verdict) {
        let Reported { node, boot, report } = &reported;
        let first = self
            .owed
            .get(node)
            .filter(|owed| owed.boot == *boot)
            .map_or(report.seq, |owed| owed.seq.min(report.seq));
        let owed = Owed {
            boot: boot.clone(),
            seq: first,
            due: now + RETRY_AFTER,
        };
        self.owed.insert(node.clone(), owed);
        let retry_after = RETRY_AFTER;
        (reported, Verdict::Later { retry_after })
    }

    /// Puts off what waits behind those that were put off.
    fn put_off_behind(&mut self, now: Duration, told: &mut Vec<(Reported, Verdict)>) {
        for reported in std::mem::take(&mut self.waiting) {
            let behind = self
                .owed
                .get(&reported.node)
                .is_some_and(|owed| owed.boot == reported.boot && owed.seq < reported.report.seq);
            if behind {
                told.push(self.put_off(now, reported));
            } else {
                self.waiting.push_back(reported);
            }
        }
    }
}

#[cfg(test)]
mod tests;
