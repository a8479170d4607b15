//! Nodes: which of them have gone silent, which taints say so, and what becomes of the pods on them.
//!
//! ```text
//! lease renewed ──▶ Ready as its kubelet says
//! not renewed for 40 s ──▶ all conditions Unknown, taints `unreachable`, its pods not ready
//! taint NoExecute ──▶ a pod that does not tolerate it goes at once, one that does for n seconds goes after those
//! node deleted ──▶ its pods are removed 40 s later
//! ```

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, PodCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::json;

use super::clock::after;
use super::decision::Decision;
use super::effect::{Announcement, Body, Delete, Effect, Target};
use super::meta::{deleting, finished, node_name, ready, reference};
use super::taints;

const COMPONENT: &str = "node-controller";

/// How long a node may be silent.
const GRACE_SECONDS: i32 = 40;

/// How long a node that never said anything may be silent.
const STARTUP_GRACE_SECONDS: i32 = 60;

/// How long a node has to be gone before its pods are.
const QUARANTINE_SECONDS: i32 = 40;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The taints `NoSchedule` that follow from conditions: type, status, key.
const FROM_CONDITIONS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// What to do about a node, given its lease and all pods.
pub(crate) fn reconcile(node: &Node, lease: Option<&Lease>, pods: &[Arc<Pod>], now: &Time) -> Decision {
    let (heard, grace) = last_heard(node, lease);
    let silent_at = heard.map(|heard| after(&heard, grace));
    let silent = silent_at.as_ref().is_none_or(|at| at < now);
    if silent && let Some(effects) = went_silent(node, now) {
        return Decision::effects(effects);
    }
    let mut effects: Vec<Effect> = retaint(node, now).into_iter().collect();
    if status_of(node, "Ready") == Some("Unknown") {
        effects.extend(
            pods.iter()
                .filter(|pod| node_name(pod) == Some(&node.name_any()))
                .flat_map(|pod| not_ready(pod, now)),
        );
    }
    let decision = Decision::effects(effects);
    match silent_at {
        Some(at) if !silent => decision.again_at(after(&at, 1)),
        _ => decision,
    }
}

/// What becomes of a pod that a node holds. `missing_since` is the time when its node was found gone.
pub(crate) fn pod(pod: &Pod, node: Option<&Node>, missing_since: Option<&Time>, now: &Time) -> Decision {
    match node {
        Some(node) => evict(pod, node, now),
        None => collect(pod, missing_since, now),
    }
}

/// When the node last gave a sign of life, and how long it may be silent after that.
fn last_heard(node: &Node, lease: Option<&Lease>) -> (Option<Time>, i32) {
    let renewed = lease
        .and_then(|lease| lease.spec.as_ref()?.renew_time.clone())
        .map(|time| Time(time.0));
    let reported = condition(node, "Ready").and_then(|known| known.last_heartbeat_time.clone());
    let grace = if condition(node, "Ready").is_some() {
        GRACE_SECONDS
    } else {
        STARTUP_GRACE_SECONDS
    };
    (renewed.max(reported).or_else(|| node.creation_timestamp()), grace)
}

/// The status of a node that is no longer heard of; nothing if it says so already.
fn went_silent(node: &Node, now: &Time) -> Option<Vec<Effect>> {
    let mut node = node.clone();
    let created = node.creation_timestamp();
    let was_ready = status_of(&node, "Ready") == Some("True");
    let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
    let before = conditions.clone();
    for of in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        match conditions.iter_mut().find(|known| known.type_ == of) {
            Some(known) if known.status == "Unknown" => {}
            Some(known) => {
                "Unknown".clone_into(&mut known.status);
                known.reason = Some("NodeStatusUnknown".to_owned());
                known.message = Some("Kubelet stopped posting node status.".to_owned());
                known.last_transition_time = Some(now.clone());
            }
            None => conditions.push(NodeCondition {
                type_: of.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: created.clone(),
                last_transition_time: Some(now.clone()),
            }),
        }
    }
    if *conditions == before {
        return None;
    }
    let mut effects = vec![Effect::UpdateStatus(Body::of(&node))];
    if was_ready {
        let message = format!("Node {} status is now: NodeNotReady", node.name_any());
        effects.push(Effect::Event(Announcement {
            about: reference(&node),
            component: COMPONENT,
            warning: false,
            reason: "NodeNotReady",
            message,
        }));
    }
    Some(effects)
}

/// Brings the taints that follow from conditions up to date; the others are left alone.
fn retaint(node: &Node, now: &Time) -> Option<Effect> {
    let known = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    let wanted = wanted_taints(node);
    let same = |taint: &Taint, (key, effect): &(&str, &str)| taint.key == *key && taint.effect == *effect;
    let ours = |taint: &Taint| {
        let followed = FROM_CONDITIONS.iter().any(|(_, _, key)| *key == taint.key) || taint.key == UNSCHEDULABLE;
        let no_execute = [NOT_READY, UNREACHABLE].contains(&taint.key.as_str()) && taint.effect == "NoExecute";
        (followed && taint.effect == "NoSchedule") || no_execute
    };
    let mut taints: Vec<Taint> = known
        .iter()
        .filter(|taint| !ours(taint) || wanted.iter().any(|wanted| same(taint, wanted)))
        .cloned()
        .collect();
    for missing in wanted
        .iter()
        .filter(|wanted| !known.iter().any(|taint| same(taint, wanted)))
    {
        taints.push(Taint {
            key: missing.0.to_owned(),
            effect: missing.1.to_owned(),
            time_added: Some(now.clone()),
            value: None,
        });
    }
    if taints == known {
        return None;
    }
    let mut node = node.clone();
    node.spec.get_or_insert_default().taints = (!taints.is_empty()).then_some(taints);
    Some(Effect::Update(Body::of(&node)))
}

/// Key and effect of the taints that a node should have for its conditions.
fn wanted_taints(node: &Node) -> Vec<(&'static str, &'static str)> {
    let mut wanted = vec![];
    for (of, status, key) in FROM_CONDITIONS {
        if status_of(node, of) == Some(status) {
            wanted.push((key, "NoSchedule"));
            if of == "Ready" {
                wanted.push((key, "NoExecute"));
            }
        }
    }
    if node
        .spec
        .as_ref()
        .and_then(|spec| spec.unschedulable)
        .unwrap_or_default()
    {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    wanted
}

/// A pod on a silent node is not ready: nobody knows better.
fn not_ready(pod: &Pod, now: &Time) -> Vec<Effect> {
    if !ready(pod) || finished(pod) {
        return vec![];
    }
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": now}]}});
    vec![
        Effect::PatchStatus(Target::of(pod), patch),
        Effect::Event(Announcement {
            about: reference(pod),
            component: COMPONENT,
            warning: true,
            reason: "NodeNotReady",
            message: "Node is not ready".to_owned(),
        }),
    ]
}

/// Deletes a pod that the node's taints drive away, when its tolerations have run out.
fn evict(pod: &Pod, node: &Node, now: &Time) -> Decision {
    let mut leaves: Option<Time> = None;
    for taint in taints::of(node, "NoExecute") {
        let since = taint.time_added.clone().unwrap_or_else(|| now.clone());
        let until = match tolerance(pod, taint) {
            Tolerance::None => now.clone(),
            Tolerance::Forever => continue,
            Tolerance::Seconds(seconds) => after(&since, seconds),
        };
        leaves = Some(leaves.map_or(until.clone(), |sooner| sooner.min(until)));
    }
    match leaves {
        Some(_) if deleting(pod) => Decision::default(),
        Some(at) if at <= *now => Decision::effects(evicted(pod, now)),
        Some(at) => Decision::default().again_at(at),
        None => Decision::default(),
    }
}

/// How long a pod stays on a node with a taint.
enum Tolerance {
    None,
    Seconds(i32),
    Forever,
}

fn tolerance(pod: &Pod, taint: &Taint) -> Tolerance {
    let mut tolerations = taints::tolerations(pod, taint).peekable();
    if tolerations.peek().is_none() {
        return Tolerance::None;
    }
    match tolerations.filter_map(|toleration| toleration.toleration_seconds).min() {
        None => Tolerance::Forever,
        Some(seconds) => Tolerance::Seconds(i32::try_from(seconds.max(0)).unwrap_or(i32::MAX)),
    }
}

fn evicted(pod: &Pod, now: &Time) -> Vec<Effect> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let condition = disruption(
        "DeletionByTaintManager",
        "Taint manager: deleting due to NoExecute taint",
        now,
    );
    vec![
        Effect::Event(Announcement {
            about: reference(pod),
            component: "taint-eviction-controller",
            warning: false,
            reason: "TaintManagerEviction",
            message: format!("Marking for deletion Pod {namespace}/{name}"),
        }),
        Effect::PatchStatus(Target::of(pod), json!({"status": {"conditions": [condition]}})),
        Effect::Delete(Delete::of(pod)),
    ]
}

/// Removes a pod whose node no longer exists, and one that is to be deleted and never had a node.
fn collect(pod: &Pod, missing_since: Option<&Time>, now: &Time) -> Decision {
    let unplaced = node_name(pod).is_none();
    let due = match missing_since {
        _ if unplaced && deleting(pod) => now.clone(),
        Some(since) if !unplaced => after(since, QUARANTINE_SECONDS),
        _ => return Decision::default(),
    };
    if due > *now {
        return Decision::default().again_at(due);
    }
    let mut effects = vec![];
    if !finished(pod) {
        let condition = disruption("DeletionByPodGC", "PodGC: node no longer exists", now);
        let conditions = if unplaced { vec![] } else { vec![condition] };
        let patch = json!({"status": {"phase": "Failed", "conditions": conditions}});
        effects.push(Effect::PatchStatus(Target::of(pod), patch));
    }
    effects.push(Effect::Delete(Delete {
        grace: Some(0),
        ..Delete::of(pod)
    }));
    Decision::effects(effects)
}

fn disruption(reason: &str, message: &str, now: &Time) -> PodCondition {
    PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(now.clone()),
        ..PodCondition::default()
    }
}

fn condition<'a>(node: &'a Node, of: &str) -> Option<&'a NodeCondition> {
    node.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|known| known.type_ == of)
}

fn status_of<'a>(node: &'a Node, of: &str) -> Option<&'a str> {
    condition(node, of).map(|known| known.status.as_str())
}
