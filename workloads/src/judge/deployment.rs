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
    /// As many pods as are needed are available, of whatever template.
    pub(crate) available: bool,
    /// Nothing is under way: all pods are of the newest template, and none is left over.
    pub(crate) settled: bool,
    /// What keeps it from being as declared.
    pub(crate) findings: Vec<Finding>,
}

/// Judges the Deployment `live`, of whose pods those in `pods` were found.
///
/// Where an autoscaler sets how many pods there are, `least` of them are what was declared: a service that is being
/// scaled out serves all the same.
pub(crate) fn health<'a>(live: &Live, least: Option<i64>, pods: impl Iterator<Item = &'a Live>) -> Health {
    let count = |pointer: &str| live.object.pointer(pointer).and_then(Value::as_i64);
    let status = |field: &str| count(&format!("/status/{field}")).unwrap_or_default();
    let desired = count("/spec/replicas").unwrap_or(1);
    let (all, updated) = (status("replicas"), status("updatedReplicas"));
    let (ready, usable) = (status("readyReplicas"), status("availableReplicas"));
    // Before the Deployment's controller has looked for the first time, zero of zero says nothing.
    let looked_at = count("/status/observedGeneration").is_some();
    let up_to_date = status("observedGeneration") >= count("/metadata/generation").unwrap_or_default();
    let needed = least.map_or(desired, |least| least.min(desired));
    let available = looked_at && usable >= needed && !live.terminating();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ObjectKind, testing};
    use rstest::rstest;
    use serde_json::json;

    fn judged(replicas: i64, generation: i64, status: &Value, pods: &[Live]) -> Health {
        let object = json!({"metadata": {"name": "d", "generation": generation}, "spec": {"replicas": replicas},
            "status": status});
        let live = Live {
            kind: ObjectKind::DEPLOYMENT,
            object,
        };
        health(&live, None, pods.iter())
    }

    fn counts(all: i64, updated: i64, available: i64) -> Value {
        json!({"observedGeneration": 1, "replicas": all, "updatedReplicas": updated, "readyReplicas": available,
            "availableReplicas": available})
    }

    #[rstest]
    #[case::fresh(1, 1, json!({}), false, false)]
    #[case::fresh_without_replicas(0, 1, json!({}), false, false)]
    #[case::up(2, 1, counts(2, 2, 2), true, true)]
    #[case::scaled_to_nothing(0, 1, counts(0, 0, 0), true, true)]
    #[case::short_of_one(2, 1, counts(2, 2, 1), false, false)]
    #[case::rolling(2, 1, counts(3, 1, 2), true, false)]
    #[case::old_pods_left(2, 1, counts(3, 2, 2), true, false)]
    #[case::not_looked_at_since_the_edit(2, 2, counts(2, 2, 2), true, false)]
    fn it_is_judged_by_its_pods(
        #[case] replicas: i64,
        #[case] generation: i64,
        #[case] status: Value,
        #[case] available: bool,
        #[case] settled: bool,
    ) {
        let health = judged(replicas, generation, &status, &[]);
        assert_eq!((health.available, health.settled), (available, settled));
    }

    /// Sedna counted the Deployment whose last condition was `Progressing`.
    #[test]
    fn the_order_of_its_conditions_does_not_count() {
        let mut status = counts(1, 1, 1);
        for order in [["Progressing", "Available"], ["Available", "Progressing"]] {
            status["conditions"] = json!(order.map(|type_| json!({"type": type_, "status": "True"})));
            assert!(judged(1, 1, &status, &[]).available);
        }
    }

    #[test]
    fn trouble_of_its_pods_is_told_once_and_grave_only_if_it_serves_no_more() {
        let unschedulable = |name| {
            testing::pod(
                name,
                None,
                &json!({"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "message": "no node"}]}),
            )
        };
        let pods = [unschedulable("a"), unschedulable("b")];
        let down = judged(2, 1, &counts(2, 2, 0), &pods);
        assert_eq!(down.findings.len(), 1);
        assert_eq!(down.findings[0].impact, Impact::Blocked);
        let up = judged(2, 1, &counts(3, 1, 2), &pods);
        assert_eq!(up.findings[0].impact, Impact::Degraded);
    }

    #[rstest]
    #[case("ReplicaFailure", "True", "PodsRefused", "Deployment d cannot make its pods: quota")]
    #[case("Progressing", "False", "RolloutStuck", "Deployment d makes no progress")]
    fn what_keeps_it_from_making_pods_is_named(
        #[case] type_: &str,
        #[case] status: &str,
        #[case] reason: &str,
        #[case] message: &str,
    ) {
        let mut counts = counts(0, 0, 0);
        counts["conditions"] = json!([{"type": type_, "status": status, "message": "quota"}]);
        let findings = judged(1, 1, &counts, &[]).findings;
        assert_eq!((findings[0].reason, findings[0].message.as_str()), (reason, message));
    }
}
