//! The scheduler: which node a pod without one goes to, or why it fits nowhere.
//!
//! It knows the filters that are asked for here: unschedulable nodes, taints, node selector and required node affinity,
//! host ports, and requested resources. Among the nodes that fit, the one with the fewest pods of the same owner wins,
//! then the one with the fewest pods, then the first by name. It never evicts a pod for another.

mod affinity;
mod filters;
mod resources;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::json;

use super::decision::Decision;
use super::effect::{Announcement, Effect, Target};
use super::meta::{controller_of, deleting, finished, node_name, reference};
use super::taints;

const COMPONENT: &str = "default-scheduler";

/// What to do about a pod, given all nodes and all pods.
pub(crate) fn schedule(pod: &Pod, nodes: &[Arc<Node>], pods: &[Arc<Pod>], now: &Time) -> Decision {
    if !waits(pod) {
        return Decision::default();
    }
    let placed = by_node(pods);
    let mut refusals: BTreeMap<String, Refusals> = BTreeMap::new();
    let mut best = None;
    for node in nodes {
        let there = placed
            .get(node.name_any().as_str())
            .map(Vec::as_slice)
            .unwrap_or_default();
        let reasons = filters::refuse(pod, node, there);
        if reasons.is_empty() {
            let rank = rank(pod, node, there);
            best = best
                .filter(|(known, _)| *known <= rank)
                .or(Some((rank, node.name_any())));
        }
        for reason in reasons {
            let refusals = refusals.entry(reason.text).or_default();
            refusals.count += 1;
            refusals.evictable |= reason.evictable;
        }
    }
    Decision::effects(match best {
        Some((_, node)) => bind(pod, &node),
        None => refuse(pod, &message(nodes.len(), &refusals), now),
    })
}

/// Whether a pod asks for a node.
pub(crate) fn waits(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let ours = spec.scheduler_name.as_deref().is_none_or(|name| name == COMPONENT);
    let gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    ours && !gated && node_name(pod).is_none() && !deleting(pod) && !finished(pod)
}

#[derive(Default)]
struct Refusals {
    count: usize,
    /// Whether evicting pods could have helped, if any were less important.
    evictable: bool,
}

fn by_node(pods: &[Arc<Pod>]) -> BTreeMap<&str, Vec<&Pod>> {
    let mut placed: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !finished(pod)) {
        if let Some(node) = node_name(pod) {
            placed.entry(node).or_default().push(pod);
        }
    }
    placed
}

/// Smaller is better.
fn rank(pod: &Pod, node: &Node, there: &[&Pod]) -> (usize, usize, usize, String) {
    let avoided = taints::of(node, "PreferNoSchedule")
        .filter(|taint| !taints::tolerated(pod, taint))
        .count();
    let owner = controller_of(&pod.metadata).map(|owner| &owner.uid);
    let same = |other: &&&Pod| owner.is_some() && controller_of(&other.metadata).map(|of| &of.uid) == owner;
    (avoided, there.iter().filter(same).count(), there.len(), node.name_any())
}

fn bind(pod: &Pod, node: &str) -> Vec<Effect> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    vec![
        Effect::Bind {
            pod: Target::of(pod),
            node: node.to_owned(),
        },
        event(
            pod,
            false,
            "Scheduled",
            format!("Successfully assigned {namespace}/{name} to {node}"),
        ),
    ]
}

fn refuse(pod: &Pod, message: &str, now: &Time) -> Vec<Effect> {
    const CONDITION: &str = "PodScheduled";
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let known = conditions.into_iter().flatten().find(|known| known.type_ == CONDITION);
    let refused = known.filter(|known| known.status == "False");
    if refused.is_some_and(|known| known.message.as_deref() == Some(message)) {
        return vec![];
    }
    let since = refused
        .and_then(|known| known.last_transition_time.clone())
        .unwrap_or_else(|| now.clone());
    let condition = PodCondition {
        type_: CONDITION.to_owned(),
        status: "False".to_owned(),
        reason: Some("Unschedulable".to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(since),
        ..PodCondition::default()
    };
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.clone())
        .unwrap_or_else(|| "Pending".to_owned());
    vec![
        Effect::PatchStatus(
            Target::of(pod),
            json!({"status": {"phase": phase, "conditions": [condition]}}),
        ),
        event(pod, true, "FailedScheduling", message.to_owned()),
    ]
}

fn message(nodes: usize, refusals: &BTreeMap<String, Refusals>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let list = |mut parts: Vec<String>| {
        parts.sort();
        parts.join(", ")
    };
    let reasons = list(
        refusals
            .iter()
            .map(|(reason, refused)| format!("{} {reason}", refused.count))
            .collect(),
    );
    let evictable = refusals
        .values()
        .filter(|refused| refused.evictable)
        .map(|refused| refused.count)
        .max();
    let evictable = evictable.unwrap_or_default().min(nodes);
    let preemption = [
        (nodes - evictable, "Preemption is not helpful for scheduling"),
        (evictable, "No preemption victims found for incoming pod"),
    ];
    let preemption = list(
        preemption
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, text)| format!("{count} {text}"))
            .collect(),
    );
    format!(
        "0/{nodes} nodes are available: {reasons}. no new claims to deallocate, \
         preemption: 0/{nodes} nodes are available: {preemption}."
    )
}

fn event(pod: &Pod, warning: bool, reason: &'static str, message: String) -> Effect {
    Effect::Event(Announcement {
        about: reference(pod),
        component: COMPONENT,
        warning,
        reason,
        message,
    })
}
