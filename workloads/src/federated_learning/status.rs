//! What the status of a job says.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use skerry_crds::{
    conditions::{COMPLETE, Condition, FAILED, TRAINING},
    sedna::v1alpha1::{FederatedLearningJob, FederatedLearningJobStatus, JobWorker, Outcome},
};

use super::{
    adoption::pod_of,
    inputs::{Place, trainers},
    plan::end,
    record::{find, records},
    rounds,
};
use crate::{
    Applied, Finding, Impact, Live, Plan,
    judge::{
        conditions::{Verdict, Words, condition, failures, standard},
        pod::{Phase, phase, trouble},
    },
    render::owner::{Owner, terminating},
};

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All workers ended well.
    Complete,
    /// One did not; the message names it.
    Failed(String),
}

/// How the job ended, once the records say that it did.
pub(crate) fn outcome(records: &[JobWorker]) -> Option<End> {
    let failed = records.iter().find(|record| record.outcome == Some(Outcome::Failed));
    if let Some(record) = failed {
        let pod = record.pod_name.as_deref().unwrap_or_default();
        let why = record
            .message
            .as_deref()
            .or(record.reason.as_deref())
            .unwrap_or("it failed");
        return Some(End::Failed(format!(
            "the worker of FederatedLearningJob failed: Pod {pod}: {why}"
        )));
    }
    let all = !records.is_empty() && records.iter().all(|record| record.outcome == Some(Outcome::Succeeded));
    all.then_some(End::Complete)
}

/// What the status says, without what nodes report.
pub(crate) fn status(
    job: &FederatedLearningJob,
    plan: &Plan,
    applied: &Applied,
    now: Timestamp,
) -> FederatedLearningJobStatus {
    let before = job.status.clone().unwrap_or_default();
    let before = FederatedLearningJobStatus {
        rounds: Vec::new(),
        reported_up_to: Vec::new(),
        ..before
    };
    if terminating(job) {
        // Its children go as the garbage collector likes; there is nothing to tell of that.
        return before;
    }
    let owner = Owner::of(job);
    let was_over = end(job).cloned();
    let workers = match &was_over {
        Some(_) => before.workers.clone(),
        None => records(job, &owner, &applied.children, now),
    };
    let ended = match &was_over {
        Some(condition) => Some(ended_before(condition)),
        None => outcome(&workers),
    };
    // Pods that somebody else gave to the job are in no place of it.
    let pods: Vec<_> = places(job)
        .filter_map(|place| pod_of(place, &owner, &applied.children))
        .collect();
    let verdict = verdict(job, &owner, plan, applied, &workers, ended.as_ref());
    let mut conditions = standard(&owner, &before.conditions, &verdict, now);
    conditions.extend(training(job, &before.conditions));
    conditions.extend(was_over.or_else(|| ended.as_ref().map(|ended| last(&owner, ended, now))));

    let outcomes = |outcome| count(workers.iter().filter(|worker| worker.outcome == Some(outcome)).count());
    // A job that ended under Sedna has no records, and what Sedna counted stands.
    let counted = |outcome, sednas| if workers.is_empty() { sednas } else { outcomes(outcome) };
    let active = pods
        .iter()
        .filter(|pod| !pod.terminating() && matches!(phase(pod), Phase::Pending | Phase::Running));
    FederatedLearningJobStatus {
        observed_generation: Some(owner.generation),
        conditions,
        start_time: before.start_time.or(Some(Time(now))),
        completion_time: before
            .completion_time
            .or_else(|| (ended == Some(End::Complete)).then_some(Time(now))),
        active: count(active.count()),
        succeeded: counted(Outcome::Succeeded, before.succeeded),
        failed: counted(Outcome::Failed, before.failed),
        phase: Some(overall(ended.as_ref(), &workers, &pods).to_owned()),
        workers,
        rounds: Vec::new(),
        reported_up_to: Vec::new(),
    }
}

fn places(job: &FederatedLearningJob) -> impl Iterator<Item = Place<'_>> {
    std::iter::once(Place::aggregator(job)).chain(trainers(job))
}

fn count(number: usize) -> Option<i32> {
    i32::try_from(number).ok()
}

/// The end as an earlier pass, or Sedna, recorded it.
fn ended_before(condition: &Condition) -> End {
    if condition.type_ == COMPLETE {
        End::Complete
    } else {
        End::Failed(condition.message.clone().unwrap_or_default())
    }
}

/// Sedna's phase.
fn overall(ended: Option<&End>, workers: &[JobWorker], pods: &[&Live]) -> &'static str {
    match ended {
        Some(End::Complete) => "Succeeded",
        Some(End::Failed(_)) => "Failed",
        None => {
            let runs = pods.iter().any(|pod| phase(pod) == Phase::Running);
            let has_run = workers.iter().any(|worker| worker.outcome == Some(Outcome::Succeeded));
            if runs || has_run { "Running" } else { "Pending" }
        }
    }
}

fn verdict(
    job: &FederatedLearningJob,
    owner: &Owner,
    plan: &Plan,
    applied: &Applied,
    workers: &[JobWorker],
    ended: Option<&End>,
) -> Verdict {
    match ended {
        Some(End::Complete) => {
            let words = Words::new("Completed", "all workers ended well");
            return Verdict {
                findings: plan.findings.clone(),
                available: Ok(words.clone()),
                settled: Ok(words),
            };
        }
        Some(End::Failed(message)) => {
            let words = Words::new("workerFailed", message);
            let failed = Finding {
                impact: Impact::Blocked,
                reason: words.reason,
                message: words.message.clone(),
            };
            return Verdict {
                findings: std::iter::once(failed).chain(plan.findings.iter().cloned()).collect(),
                available: Err(words.clone()),
                settled: Ok(words),
            };
        }
        None => {}
    }
    let pod = |place: Place<'_>| pod_of(place, owner, &applied.children);
    let troubles = places(job).filter_map(|place| trouble(pod(place)?));
    let findings: Vec<Finding> = plan
        .findings
        .iter()
        .cloned()
        .chain(troubles)
        .chain(failures(applied))
        .collect();
    let goes = |place: &Place<'_>| {
        let ended = find(workers, *place).is_some_and(|worker| worker.outcome == Some(Outcome::Succeeded));
        ended || pod(*place).is_some_and(|pod| phase(pod) == Phase::Running && !pod.terminating())
    };
    let idle: Vec<_> = places(job).filter(|place| !goes(place)).map(Place::title).collect();
    let available = match idle.first() {
        None => Ok(Words::new("WorkersRunning", "all workers run")),
        Some(first) => {
            let others = match idle.len() {
                1 => String::new(),
                several => format!(" and {} more", several - 1),
            };
            Err(Words::new(
                "WorkersStarting",
                format!("waiting for {first}{others} to run"),
            ))
        }
    };
    let settled = Err(match &available {
        Ok(words) | Err(words) => words.clone(),
    });
    Verdict {
        findings,
        available,
        settled,
    }
}

/// The newest rounds as Sedna tells them. What Sedna itself told of a job that it ran is kept.
fn training(job: &FederatedLearningJob, before: &[Condition]) -> Vec<Condition> {
    let reported = job
        .status
        .as_ref()
        .map(|status| status.rounds.as_slice())
        .unwrap_or_default();
    let told: Vec<_> = if reported.is_empty() {
        before
            .iter()
            .filter(|condition| condition.type_ == TRAINING)
            .cloned()
            .collect()
    } else {
        reported.iter().map(rounds::condition).collect()
    };
    let old = told.len().saturating_sub(rounds::TOLD);
    told.into_iter().skip(old).collect()
}

/// The state that Sedna's clients look for.
fn last(owner: &Owner, ended: &End, now: Timestamp) -> Condition {
    let told = match ended {
        End::Complete => condition(COMPLETE, true, Words::new("Completed", "all workers ended well")),
        End::Failed(message) => condition(FAILED, true, Words::new("workerFailed", message)),
    };
    Condition {
        observed_generation: Some(owner.generation),
        last_probe_time: Some(Time(now)),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
        ..told
    }
}
