//! Which pod of a set is deleted first.

use std::cmp::Ordering;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::super::meta::{node_name, phase, ready, ready_since, uid};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The pods, the most dispensable first. `related` are the active pods among which doubling on a node counts.
pub(super) fn deletion_order(mut pods: Vec<Arc<Pod>>, related: &[Arc<Pod>], now: &Time) -> Vec<Arc<Pod>> {
    let neighbours = |pod: &Pod| {
        related
            .iter()
            .filter(|other| node_name(other) == node_name(pod))
            .count()
    };
    pods.sort_by(|a, b| {
        node_name(a)
            .is_some()
            .cmp(&node_name(b).is_some())
            .then_with(|| phase_order(a).cmp(&phase_order(b)))
            .then_with(|| ready(a).cmp(&ready(b)))
            .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
            .then_with(|| neighbours(b).cmp(&neighbours(a)))
            .then_with(|| by_age(ready_since(a), ready_since(b), a, b, now))
            .then_with(|| restarts(b).cmp(&restarts(a)))
            .then_with(|| by_age(created(a), created(b), a, b, now))
    });
    pods
}

fn phase_order(pod: &Pod) -> u8 {
    match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    }
}

fn deletion_cost(pod: &Pod) -> i32 {
    pod.annotations()
        .get(DELETION_COST)
        .and_then(|cost| cost.parse().ok())
        .unwrap_or_default()
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    statuses
        .into_iter()
        .flatten()
        .map(|container| container.restart_count)
        .max()
        .unwrap_or_default()
}

fn created(pod: &Pod) -> Option<&Time> {
    pod.metadata.creation_timestamp.as_ref()
}

/// An unknown time first, then the younger; ages are compared by magnitude (of two), and the uid decides within one, so
/// that the youngest is not always the victim.
fn by_age(a: Option<&Time>, b: Option<&Time>, of_a: &Pod, of_b: &Pod, now: &Time) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if a != b => magnitude(a, now)
            .cmp(&magnitude(b, now))
            .then_with(|| uid(of_a).cmp(uid(of_b))),
        (Some(_), Some(_)) | (None, None) => Ordering::Equal,
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

fn magnitude(since: &Time, now: &Time) -> Option<u32> {
    now.0.duration_since(since.0).as_nanos().checked_ilog2()
}
