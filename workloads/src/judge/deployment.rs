//! How a Deployment is doing: judged by the pods that it has available, not by the order of its conditions.

use serde_json::Value;
use skerry_crds::sedna::v1alpha1::ServiceWorker;

use super::pod;
use crate::{Finding, Impact, Live};

/// How a worker's Deployment is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    /// Its figures, for the status.
    pub(crate) figures: ServiceWorker,
    /// All the pods that there should be are available, of whatever template.
    pub(crate) available: bool,
    /// Nothing is under way: all pods are of the newest template, and none is left over.
    pub(crate) settled: bool,
    /// What keeps it from being as declared.
    pub(crate) findings: Vec<Finding>,
}

/// Judges the Deployment `live`, of whose pods those in `pods` were found.
pub(crate) fn health<'a>(live: &Live, pods: impl Iterator<Item = &'a Live>) -> Health {
    let count = |pointer: &str| live.object.pointer(pointer).and_then(Value::as_i64);
    let status = |field: &str| count(&format!("/status/{field}")).unwrap_or_default();
    let desired = count("/spec/replicas").unwrap_or(1);
    let (all, updated) = (status("replicas"), status("updatedReplicas"));
    let (ready, usable) = (status("readyReplicas"), status("availableReplicas"));
    // Before the Deployment's controller has looked for the first time, zero of zero says nothing.
    let looked_at = count("/status/observedGeneration").is_some();
    let up_to_date = status("observedGeneration") >= count("/metadata/generation").unwrap_or_default();
    let available = looked_at && usable >= desired && !live.terminating();
    let settled = looked_at && up_to_date && updated == desired && all == updated && usable >= desired;
    let findings = findings(live, pods, available);
    let narrow = |count: i64| i32::try_from(count).unwrap_or(i32::MAX);
    let figures = ServiceWorker::new(live.name(), narrow(desired), narrow(updated), narrow(ready));
    Health {
        figures,
        available,
        settled,
        findings,
    }
}

fn findings<'a>(live: &Live, pods: impl Iterator<Item = &'a Live>, available: bool) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for found in pods.filter_map(pod::trouble) {
        // One of a kind is enough: the pods of a Deployment fail alike.
        if !findings.iter().any(|known| known.reason == found.reason) {
            findings.push(found);
        }
    }
    if let Some(message) = condition(live, "ReplicaFailure", "True") {
        findings.push(Finding {
            impact: Impact::Blocked,
            reason: "PodsRefused",
            message: format!("Deployment {} cannot make its pods: {message}", live.name()),
        });
    }
    if findings.is_empty() && condition(live, "Progressing", "False").is_some() {
        findings.push(Finding {
            impact: Impact::Blocked,
            reason: "RolloutStuck",
            message: format!("Deployment {} makes no progress", live.name()),
        });
    }
    if available {
        // What still serves is degraded by it, no more.
        for finding in &mut findings {
            finding.impact = finding.impact.min(Impact::Degraded);
        }
    }
    findings
}

/// The message of the Deployment's condition, where it has that status.
fn condition<'a>(live: &'a Live, type_: &str, status: &str) -> Option<&'a str> {
    let text = |condition: &'a Value, key| condition.get(key).and_then(Value::as_str).unwrap_or_default();
    let conditions = live.status()?.get("conditions")?.as_array()?;
    let found = conditions
        .iter()
        .find(|condition| text(condition, "type") == type_ && text(condition, "status") == status)?;
    Some(text(found, "message"))
}
