//! ReplicaSets: how many pods a set should have, which go first when there are too many, and what its status says.
//!
//! A pass has two halves, because the status reports whether the writes of the first one were refused: [`manage`]
//! yields adoptions, releases, creations and deletions; [`status`] is computed after they were carried out.

mod rank;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;

use super::claim::claim;
use super::clock::after;
use super::decision::{Decision, nonzero};
use super::effect::{Announce, Body, Delete, Effect};
use super::meta::{
    active, controller_of, controller_reference, count, deleting, generation, has_labels, ready, ready_since,
    reference, selects, template_labels, uid,
};

/// The name under which this controller's events appear.
const COMPONENT: &str = "replicaset-controller";

/// The most pods that one pass creates or deletes.
const BURST: usize = 500;

/// The longest name that a pod may have; a prefix that leaves no room for the random part is cut by the API server.
const NAME_LIMIT: usize = 253;

/// What to do about the pods of a set, given all pods of its namespace and the sets of the same owner.
pub(crate) fn manage(set: &ReplicaSet, pods: &[Arc<Pod>], siblings: &[Arc<ReplicaSet>], now: &Time) -> Vec<Effect> {
    let Some(spec) = &set.spec else { return vec![] };
    let candidates = pods.iter().filter(|pod| active(pod)).cloned();
    let (owned, mut effects) = claim(set, &spec.selector, candidates);
    if deleting(set) {
        return effects;
    }
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or_default();
    if let Some(missing) = wanted.checked_sub(owned.len()).filter(|missing| *missing > 0) {
        effects.extend((0..missing.min(BURST)).map(|_| create(set)));
    } else if owned.len() > wanted {
        let surplus = (owned.len() - wanted).min(BURST);
        let order = rank::deletion_order(owned, &related(siblings, pods), now);
        effects.extend(order.iter().take(surplus).map(|pod| delete(set, pod)));
    }
    effects
}

/// A set's status after [`manage`] was carried out, and when pods that are ready become available. `refused` is the
/// first error met.
pub(crate) fn status(set: &ReplicaSet, pods: &[Arc<Pod>], refused: Option<&str>, now: &Time) -> Decision {
    let Some(spec) = &set.spec else {
        return Decision::default();
    };
    let own = |pod: &&Arc<Pod>| {
        active(pod)
            && selects(&spec.selector, pod.metadata.labels.as_ref())
            && controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid(set))
    };
    let pods: Vec<&Arc<Pod>> = pods.iter().filter(own).collect();
    let wanted = spec.replicas.unwrap_or(1);
    let min_ready = spec.min_ready_seconds.unwrap_or_default();
    let labels = spec.template.as_ref().and_then(template_labels);
    let known = set.status.clone().unwrap_or_default();
    let status = ReplicaSetStatus {
        observed_generation: Some(generation(set)),
        replicas: count(pods.len()),
        fully_labeled_replicas: nonzero(count(
            pods.iter()
                .filter(|pod| has_labels(labels, pod.metadata.labels.as_ref()))
                .count(),
        )),
        ready_replicas: nonzero(count(pods.iter().filter(|pod| ready(pod)).count())),
        available_replicas: nonzero(count(pods.iter().filter(|pod| available(pod, min_ready, now)).count())),
        conditions: conditions(known.conditions.clone(), count(pods.len()) - wanted, refused, now),
        terminating_replicas: known.terminating_replicas,
    };
    let mut decision = Decision::default();
    if status != known {
        let set = ReplicaSet {
            status: Some(status),
            ..set.clone()
        };
        decision.effects.push(Effect::UpdateStatus(Body::of(&set)));
    }
    let soonest = pods
        .iter()
        .filter_map(|pod| available_at(pod, min_ready))
        .filter(|at| at > now)
        .min();
    Decision {
        again: soonest,
        ..decision
    }
}

fn create(set: &ReplicaSet) -> Effect {
    let template = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.clone())
        .unwrap_or_default();
    let meta = template.metadata.unwrap_or_default();
    let name = set.name_any();
    let pod = Pod {
        metadata: ObjectMeta {
            generate_name: Some(if name.len() < NAME_LIMIT {
                format!("{name}-")
            } else {
                name
            }),
            namespace: set.namespace(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controller_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    };
    let announce = Announce {
        about: reference(set),
        component: COMPONENT,
        done: Some(("SuccessfulCreate", "Created pod: ")),
        refused: ("FailedCreate", "Error creating: ".to_owned()),
    };
    Effect::Create(Body::of(&pod), Some(announce))
}

fn delete(set: &ReplicaSet, pod: &Pod) -> Effect {
    let announce = Announce {
        about: reference(set),
        component: COMPONENT,
        done: Some(("SuccessfulDelete", "Deleted pod: ")),
        refused: ("FailedDelete", "Error deleting: ".to_owned()),
    };
    Effect::Delete(Delete {
        announce: Some(announce),
        ..Delete::of(pod)
    })
}

/// The active pods of all sets that share an owner: a node that has several of them can spare one best.
fn related(siblings: &[Arc<ReplicaSet>], pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    let of_sibling = |pod: &Pod| {
        siblings
            .iter()
            .filter_map(|set| set.spec.as_ref())
            .any(|spec| selects(&spec.selector, pod.metadata.labels.as_ref()))
    };
    pods.iter()
        .filter(|pod| active(pod) && of_sibling(pod))
        .cloned()
        .collect()
}

/// Ready for at least `min_ready` seconds.
fn available(pod: &Pod, min_ready: i32, now: &Time) -> bool {
    ready(pod) && (min_ready == 0 || available_at(pod, min_ready).is_some_and(|at| at <= *now))
}

fn available_at(pod: &Pod, min_ready: i32) -> Option<Time> {
    Some(after(ready_since(pod)?, min_ready))
}

/// The one condition of a set: that its pods could not be created or deleted. The first reason stays until it is over.
fn conditions(
    known: Option<Vec<ReplicaSetCondition>>,
    surplus: i32,
    refused: Option<&str>,
    now: &Time,
) -> Option<Vec<ReplicaSetCondition>> {
    const FAILURE: &str = "ReplicaFailure";
    let failing = known.iter().flatten().any(|known| known.type_ == FAILURE);
    match (refused, failing) {
        (Some(error), false) => {
            let mut conditions = known.unwrap_or_default();
            conditions.push(ReplicaSetCondition {
                type_: FAILURE.to_owned(),
                status: "True".to_owned(),
                last_transition_time: Some(now.clone()),
                reason: Some(if surplus > 0 { "FailedDelete" } else { "FailedCreate" }.to_owned()),
                message: Some(error.to_owned()),
            });
            Some(conditions)
        }
        (None, true) => {
            let mut conditions = known.unwrap_or_default();
            conditions.retain(|known| known.type_ != FAILURE);
            (!conditions.is_empty()).then_some(conditions)
        }
        _ => known,
    }
}
