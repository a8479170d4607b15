//! What the edge worker's figures change: `status.metrics`. Where several replicas report, the last one counts.

use skerry_crds::sedna::v1alpha1::JointInferenceService;

use crate::{Kind, Payload, Refusal, Report, StatusChange, judge::metrics::metrics, render::owner::Owner};

/// Figures about the report itself, which are no metrics.
const TIMES: [&str; 2] = ["startTime", "updateTime"];

/// What a report changes.
pub(crate) fn report(ji: &JointInferenceService, report: &Report) -> Result<Vec<StatusChange>, Refusal> {
    let Payload::Worker(message) = &report.payload else {
        return Err(Refusal::form(JointInferenceService::KIND, &report.payload));
    };
    let metrics = metrics(&message.owner_info, &TIMES);
    if metrics.is_empty() {
        // A worker may report its state alone; what it reported before stands.
        return Ok(Vec::new());
    }
    Ok(vec![StatusChange::field(
        JointInferenceService::KIND,
        Owner::of(ji).name,
        "metrics",
        metrics,
    )])
}
