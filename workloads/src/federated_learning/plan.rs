//! What should exist for a job, and what its trainers' nodes hold.

use std::collections::BTreeMap;

use skerry_crds::{
    conditions::{COMPLETE, Condition, FAILED},
    names::{port, worker_type},
    sedna::v1alpha1::FederatedLearningJob,
};

use super::{
    adoption,
    inputs::trainers,
    pods,
    progress::{Decision, Progress, Step, progress},
    record,
    told::{events, findings},
};
use crate::{
    Child, Children, Finding, Impact, Make, NodePart, Nodes, ObjectKind, Observed, Plan, Settings,
    judge::{conditions, pod},
    render::{
        child::{once_free, service},
        owner::{Owner, paused, terminating},
    },
};

/// What should exist.
pub(crate) fn plan(job: &FederatedLearningJob, seen: &Observed, settings: &Settings) -> Plan {
    if terminating(job) {
        return Plan::default();
    }
    let owner = Owner::of(job);
    if let Some(end) = end(job) {
        // Nothing is made any more, and what is left of it stays for its logs.
        return Plan {
            children: Children::Unchanged,
            nodes: nodes(job, &owner, seen),
            findings: ignored_edit(&owner, end).into_iter().collect(),
            ..Plan::default()
        };
    }
    if paused(job) {
        return Plan {
            findings: vec![conditions::paused()],
            ..Plan::default()
        };
    }
    if let Some((children, told)) = adoption::adopt(job, &owner, seen) {
        // What is written onto them is what everything else is decided by.
        return Plan {
            children: Children::Exactly(children),
            events: vec![told],
            ..Plan::default()
        };
    }
    let progress = progress(job, &owner, seen, settings);
    let mut findings = findings(&owner, &progress);
    let children = if progress.decisions.iter().any(|decision| decision.step == Step::Record) {
        Children::Unchanged
    } else {
        Children::Exactly(children(job, &owner, seen, settings, &progress, &mut findings))
    };
    let again = progress.decisions.iter().filter_map(|decision| match &decision.step {
        Step::Pace { left, .. } => Some(*left),
        _ => None,
    });
    Plan {
        children,
        nodes: nodes(job, &owner, seen),
        findings,
        again: again.min(),
        events: events(job, &owner, seen, &progress),
    }
}

/// The condition with which the job ended.
pub(crate) fn end(job: &FederatedLearningJob) -> Option<&Condition> {
    let conditions = &job.status.as_ref()?.conditions;
    conditions
        .iter()
        .find(|condition| condition.holds() && matches!(condition.type_.as_str(), COMPLETE | FAILED))
}

/// An edit after the end.
fn ignored_edit(owner: &Owner, end: &Condition) -> Option<Finding> {
    let ended_at = end
        .observed_generation
        .filter(|ended_at| *ended_at < owner.generation)?;
    Some(Finding {
        impact: Impact::Degraded,
        reason: "EditIgnored",
        message: format!(
            "the job has ended with generation {ended_at} of its spec; later edits have no effect: make another job"
        ),
    })
}

fn children(
    job: &FederatedLearningJob,
    owner: &Owner,
    seen: &Observed,
    settings: &Settings,
    progress: &Progress<'_>,
    findings: &mut Vec<Finding>,
) -> Vec<Child> {
    let uid = progress.aggregator_uid.as_deref();
    let pod = |decision: &Decision<'_>| {
        let keep = Child {
            kind: ObjectKind::POD,
            name: decision.pod_name(owner),
            make: Make::Keep,
        };
        match (&decision.step, &decision.sources) {
            (Step::Make, Ok(sources)) => {
                let (place, replaces) = (decision.place, decision.replaces);
                Some(pods::render(job, owner, place, sources, uid, replaces, settings))
            }
            (Step::Stop(_), _) => None,
            _ => Some(keep),
        }
    };
    let front = service(owner, worker_type::AGGREGATION, port::AGGREGATION);
    let front = once_free(front, seen, findings);
    let mut children: Vec<_> = progress.decisions.iter().filter_map(pod).collect();
    children.insert(0, front);
    children
}

/// The trainers' nodes: where the template places them, where their pods are, or where they were last. A node keeps its
/// part after the end: what it has not yet told may still come.
fn nodes(job: &FederatedLearningJob, owner: &Owner, seen: &Observed) -> Nodes {
    let records = job
        .status
        .as_ref()
        .map(|status| status.workers.as_slice())
        .unwrap_or_default();
    let mut workers: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for place in trainers(job) {
        let placed = place.template().node_name();
        let found = adoption::pod_of(place, owner, &seen.children);
        let live = || found.and_then(pod::node);
        let last = || record::find(records, place).and_then(|record| record.node.as_deref());
        if let Some(node) = placed.or_else(live).or_else(last) {
            workers
                .entry(node)
                .or_default()
                .push(adoption::worker_name(place, owner, found));
        }
    }
    let part = |workers: Vec<String>| NodePart {
        body: owner.body(&job.spec, &workers),
        credential: None,
    };
    Nodes::Exactly(
        workers
            .into_iter()
            .map(|(node, workers)| (node.to_owned(), part(workers)))
            .collect(),
    )
}
