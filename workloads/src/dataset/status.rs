//! What the status of a Dataset says.

use jiff::Timestamp;
use skerry_crds::sedna::v1alpha1::{Dataset, DatasetStatus};

use crate::{
    Applied, Finding, Impact, Plan,
    judge::conditions::{Verdict, Words, failures, standard},
    render::owner::{Owner, terminating},
};

/// What the status says, without what the node reports.
pub(crate) fn status(dataset: &Dataset, plan: &Plan, applied: &Applied, now: Timestamp) -> DatasetStatus {
    let before = dataset.status.clone().unwrap_or_default();
    let without_reports = DatasetStatus {
        number_of_samples: None,
        update_time: None,
        count_error: None,
        reported_up_to: Vec::new(),
        ..before
    };
    if terminating(dataset) {
        return without_reports;
    }
    let owner = Owner::of(dataset);
    let verdict = verdict(dataset, &owner, plan, applied);
    DatasetStatus {
        observed_generation: Some(owner.generation),
        conditions: standard(&owner, &without_reports.conditions, &verdict, now),
        ..without_reports
    }
}

fn verdict(dataset: &Dataset, owner: &Owner, plan: &Plan, applied: &Applied) -> Verdict {
    let node = &dataset.spec.node_name;
    let reported = dataset.status.as_ref();
    let mut findings: Vec<Finding> = plan.findings.iter().cloned().chain(failures(applied)).collect();
    findings.extend(
        reported
            .and_then(|status| status.count_error.as_ref())
            .map(|error| Finding {
                impact: Impact::Blocked,
                reason: "CountFailed",
                message: format!(
                    "node {node} cannot count the samples of Dataset {}: {error}",
                    owner.name
                ),
            }),
    );
    let counted = reported.is_some_and(|status| status.number_of_samples.is_some());
    let words = if counted {
        Words::new("Counted", format!("node {node} has counted the samples"))
    } else {
        Words::new("AwaitingCount", format!("node {node} has not counted the samples yet"))
    };
    if counted {
        Verdict {
            findings,
            available: Ok(words.clone()),
            settled: Ok(words),
        }
    } else {
        Verdict {
            findings,
            available: Err(words.clone()),
            settled: Err(words),
        }
    }
}
