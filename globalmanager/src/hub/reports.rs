//! What nodes report: one report at a time for each resource of a node, in the order in which they came; different
//! resources do not wait for each other.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use async_trait::async_trait;
use skerry_edge::{ObjectKey, Report, ReportResult, cloud::Verdict};

use super::{Hub, NodeName};
use crate::engine::Taken;

/// When a node sends a report again that could not be taken: the API server is away, or the resource does not parse.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Whoever makes status of what nodes report.
#[async_trait]
pub trait Reports: Send + Sync + 'static {
    /// Takes a report of `node`, which holds the resource that it is about. May be called again with the same report:
    /// an answer that did not reach the node is not known to have been given.
    async fn take(&self, node: &str, report: &Report) -> Taken;
}

/// The reports of one node that wait for one before them, by resource. A resource with an entry is being worked on.
pub(super) type Busy = HashMap<ObjectKey, VecDeque<Waiting>>;

/// A report, and the start of the local controller that sent it.
pub(super) struct Waiting {
    boot: String,
    report: Report,
}

impl Hub {
    /// Has a report taken; its answer goes to whatever session the node then has.
    pub(super) fn take_report(&self, reports: Arc<dyn Reports>, node: &NodeName, boot: &str, report: Report) {
        let key = report.key.clone();
        let waiting = Waiting {
            boot: boot.to_owned(),
            report,
        };
        match self
            .shared
            .state
            .lock()
            .busy
            .entry(node.clone())
            .or_default()
            .entry(key.clone())
        {
            Entry::Occupied(mut queue) => queue.get_mut().push_back(waiting),
            Entry::Vacant(queue) => {
                queue.insert(VecDeque::new());
                tokio::spawn(self.clone().work(reports, node.clone(), key, waiting));
            }
        }
    }

    /// Takes reports on one resource until none is left.
    async fn work(self, reports: Arc<dyn Reports>, node: NodeName, key: ObjectKey, first: Waiting) {
        let mut next = Some(first);
        while let Some(Waiting { boot, report }) = next {
            let taken = reports.take(&node, &report).await;
            self.count(&node, &report, &taken);
            next = self.answer(&node, &key, &boot, report.seq, taken);
        }
    }

    fn count(&self, node: &str, report: &Report, taken: &Taken) {
        let (key, counters) = (&report.key, &self.shared.counters);
        match taken {
            Taken::Accepted => counters.reports_accepted.fetch_add(1, Relaxed),
            Taken::Refused(reason) => {
                if let Some(left_out) = self.shared.lines.report_refused.line() {
                    tracing::warn!(node, %key, reason, left_out, "a report was refused");
                }
                counters.reports_refused.fetch_add(1, Relaxed)
            }
            Taken::Later(reason) => {
                tracing::debug!(node, %key, reason, "a report was put off");
                counters.reports_put_off.fetch_add(1, Relaxed)
            }
        };
    }

    /// Hands the answer over; the next report on that resource.
    fn answer(&self, node: &NodeName, key: &ObjectKey, boot: &str, seq: u64, taken: Taken) -> Option<Waiting> {
        let verdict = match taken {
            Taken::Accepted => Verdict::Done(ReportResult::Accepted {}),
            Taken::Refused(reason) => Verdict::Done(ReportResult::Refused { reason }),
            Taken::Later(_) => Verdict::Later {
                retry_after: RETRY_AFTER,
            },
        };
        let mut state = self.shared.state.lock();
        if let Some(held) = state.placements.node_mut(node) {
            held.finish_report(boot, seq, verdict);
        }
        if let Some(connected) = state.connected.get(node) {
            connected.wake.notify_one();
        }
        let busy = state.busy.get_mut(node)?;
        let next = busy.get_mut(key).and_then(VecDeque::pop_front);
        if next.is_none() {
            busy.remove(key);
            if busy.is_empty() {
                state.busy.remove(node);
            }
        }
        next
    }
}
