//! `JointInferenceService`: a small model at the edge that asks a large one in the cloud about hard examples.
//!
//! Decides on two Deployments, the Service between them and their autoscalers, on what the edge node is told, and on
//! what the status says. The service is judged by the pods that its Deployments have available; no state is final:
//!
//! ```text
//!            all pods available                  cause gone, pods on their way
//! Pending ─────────────────────▶ Running ◀──────────────┐
//!    ▲  ▲                          │ │                  │
//!    │  └── a pod goes, by itself ─┘ └─ something that ─┤
//!    │                                 somebody has to  │
//!    └───────── cause gone ─────────── mend ─────────▶ Failed
//! ```
//!
//! A worker whose Model or Secret is missing keeps the Deployment that it has and gets none that it has not; the other
//! worker is not touched by that.

mod inputs;
mod plan;
mod report;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use jiff::Timestamp;
use skerry_crds::sedna::v1alpha1::{JointInferenceService, JointInferenceServiceStatus};

use crate::{
    Applied, Kind, ObjectKind, Observed, Plan, REPORTED_UP_TO, Reference, References, Refusal, Report, Settings,
    StatusChange,
};

impl Kind for JointInferenceService {
    const KIND: ObjectKind = ObjectKind::JOINT_INFERENCE_SERVICE;
    type Status = JointInferenceServiceStatus;
    const CHILDREN: &'static [ObjectKind] = &[ObjectKind::DEPLOYMENT, ObjectKind::SERVICE, ObjectKind::AUTOSCALER];
    const DECIDED_BY: &'static [ObjectKind] = &[];
    const REPORTED: &'static [&'static str] = &["metrics", REPORTED_UP_TO];

    fn references(&self, found: &References) -> BTreeSet<Reference> {
        inputs::references(self, found)
    }

    fn plan(&self, seen: &Observed, settings: &Settings) -> Plan {
        plan::plan(self, seen, settings)
    }

    fn status(&self, seen: &Observed, plan: &Plan, applied: &Applied, now: Timestamp) -> Self::Status {
        status::status(self, seen, plan, applied, now)
    }

    fn report(&self, report: &Report, _now: Timestamp) -> Result<Vec<StatusChange>, Refusal> {
        report::report(self, report)
    }
}
