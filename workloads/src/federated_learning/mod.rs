//! `FederatedLearningJob`: trainers that keep their samples, and an aggregator that joins what they learn.
//!
//! Decides on the aggregator's pod, the Service in front of it, one pod for each trainer, on what the trainers' nodes are
//! told, and on what the status says. A pod has a name of its own place in the job, so that there are never two of a
//! place; whatever takes a pod's place waits until the old one is gone. Each pod goes through
//!
//! ```text
//!                      inputs changed, evicted, node lost,
//!                      another aggregator, deleted by hand
//!  absent ──▶ running ─────────────────────────────────────▶ going ──▶ absent
//!    ▲           │
//!    │           ├─ all containers ended well ──▶ succeeded ─┐
//!    │           └─ one failed for good ────────▶ failed ────┤ recorded in status.workers, before anything else
//!    │                                                       ▼
//!    └── the aggregator starts anew: trainers too ◀──── stays as it is, its pod there or not
//! ```
//!
//! and the job through
//!
//! ```text
//! Pending ──▶ Running ──┬─ all succeeded ─▶ Succeeded     a state that is never left: nothing is made any more,
//!                       └─ one failed ────▶ Failed        whatever is edited or deleted
//! ```
//!
//! - A trainer works with one aggregator pod, whose uid it carries: the connection between the two cannot be resumed.
//!   Where the aggregator is replaced, for whatever reason, the trainers are too, and what they had ended with counts no
//!   more. Trainers are made once the aggregator's pod is there.
//! - A trainer is replaced alone, unless the aggregator has ended: then the job starts over, because nobody would answer.
//!   So it does where that end was not known yet, once the second pod keeps failing.
//! - Any other container that fails under `OnFailure` is started again by the kubelet; that is no business of the job's.
//! - Pods that Sedna made are adopted: each goes on in its place, under its own name, until it has to be replaced.
//! - A Model, Dataset or Secret that is missing leaves the pods that there are alone, and makes none that needs it.

mod adoption;
mod inputs;
mod plan;
mod pods;
mod progress;
mod record;
mod report;
mod rounds;
mod status;
#[cfg(test)]
mod tests;
mod told;

use std::collections::BTreeSet;

use jiff::Timestamp;
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, FederatedLearningJobStatus};

use crate::{
    Applied, Kind, ObjectKind, Observed, Plan, REPORTED_UP_TO, Reference, References, Refusal, Report, Settings,
    StatusChange,
};

impl Kind for FederatedLearningJob {
    const KIND: ObjectKind = ObjectKind::FEDERATED_LEARNING_JOB;
    type Status = FederatedLearningJobStatus;
    const CHILDREN: &'static [ObjectKind] = &[ObjectKind::POD, ObjectKind::SERVICE];
    const DECIDED_BY: &'static [ObjectKind] = &[ObjectKind::POD, Self::KIND];
    const REPORTED: &'static [&'static str] = &["rounds", REPORTED_UP_TO];

    fn references(&self, found: &References) -> BTreeSet<Reference> {
        inputs::references(self, found)
    }

    fn plan(&self, seen: &Observed, settings: &Settings) -> Plan {
        plan::plan(self, seen, settings)
    }

    fn status(&self, _seen: &Observed, plan: &Plan, applied: &Applied, now: Timestamp) -> Self::Status {
        status::status(self, plan, applied, now)
    }

    fn report(&self, report: &Report, now: Timestamp) -> Result<Vec<StatusChange>, Refusal> {
        report::report(self, report, now)
    }
}
