//! The manager's end of the link, without I/O: what each node should hold, what it is known to hold, and the state
//! machine of a connection.

mod admission;
mod closing;
mod denial;
mod digesting;
mod event;
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
    limits,
    message::{Downstream, OutboxDepth},
    report::{Report, ReportPayload},
};
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
    pub fn finish_report(&mut self, boot: &str, seq: u64, verdict: Verdict) {
        if self.reports.finish(boot, seq, &verdict) {
            self.answers.push(verdict.frame(seq));
        }
    }

    /// Whether the node may say this now.
    fn permits(&self, report: &Report) -> Result<(), Denial> {
        let named = |boot: &str| boot.len() <= limits::MAX_NAME && boot.bytes().all(|byte| byte.is_ascii_graphic());
        if report.id.as_ref().is_some_and(|id| !named(&id.boot)) {
            return Err(Denial::Boot);
        }
        match &report.payload {
            ReportPayload::Unknown { variant } => Err(Denial::form(variant)),
            _ => self.objects.may_report(&report.key, &report.uid),
        }
    }
}

#[cfg(test)]
mod tests;
