//! What should exist for a job, and what its trainers' nodes hold.

use std::collections::BTreeMap;

use skerry_crds::{
    conditions::{COMPLETE, Condition, FAILED},
    names::{port, worker_type},
    sedna::v1alpha1::FederatedLearningJob,
};

use super::{
    inputs::trainers,
    pods,
    progress::{Decision, Progress, Step, Why, progress},
    record,
    status::{End, outcome},
};
use crate::{
    Child, Children, Event, EventType, Finding, Impact, Make, NodePart, Nodes, ObjectKind, Observed, Plan, Settings,
    judge::{conditions, pod},
    render::{
        child::{awaiting_deletion, once_free, service},
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
    let progress = progress(job, &owner, seen);
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
            name: decision.place.pod_name(owner),
            make: Make::Keep,
        };
        match (&decision.step, &decision.sources) {
            (Step::Make, Ok(sources)) => Some(pods::render(job, owner, decision.place, sources, uid, settings)),
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

/// What keeps the job's pods from being as declared.
fn findings(owner: &Owner, progress: &Progress<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for decision in &progress.decisions {
        let name = decision.place.pod_name(owner);
        let waiting = |reason, message| Finding {
            impact: Impact::Waiting,
            reason,
            message,
        };
        findings.extend(match &decision.step {
            Step::Keep | Step::Record | Step::Make | Step::Missing => None,
            Step::Stop(why) => Some(waiting("Replacing", format!("Pod {name} is replaced: {}", told(why)))),
            Step::Pace { how, .. } => Some(waiting(
                "PodLost",
                format!("Pod {name} was lost and is made again: {how}"),
            )),
            Step::Await => {
                let node = decision
                    .pod
                    .and_then(pod::node)
                    .map(|node| format!(" from node {node}"));
                Some(awaiting_deletion(ObjectKind::POD, &name, &node.unwrap_or_default()))
            }
            Step::AfterAggregator => Some(waiting(
                "AwaitingAggregator",
                "trainers are made once the aggregator's pod is there".to_owned(),
            )),
        });
        match &decision.sources {
            Ok(sources) => findings.extend(pods::findings(sources)),
            // What has ended needs nothing any more.
            Err(_) if decision.step == Step::Keep && decision.pod.is_none_or(|pod| record::ended(pod).is_some()) => {}
            Err(missing) => findings.push(missing.clone()),
        }
    }
    let mut known: Vec<Finding> = Vec::new();
    findings.retain(|finding| {
        let new = !known.contains(finding);
        known.push(finding.clone());
        new
    });
    findings
}

fn told(why: &Why) -> String {
    match why {
        Why::Changed => "what it is made from changed".to_owned(),
        Why::Lost(how) => format!("it was lost ({how})"),
        Why::Aggregator => "its aggregator is no more, and a connection to it cannot be resumed".to_owned(),
        Why::StartOver => "a trainer has to be made again, and nobody would answer it".to_owned(),
    }
}

/// What the user is told.
fn events(job: &FederatedLearningJob, owner: &Owner, seen: &Observed, progress: &Progress<'_>) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let names = |these: fn(&Step) -> bool| {
        let these = progress.decisions.iter().filter(|decision| these(&decision.step));
        these.map(|decision| decision.place.pod_name(owner)).collect::<Vec<_>>()
    };
    let mut tell = |type_, reason, message| events.push(Event { type_, reason, message });
    let made = names(|step| *step == Step::Make);
    if !made.is_empty() {
        tell(
            EventType::Normal,
            "PodsCreated",
            format!("makes pods {}", listed(&made)),
        );
    }
    for decision in &progress.decisions {
        let Step::Stop(why) = &decision.step else { continue };
        let name = decision.place.pod_name(owner);
        match (why, decision.place) {
            (Why::Aggregator, _) => {}
            (Why::Lost(how), _) => tell(
                EventType::Warning,
                "PodLost",
                format!("Pod {name} is made again: {how}"),
            ),
            (Why::Changed | Why::StartOver, _) => {
                tell(
                    EventType::Normal,
                    "PodReplaced",
                    format!("Pod {name} is replaced: {}", told(why)),
                );
            }
        }
    }
    let restarted = names(|step| *step == Step::Stop(Why::Aggregator));
    if !restarted.is_empty() {
        let message = format!(
            "the aggregator starts anew, and all trainers with it, because a connection to it cannot be resumed: pods {}",
            listed(&restarted)
        );
        tell(EventType::Warning, "AggregatorRestarted", message);
    }
    events.extend(end_event(job, owner, seen));
    events
}

/// The event with which the job ends: the pass that records the last outcome tells it.
fn end_event(job: &FederatedLearningJob, owner: &Owner, seen: &Observed) -> Option<Event> {
    let records = record::records(job, owner, &seen.children, seen.now);
    let (type_, reason, message) = match outcome(&records)? {
        End::Complete => (
            EventType::Normal,
            "Completed",
            "FederatedLearningJob completed".to_owned(),
        ),
        End::Failed(message) => (EventType::Warning, "workerFailed", message),
    };
    Some(Event { type_, reason, message })
}

fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
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
        let live = || seen.child(ObjectKind::POD, &place.pod_name(owner)).and_then(pod::node);
        let last = || record::find(records, place).and_then(|record| record.node.as_deref());
        if let Some(node) = placed.or_else(live).or_else(last) {
            workers.entry(node).or_default().push(place.worker_name(owner));
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
