//! What the status of a service says.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use skerry_crds::{
    conditions::{Condition, FAILED, PENDING, RUNNING},
    names,
    sedna::v1alpha1::{JointInferenceService, JointInferenceServiceStatus, ServiceWorkers},
};

use super::{
    inputs::{ROLES, Role},
    plan::of_role,
};
use crate::{
    Applied, Finding, Impact, ObjectKind, Observed, Plan,
    judge::{
        conditions::{Verdict, Words, condition, failures, said_at, stamp, standard},
        deployment::{Health, health},
    },
    render::owner::{Owner, terminating},
};

/// What the status says, without what nodes report.
pub(crate) fn status(
    ji: &JointInferenceService,
    seen: &Observed,
    plan: &Plan,
    applied: &Applied,
    now: Timestamp,
) -> JointInferenceServiceStatus {
    let before = ji.status.clone().unwrap_or_default();
    if terminating(ji) {
        // Its children go as the garbage collector likes; there is nothing to tell of that.
        return JointInferenceServiceStatus {
            metrics: Vec::new(),
            reported_up_to: Vec::new(),
            ..before
        };
    }
    let owner = Owner::of(ji);
    let [cloud, edge] = ROLES.map(|role| Worker::judge(role, &owner, ji, seen, applied));
    let verdict = verdict(plan, applied, &cloud, &edge);
    let workers = [&cloud, &edge];
    let count = |these: fn(&Worker) -> bool| i32::try_from(workers.iter().filter(|worker| these(worker)).count()).ok();
    let mut conditions = standard(&owner, &before.conditions, &verdict, now);
    conditions.push(legacy(&before.conditions, &verdict, now));
    JointInferenceServiceStatus {
        observed_generation: Some(owner.generation),
        conditions,
        start_time: before.start_time.or(Some(Time(now))),
        active: count(Worker::available),
        failed: count(Worker::failed),
        workers: figures(edge, cloud),
        metrics: Vec::new(),
        reported_up_to: Vec::new(),
    }
}

/// What is told of both. Where neither is there the field is left out: of one that is applied empty after it had something in
/// it, an API server makes null, and refuses that.
fn figures(edge: Worker, cloud: Worker) -> Option<ServiceWorkers> {
    let [edge, cloud] = [edge, cloud].map(|worker| Some(worker.health?.figures));
    (edge.is_some() || cloud.is_some()).then_some(ServiceWorkers { edge, cloud })
}

/// How one of the two workers is doing.
struct Worker {
    role: Role,
    health: Option<Health>,
    /// Somebody has to act before it can be as declared.
    blocked: bool,
}

impl Worker {
    fn judge(role: Role, owner: &Owner, ji: &JointInferenceService, seen: &Observed, applied: &Applied) -> Self {
        let name = names::child::deployment(&owner.name, role.worker_type());
        let live = applied.child(ObjectKind::DEPLOYMENT, &name);
        let least = role
            .scaling(ji)
            .map(|scaling| i64::from(scaling.min_replicas.unwrap_or(1)));
        let health = live.map(|live| health(live, least, of_role(seen, role).into_iter()));
        let refused = applied
            .failures
            .iter()
            .any(|failure| failure.name == name && failure.reason != "AwaitingDeletion");
        let missing = role.sources(ji, &seen.references).is_err();
        let stuck = health
            .iter()
            .flat_map(|health| &health.findings)
            .any(|finding| finding.impact == Impact::Blocked);
        Self {
            role,
            health,
            blocked: refused || missing || stuck,
        }
    }

    fn available(&self) -> bool {
        self.health.as_ref().is_some_and(|health| health.available)
    }

    fn failed(&self) -> bool {
        self.blocked && !self.available()
    }
}

fn verdict(plan: &Plan, applied: &Applied, cloud: &Worker, edge: &Worker) -> Verdict {
    let workers = [cloud, edge];
    let observed = workers
        .iter()
        .filter_map(|worker| worker.health.as_ref())
        .flat_map(|health| &health.findings);
    let findings: Vec<Finding> = plan
        .findings
        .iter()
        .chain(observed)
        .cloned()
        .chain(failures(applied))
        .collect();
    let titles = |these: fn(&Worker) -> bool| {
        let titles: Vec<_> = workers
            .iter()
            .filter(|worker| these(worker))
            .map(|worker| worker.role.title())
            .collect();
        (!titles.is_empty()).then(|| titles.join(" and "))
    };
    let available = match titles(|worker| !worker.available()) {
        None => Ok(Words::new("WorkersAvailable", "both workers are available")),
        Some(titles) => Err(Words::new(
            "WorkersUnavailable",
            format!("waiting for available pods of {titles}"),
        )),
    };
    let settled = match titles(|worker| !worker.health.as_ref().is_some_and(|health| health.settled)) {
        None => Ok(Words::new("Settled", "all pods are as declared")),
        Some(titles) => Err(Words::new("RollingOut", format!("pods of {titles} are on their way"))),
    };
    Verdict {
        findings,
        available,
        settled,
    }
}

/// The state that Sedna's clients read. A service that works is running, even if it is not quite as declared.
fn legacy(before: &[Condition], verdict: &Verdict, now: Timestamp) -> Condition {
    let (type_, words) = match (&verdict.available, verdict.worst(Impact::Blocked)) {
        (Ok(words), _) => (RUNNING, words.clone()),
        (Err(_), Some(words)) => (
            FAILED,
            Words {
                reason: "workerFailed",
                ..words
            },
        ),
        (Err(words), None) => (PENDING, words.clone()),
    };
    let mut condition = stamp(condition(type_, true, words), before, now);
    let said_at = said_at(
        &condition,
        before,
        |condition| condition.last_heartbeat_time.as_ref(),
        now,
    );
    condition.last_heartbeat_time = Some(said_at);
    condition
}
