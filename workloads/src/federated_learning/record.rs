//! What is recorded of each worker in `status.workers`: the job's only memory, and the proof that a worker has ended.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use skerry_crds::{
    names::annotation,
    sedna::v1alpha1::{FederatedLearningJob, JobWorker, Outcome},
};

use super::{
    adoption,
    inputs::{Place, trainers},
};
use crate::{
    Live,
    judge::pod::{Exit, Phase, bad_exit, ended_at, lost, node, phase},
    render::owner::Owner,
};

/// How the pod ended, where its containers did by themselves: not if it was lost or deleted. A container that is told to
/// end may well end with exit code 0, with its work undone.
pub(crate) fn ended(pod: &Live) -> Option<Outcome> {
    match phase(pod) {
        _ if pod.terminating() => None,
        Phase::Succeeded => Some(Outcome::Succeeded),
        Phase::Failed if lost(pod).is_none() => Some(Outcome::Failed),
        Phase::Failed | Phase::Pending | Phase::Running => None,
    }
}

/// The record of a place.
pub(crate) fn find<'a>(records: &'a [JobWorker], place: Place<'_>) -> Option<&'a JobWorker> {
    let role = place.role();
    records
        .iter()
        .find(|record| record.role.as_ref() == Some(&role) && record.index == place.index())
}

/// The records of all places, brought up to date with the pods that there are.
///
/// What trainers ended with counts as long as the aggregator's pod is the one that it was recorded beside.
pub(crate) fn records(job: &FederatedLearningJob, owner: &Owner, pods: &[Live], now: Timestamp) -> Vec<JobWorker> {
    let before = job
        .status
        .as_ref()
        .map(|status| status.workers.as_slice())
        .unwrap_or_default();
    let pod_of = |place: Place<'_>| adoption::pod_of(place, owner, pods);
    let aggregator = Place::aggregator(job);
    let earlier = find(before, aggregator);
    let first = record(owner, aggregator, pod_of(aggregator), earlier, now);
    let uid = first.pod_uid.as_deref();
    let same_run = uid.is_some() && earlier.and_then(|record| record.pod_uid.as_deref()) == uid;
    let others = trainers(job).map(|place| {
        let belongs = |pod: &&Live| uid.is_some() && pod.annotation(annotation::AGGREGATOR_UID) == uid;
        let earlier = find(before, place).filter(|_| same_run);
        record(owner, place, pod_of(place).filter(belongs), earlier, now)
    });
    let others: Vec<_> = others.collect();
    std::iter::once(first).chain(others).collect()
}

/// The record of one place.
fn record(
    owner: &Owner,
    place: Place<'_>,
    pod: Option<&Live>,
    earlier: Option<&JobWorker>,
    now: Timestamp,
) -> JobWorker {
    let blank = JobWorker {
        name: adoption::worker_name(place, owner, pod),
        role: Some(place.role()),
        index: place.index(),
        ..JobWorker::default()
    };
    let has_ended = |record: &&JobWorker| matches!(record.outcome, Some(Outcome::Succeeded | Outcome::Failed));
    let Some(pod) = pod else {
        // Which pod there was is remembered; that it ran is not.
        let outcome = earlier.filter(has_ended).and_then(|record| record.outcome);
        return earlier.map_or(blank, |record| JobWorker {
            outcome,
            ..record.clone()
        });
    };
    let of_this_pod = earlier.filter(|record| record.pod_uid.as_deref() == Some(pod.uid()));
    if let Some(record) = of_this_pod.filter(has_ended) {
        return record.clone();
    }
    let outcome = ended(pod);
    let exit = bad_exit(pod).filter(|_| outcome == Some(Outcome::Failed));
    JobWorker {
        node: node(pod).map(str::to_owned),
        pod_name: Some(pod.name().to_owned()),
        pod_uid: Some(pod.uid().to_owned()),
        inputs_hash: pod.annotation(annotation::INPUTS_HASH).map(str::to_owned),
        outcome: Some(outcome.unwrap_or(Outcome::Running)),
        reason: failure_reason(pod, outcome),
        message: exit.as_ref().map(told),
        exit_code: exit.map(|exit| exit.code),
        finished_at: outcome.map(|_| Time(ended_at(pod).unwrap_or(now))),
        ..blank
    }
}

fn failure_reason(pod: &Live, outcome: Option<Outcome>) -> Option<String> {
    outcome.filter(|outcome| *outcome == Outcome::Failed)?;
    let reason = pod.text("/status/reason");
    Some(if reason.is_empty() { "ContainerFailed" } else { reason }.to_owned())
}

fn told(exit: &Exit) -> String {
    let Exit {
        container,
        code,
        message,
    } = exit;
    if message.is_empty() {
        format!("container {container} ended with exit code {code}")
    } else {
        format!("container {container} ended with exit code {code}: {message}")
    }
}
