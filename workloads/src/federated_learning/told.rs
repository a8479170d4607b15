//! What the user is told of a job's pods: what keeps them from being as declared, and what is done about it.

use skerry_crds::sedna::v1alpha1::FederatedLearningJob;

use super::{
    pods,
    progress::{Decision, Progress, Step, Why},
    record,
    status::{End, outcome},
};
use crate::{
    Event, EventType, Finding, Impact, ObjectKind, Observed,
    judge::pod,
    render::{child::awaiting_deletion, owner::Owner},
};

/// What keeps the job's pods from being as declared, each once.
pub(crate) fn findings(owner: &Owner, progress: &Progress<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for decision in &progress.decisions {
        let found = step(owner, decision)
            .into_iter()
            .chain(never_ends(decision))
            .chain(sources(decision));
        for finding in found {
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
    }
    findings
}

/// What a pod's step means to whoever waits for it.
fn step(owner: &Owner, decision: &Decision<'_>) -> Option<Finding> {
    let name = decision.pod_name(owner);
    let (reason, message) = match &decision.step {
        Step::Keep | Step::Record | Step::Make | Step::Missing => return None,
        Step::Stop(why) => ("Replacing", format!("Pod {name} is replaced: {}", told(why))),
        Step::Pace { how, .. } => ("PodLost", format!("Pod {name} was lost and is made again: {how}")),
        Step::Await => {
            let node = decision
                .pod
                .and_then(pod::node)
                .map(|node| format!(" from node {node}"));
            return Some(awaiting_deletion(ObjectKind::POD, &name, &node.unwrap_or_default()));
        }
        Step::AfterAggregator => (
            "AwaitingAggregator",
            "trainers are made once the aggregator's pod is there".to_owned(),
        ),
    };
    Some(Finding {
        impact: Impact::Waiting,
        reason,
        message,
    })
}

fn never_ends(decision: &Decision<'_>) -> Option<Finding> {
    let place = decision.place;
    (place.template().restart_policy() == Some("Always")).then(|| Finding {
        impact: Impact::Degraded,
        reason: "NeverEnds",
        message: format!(
            "{} has restartPolicy Always, so the job never ends; OnFailure is right",
            place.title()
        ),
    })
}

/// What is missing of a worker's sources, or does not work. What has ended needs nothing any more.
fn sources(decision: &Decision<'_>) -> Vec<Finding> {
    let has_ended = decision.step == Step::Keep && decision.pod.is_none_or(|pod| record::ended(pod).is_some());
    match &decision.sources {
        Ok(sources) => pods::findings(sources),
        Err(_) if has_ended => Vec::new(),
        Err(missing) => vec![missing.clone()],
    }
}

fn told(why: &Why) -> String {
    match why {
        Why::Changed => "what it is made from changed".to_owned(),
        Why::Lost(how) => format!("it was lost ({how})"),
        Why::Aggregator => "its aggregator is no more, and a connection to it cannot be resumed".to_owned(),
        Why::StartOver => "a trainer is made again after the aggregator's end, and nobody answers it".to_owned(),
    }
}

/// What is done, for `kubectl describe`.
pub(crate) fn events(
    job: &FederatedLearningJob,
    owner: &Owner,
    seen: &Observed,
    progress: &Progress<'_>,
) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let names = |these: fn(&Step) -> bool| {
        let these = progress.decisions.iter().filter(|decision| these(&decision.step));
        these.map(|decision| decision.pod_name(owner)).collect::<Vec<_>>()
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
        let name = decision.pod_name(owner);
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

pub(crate) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}
