//! What nodes report: one batch at a time for each resource, as its [`Stream`] says; different resources do not wait for
//! each other.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use async_trait::async_trait;
use skerry_edge::{ObjectKey, Report, ReportResult, cloud::Verdict};
use tokio::{
    sync::Notify,
    time::{sleep_until, timeout},
};

use super::{
    Hub, NodeName,
    stream::{Next, Reported, Stream},
};
use crate::engine::Taken;

/// A batch that takes longer is tried again: behind one that never ends its nodes could report on nothing at all.
const TAKING: Duration = Duration::from_secs(60);

/// Whoever makes status of what nodes report.
#[async_trait]
pub trait Reports: Send + Sync + 'static {
    /// Takes reports on one resource, which the nodes hold, in this order, and writes what they come to at once. Called for
    /// one batch of a resource at a time. May be called again with the same report: an answer that did not reach the node
    /// is not known to have been given.
    async fn take(&self, key: &ObjectKey, reports: &[Reported]) -> Answers;
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Of each report, in the batch's order.
    pub each: Vec<Taken>,
    /// Whether the API server was asked for anything.
    pub asked: bool,
}

/// The streams of the resources that were reported on just now.
pub(super) type Streams = HashMap<ObjectKey, Busy>;

/// A stream that has a task.
pub(super) struct Busy {
    stream: Stream,
    /// Whoever takes reports in the present term.
    reports: Arc<dyn Reports>,
    wake: Arc<Notify>,
}

impl Hub {
    /// Has a report taken; its answer goes to whatever session the node then has.
    pub(super) fn take_report(&self, reports: Arc<dyn Reports>, node: &NodeName, boot: &str, report: Report) {
        let key = report.key.clone();
        let reported = Reported {
            node: node.clone(),
            boot: boot.to_owned(),
            report,
        };
        let now = self.now();
        let mut state = self.shared.state.lock();
        let busy = state.streams.entry(key.clone()).or_insert_with(|| {
            let (stream, wake) = (Stream::default(), Arc::<Notify>::default());
            tokio::spawn(self.clone().work(key, wake.clone()));
            let reports = reports.clone();
            Busy { stream, reports, wake }
        });
        busy.reports = reports;
        let put_off = busy.stream.push(now, reported.clone());
        let mut told = busy.stream.dropped();
        busy.wake.notify_one();
        drop(state);
        told.extend(put_off.map(|retry_after| (reported, Verdict::Later { retry_after })));
        self.answer(told);
    }

    /// Takes reports on one resource until there is nothing to be kept in mind of it.
    async fn work(self, key: ObjectKey, wake: Arc<Notify>) {
        loop {
            let (next, reports) = {
                let mut state = self.shared.state.lock();
                let Some(busy) = state.streams.get_mut(&key) else {
                    return;
                };
                let next = busy.stream.next(self.now());
                let reports = busy.reports.clone();
                if next == Next::Over {
                    state.streams.remove(&key);
                    return;
                }
                (next, reports)
            };
            match next {
                Next::Over => return,
                Next::Rest(until) => tokio::select! {
                    () = sleep_until(self.shared.origin + until) => {}
                    () = wake.notified() => {}
                },
                Next::Batch(batch) => {
                    let answers = answers(reports, &key, &batch).await;
                    if let Some(Taken::Later(reason) | Taken::Apart(reason)) = answers.each.last() {
                        tracing::debug!(%key, reports = batch.len(), reason, "reports were put off");
                    }
                    let mut state = self.shared.state.lock();
                    let Some(busy) = state.streams.get_mut(&key) else {
                        return;
                    };
                    let mut told = busy.stream.answered(self.now(), batch, answers);
                    told.extend(busy.stream.dropped());
                    drop(state);
                    self.answer(told);
                }
            }
        }
    }

    /// Hands answers over, and counts them.
    fn answer(&self, told: Vec<(Reported, Verdict)>) {
        let mut state = self.shared.state.lock();
        for (Reported { node, boot, report }, verdict) in told {
            self.count(&node, &report, &verdict);
            if let Some(held) = state.placements.node_mut(&node) {
                held.finish_report(&boot, report.seq, verdict);
            }
            if let Some(connected) = state.connected.get(&node) {
                connected.wake.notify_one();
            }
        }
    }

    fn count(&self, node: &str, report: &Report, verdict: &Verdict) {
        let (key, counters) = (&report.key, &self.shared.counters);
        match verdict {
            Verdict::Done(ReportResult::Accepted {}) => counters.reports_accepted.fetch_add(1, Relaxed),
            Verdict::Done(ReportResult::Refused { reason }) => {
                if let Some(left_out) = self.shared.lines.report_refused.line() {
                    tracing::warn!(node, %key, reason, left_out, "a report was refused");
                }
                counters.reports_refused.fetch_add(1, Relaxed)
            }
            Verdict::Later { .. } => counters.reports_put_off.fetch_add(1, Relaxed),
        };
    }
}

/// What becomes of a batch.
async fn answers(reports: Arc<dyn Reports>, key: &ObjectKey, batch: &[Reported]) -> Answers {
    let (resource, these) = (key.clone(), batch.to_vec());
    // As a task, so that a defect in a kind's decision about one report silences none of the others.
    let taking = tokio::spawn(async move { timeout(TAKING, reports.take(&resource, &these)).await });
    match taking.await {
        Ok(Ok(answers)) => answers,
        // Requests have no time-out of their own; what is not answered is not known to be written.
        Ok(Err(_)) => Answers {
            asked: true,
            ..Answers::default()
        },
        Err(error) => {
            tracing::error!(%key, reports = batch.len(), %error, "reports could not be taken");
            Answers {
                each: vec![Taken::Apart(error.to_string()); batch.len()],
                asked: true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use parking_lot::Mutex;
    use skerry_edge::ReportPayload;

    use super::*;

    /// A kind whose decision about one report is a defect.
    #[derive(Default)]
    struct Defective {
        taken: Mutex<Vec<u64>>,
        news: Notify,
    }

    const SPOILS: u64 = 2;

    #[async_trait]
    impl Reports for Defective {
        async fn take(&self, _: &ObjectKey, reports: &[Reported]) -> Answers {
            assert!(reports.iter().all(|reported| reported.report.seq != SPOILS), "a defect");
            self.taken
                .lock()
                .extend(reports.iter().map(|reported| reported.report.seq));
            self.news.notify_one();
            Answers {
                each: vec![Taken::Accepted; reports.len()],
                asked: true,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_defect_in_a_decision_about_one_report_keeps_none_of_the_others_from_being_taken() {
        let (hub, defective) = (Hub::default(), Arc::<Defective>::default());
        let says = |node: &str, seq| {
            let report = Report {
                seq,
                id: None,
                key: ObjectKey::new("dataset", "default", "d"),
                uid: "u".to_owned(),
                observed_at: Timestamp::UNIX_EPOCH,
                payload: ReportPayload::DatasetSamples { count: seq },
            };
            hub.take_report(defective.clone(), &node.into(), "boot", report);
        };
        // Together, so that they are in one batch.
        for (node, seq) in [("a", 1), ("b", SPOILS), ("c", 3)] {
            says(node, seq);
        }
        while defective.taken.lock().len() < 2 {
            timeout(TAKING, defective.news.notified())
                .await
                .expect("all wait for one");
        }
        says("d", 4);
        timeout(TAKING, defective.news.notified())
            .await
            .expect("nothing comes after it");
        assert_eq!(*defective.taken.lock(), [1, 3, 4]);
    }
}
