//! The manager's end of the link, without I/O: what each node should hold, what it is known to hold, and the state
//! machine of a connection.

mod admission;
mod denial;
mod digesting;
mod event;
mod figures;
mod objects;
mod reports;
mod session;
mod window;

pub use admission::{Peer, Refusal, Server};
pub use denial::Denial;
pub use event::{End, Input, Output};
pub use objects::{Counts, NodeObjects};
pub use reports::Verdict;
pub use session::Session;

use std::time::Duration;

use crate::{
    message::{Downstream, OutboxDepth},
    report::{Report, ReportPayload, ReportResult},
};
use figures::Figures;
use reports::Reports;

/// All that the manager keeps of one node, over its sessions.
#[derive(Debug, Default)]
pub struct Node {
    /// What the node should hold.
    pub objects: NodeObjects,
    reports: Reports,
    /// Frames that tell the node what became of its reports.
    answers: Vec<Downstream>,
    /// What the present session has found out about its link.
    pub link: Link,
    /// The number of the node's last session; an older one has been replaced.
    session: Option<u64>,
}

/// How a node's link does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// What waits in the node's outbox; nothing of a node that does not tell.
    pub outbox: Option<OutboxDepth>,
    /// From a ping to its answer.
    pub round_trip: Option<Duration>,
}

impl Node {
    /// A node of which nothing is known and nothing wanted; see [`NodeObjects::counting_from`].
    pub fn counting_from(version: u64) -> Self {
        Self {
            objects: NodeObjects::counting_from(version),
            ..Self::default()
        }
    }

    /// A report that came over a session with this start of the node's local controller was carried out. The node's
    /// present session tells it at its next [`Input::Wake`].
    pub fn finish_report(&mut self, boot: &str, report: &Report, verdict: Verdict) {
        if !self.reports.finish(boot, report.seq, &verdict) {
            return;
        }
        if let (Some(figures), Verdict::Done(ReportResult::Accepted {})) = (self.figures(report), &verdict) {
            self.objects.carried_out(&report.key, figures);
        }
        self.answers.push(verdict.frame(report.seq));
    }

    fn figures(&self, report: &Report) -> Option<Figures> {
        Figures::of(report, self.reports.start())
    }

    /// Whether the node may say this now.
    fn permits(&self, report: &Report) -> Result<(), Denial> {
        match &report.payload {
            ReportPayload::Unknown { variant } => Err(Denial::form(variant)),
            _ => self.objects.may_report(&report.key, &report.uid),
        }
    }

    /// Whether these are figures of a store that was put back, and newer ones were carried out.
    fn is_outdated(&self, report: &Report) -> bool {
        self.figures(report)
            .zip(self.objects.newest(&report.key))
            .is_some_and(|(figures, newest)| figures.are_before(newest))
    }
}

#[cfg(test)]
mod tests;
