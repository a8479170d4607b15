//! A Deployment's status: counts from its sets, and the conditions `Available`, `Progressing` and `ReplicaFailure`.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::super::clock::after;
use super::super::decision::nonzero;
use super::super::effect::{Body, Effect};
use super::super::meta::generation;
use super::bounds;
use super::rollout::{Rollout, Set};

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";

const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";
const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";

impl Rollout<'_> {
    /// Marks a pause and its end, so that a resumed Deployment does not time out for the time it was paused.
    pub(super) fn note_pause(&mut self) {
        let reason = condition(&self.deployment, PROGRESSING).and_then(|known| known.reason.clone());
        if deadline(&self.deployment).is_none() || reason.as_deref() == Some(TIMED_OUT) {
            return;
        }
        let paused = self
            .deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.paused)
            .unwrap_or_default();
        match (paused, reason.as_deref() == Some(PAUSED)) {
            (true, false) => self.progressing("Unknown", PAUSED, "Deployment is paused".to_owned()),
            (false, true) => self.progressing("Unknown", "DeploymentResumed", "Deployment is resumed".to_owned()),
            _ => {}
        }
    }

    /// Says that a rollout goes on with a set that was there.
    pub(super) fn note_found(&mut self, set: &str) {
        if deadline(&self.deployment).is_some() && condition(&self.deployment, PROGRESSING).is_none() {
            self.progressing("True", "FoundNewReplicaSet", format!("Found new replica set \"{set}\""));
        }
    }

    /// Says that a rollout began with a set that was made for it.
    pub(super) fn note_created(&mut self) {
        let Some(name) = self.new_set().map(|set| set.object.name_any()) else {
            return;
        };
        if deadline(&self.deployment).is_some() {
            self.progressing(
                "True",
                "NewReplicaSetCreated",
                format!("Created new replica set \"{name}\""),
            );
        }
    }

    fn progressing(&mut self, status: &str, reason: &str, message: String) {
        let fresh = fresh(PROGRESSING, status, reason, message, &self.now);
        set(self.deployment.status.get_or_insert_default(), fresh);
    }

    /// The counts and the condition Available, without a judgement on progress.
    pub(super) fn status(&mut self) {
        self.deployment.status = Some(self.counted());
    }

    /// The whole status of a rollout; when to look again for its deadline.
    pub(super) fn rollout_status(&mut self) -> Option<Time> {
        let mut status = self.counted();
        if deadline(&self.deployment).is_none() {
            remove(&mut status, PROGRESSING);
        } else {
            self.judge_progress(&mut status);
        }
        match self.replica_failure() {
            Some(failure) => set(&mut status, failure),
            None => remove(&mut status, REPLICA_FAILURE),
        }
        let again = self.deadline_ends(&status);
        self.deployment.status = Some(status);
        again
    }

    fn counted(&self) -> DeploymentStatus {
        let total: i32 = self.sets.iter().map(Set::replicas).sum();
        let available: i32 = self.sets.iter().map(Set::available).sum();
        let known = self.deployment.status.clone().unwrap_or_default();
        let mut status = DeploymentStatus {
            observed_generation: Some(generation(&self.deployment)),
            replicas: nonzero(self.sets.iter().map(Set::actual).sum()),
            updated_replicas: nonzero(self.new_set().map_or(0, Set::actual)),
            ready_replicas: nonzero(self.sets.iter().map(Set::ready).sum()),
            available_replicas: nonzero(available),
            unavailable_replicas: nonzero((total - available).max(0)),
            collision_count: known.collision_count,
            conditions: known.conditions,
            terminating_replicas: None,
        };
        let minimum = bounds::replicas(&self.deployment) - bounds::max_unavailable(&self.deployment);
        let (state, reason, message) = if available >= minimum {
            (
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            )
        } else {
            (
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            )
        };
        set(
            &mut status,
            fresh(AVAILABLE, state, reason, message.to_owned(), &self.now),
        );
        status
    }

    /// Progressing is True while the counts move, and once all is available; False when the deadline has passed. A
    /// rollout that was complete is not judged again: later losses are availability, not progress.
    fn judge_progress(&self, status: &mut DeploymentStatus) {
        let current = condition(&self.deployment, PROGRESSING).cloned();
        let all_updated = status.replicas == status.updated_replicas;
        if all_updated
            && current
                .as_ref()
                .is_some_and(|known| known.reason.as_deref() == Some(NEW_SET_AVAILABLE))
        {
            return;
        }
        let subject = match self.new_set() {
            Some(set) => format!("ReplicaSet \"{}\"", set.object.name_any()),
            None => format!("Deployment \"{}\"", self.deployment.name_any()),
        };
        let fresh = |state, reason, what| fresh(PROGRESSING, state, reason, format!("{subject} {what}"), &self.now);
        if self.complete(Some(status)) {
            set(status, fresh("True", NEW_SET_AVAILABLE, "has successfully progressed."));
        } else if self.moved(status) {
            let mut moving = fresh("True", "ReplicaSetUpdated", "is progressing.");
            if let Some(current) = current {
                if current.status == "True" {
                    moving.last_transition_time = current.last_transition_time;
                }
                // The time of the update has to move even where nothing else differs: the deadline counts from it.
                remove(status, PROGRESSING);
            }
            set(status, moving);
        } else if self.timed_out(status) {
            set(status, fresh("False", TIMED_OUT, "has timed out progressing."));
        }
    }

    /// Whether all pods are new and available.
    pub(super) fn complete(&self, status: Option<&DeploymentStatus>) -> bool {
        let wanted = bounds::replicas(&self.deployment);
        let Some(status) = status else { return false };
        [status.updated_replicas, status.replicas, status.available_replicas]
            .into_iter()
            .all(|count| count.unwrap_or_default() == wanted)
            && status.observed_generation.unwrap_or_default() >= generation(&self.deployment)
    }

    /// Whether the counts are better than the ones last written.
    fn moved(&self, status: &DeploymentStatus) -> bool {
        let last = self.observed.status.clone().unwrap_or_default();
        let n = Option::unwrap_or_default;
        let old_pods = |status: &DeploymentStatus| n(status.replicas) - n(status.updated_replicas);
        n(status.updated_replicas) > n(last.updated_replicas)
            || old_pods(status) < old_pods(&last)
            || n(status.ready_replicas) > n(last.ready_replicas)
            || n(status.available_replicas) > n(last.available_replicas)
    }

    fn timed_out(&self, status: &DeploymentStatus) -> bool {
        let Some((deadline, known)) = deadline(&self.deployment).zip(find(status, PROGRESSING)) else {
            return false;
        };
        match known.reason.as_deref() {
            Some(NEW_SET_AVAILABLE) => false,
            Some(TIMED_OUT) => true,
            _ => known
                .last_update_time
                .as_ref()
                .is_some_and(|from| after(from, deadline) < self.now),
        }
    }

    fn deadline_ends(&self, status: &DeploymentStatus) -> Option<Time> {
        let known = find(status, PROGRESSING)?;
        let settled =
            self.complete(Some(status)) || matches!(known.reason.as_deref(), Some(TIMED_OUT | NEW_SET_AVAILABLE));
        if settled {
            return None;
        }
        Some(after(
            known.last_update_time.as_ref()?,
            deadline(&self.deployment)?.saturating_add(1),
        ))
    }

    /// What keeps a set from making its pods; the new set's troubles come first.
    fn replica_failure(&self) -> Option<DeploymentCondition> {
        let failure = |set: &Set| {
            let conditions = set.object.status.as_ref()?.conditions.as_ref()?;
            conditions.iter().find(|known| known.type_ == REPLICA_FAILURE).cloned()
        };
        let known = self
            .new_set()
            .and_then(failure)
            .or_else(|| self.sets.iter().find_map(failure))?;
        Some(DeploymentCondition {
            type_: known.type_,
            status: known.status,
            last_update_time: known.last_transition_time.clone(),
            last_transition_time: known.last_transition_time,
            reason: known.reason,
            message: known.message,
        })
    }
}

/// The status of a Deployment whose new set could not be made.
pub(crate) fn set_refused(deployment: &Deployment, message: String, now: &Time) -> Option<Effect> {
    deadline(deployment)?;
    let mut deployment = deployment.clone();
    let refused = fresh(PROGRESSING, "False", "ReplicaSetCreateError", message, now);
    set(deployment.status.get_or_insert_default(), refused);
    Some(Effect::UpdateStatus(Body::of(&deployment)))
}

/// `progressDeadlineSeconds`; the largest number stands for none.
fn deadline(deployment: &Deployment) -> Option<i32> {
    deployment
        .spec
        .as_ref()?
        .progress_deadline_seconds
        .filter(|seconds| *seconds != i32::MAX)
}

fn condition<'a>(deployment: &'a Deployment, of: &str) -> Option<&'a DeploymentCondition> {
    find(deployment.status.as_ref()?, of)
}

fn find<'a>(status: &'a DeploymentStatus, of: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|known| known.type_ == of)
}

fn fresh(of: &str, status: &str, reason: &str, message: String, now: &Time) -> DeploymentCondition {
    DeploymentCondition {
        type_: of.to_owned(),
        status: status.to_owned(),
        last_update_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
        reason: Some(reason.to_owned()),
        message: Some(message),
    }
}

/// Sets a condition as Kubernetes does: one of the same status and reason stays as it is; a changed one goes to the end
/// of the list, and keeps the time of its transition if its status is the same.
fn set(status: &mut DeploymentStatus, mut fresh: DeploymentCondition) {
    if let Some(known) = find(status, &fresh.type_) {
        if known.status == fresh.status && known.reason == fresh.reason {
            return;
        }
        if known.status == fresh.status {
            fresh.last_transition_time = known.last_transition_time.clone();
        }
    }
    remove(status, &fresh.type_.clone());
    status.conditions.get_or_insert_default().push(fresh);
}

fn remove(status: &mut DeploymentStatus, of: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|known| known.type_ != of);
    }
}
