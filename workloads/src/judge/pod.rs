//! How a pod is doing, and what keeps it from doing better.
//!
//! Words of the kubelet that alternate (`ErrImagePull`, `ImagePullBackOff`) and counts that only grow stay out of the
//! messages: a status is written for news alone.

use serde_json::Value;

use crate::{Finding, Impact, Live};

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not all its containers have started.
    Pending,
    /// At least one container runs, or is about to again.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one of them badly.
    Failed,
}

/// The pod's phase; an unknown one is that of a pod that runs on a node that does not answer.
pub(crate) fn phase(pod: &Live) -> Phase {
    match pod.text("/status/phase") {
        "Running" | "Unknown" => Phase::Running,
        "Succeeded" => Phase::Succeeded,
        "Failed" => Phase::Failed,
        _ => Phase::Pending,
    }
}

/// The node that the pod was placed on.
pub(crate) fn node(pod: &Live) -> Option<&str> {
    Some(pod.text("/spec/nodeName")).filter(|node| !node.is_empty())
}

/// Reasons with which a kubelet or the control plane ends a pod through no fault of its containers.
const LOST: [&str; 11] = [
    "Evicted",
    "NodeAffinity",
    "NodeLost",
    "NodeName",
    "NodeShutdown",
    "Preempting",
    "Shutdown",
    "SMTAlignmentError",
    "Terminated",
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
];

/// Why the pod ended through no fault of its containers: it was evicted, its node was lost or would not take it.
pub(crate) fn lost(pod: &Live) -> Option<String> {
    if phase(pod) != Phase::Failed {
        return None;
    }
    let reason = pod.text("/status/reason");
    let disrupted = condition(pod, "DisruptionTarget").filter(|condition| field(condition, "status") == "True");
    let why = if LOST.contains(&reason) || reason.starts_with("OutOf") {
        (reason, pod.text("/status/message"))
    } else {
        disrupted.map(|condition| (field(condition, "reason"), field(condition, "message")))?
    };
    Some(match why {
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {}", message.trim_end_matches(['.', ' ', '\n'])),
    })
}

/// How a pod's container ended badly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// The container's name.
    pub(crate) container: String,
    /// Its exit code.
    pub(crate) code: i32,
    /// What it said last, or why it was ended.
    pub(crate) message: String,
}

/// The first container of a failed pod that ended badly, init containers first.
pub(crate) fn bad_exit(pod: &Live) -> Option<Exit> {
    containers(pod).find_map(|status| {
        let ended = status.pointer("/state/terminated")?;
        exit_of(status, ended)
    })
}

/// When the last container of the pod ended.
pub(crate) fn ended_at(pod: &Live) -> Option<jiff::Timestamp> {
    containers(pod)
        .filter_map(|status| status.pointer("/state/terminated/finishedAt")?.as_str()?.parse().ok())
        .max()
}

/// What keeps the pod from running, or from staying so. A pod that ended has none, nor has one on its way out.
pub(crate) fn trouble(pod: &Live) -> Option<Finding> {
    if pod.terminating() || !matches!(phase(pod), Phase::Pending | Phase::Running) {
        return None;
    }
    unschedulable(pod)
        .or_else(|| containers(pod).find_map(|status| stuck(pod, status)))
        .or_else(|| not_taken(pod))
}

/// The scheduler's refusal.
fn unschedulable(pod: &Live) -> Option<Finding> {
    let scheduled = condition(pod, "PodScheduled")?;
    if field(scheduled, "status") != "False" {
        return None;
    }
    let why = field(scheduled, "message").trim_end_matches(['.', ' ']);
    let why = if why.is_empty() {
        "the scheduler does not say why"
    } else {
        why
    };
    Some(blocked(
        "Unschedulable",
        format!("Pod {} cannot be scheduled: {why}", pod.name()),
    ))
}

/// A container that cannot start, or not for long.
fn stuck(pod: &Live, status: &Value) -> Option<Finding> {
    let (pod, container) = (pod.name(), field(status, "name"));
    let waiting = status.pointer("/state/waiting");
    let reason = waiting.map(|waiting| field(waiting, "reason")).unwrap_or_default();
    let message = waiting.map(|waiting| field(waiting, "message")).unwrap_or_default();
    match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "ErrImageNeverPull"
        | "InvalidImageName"
        | "RegistryUnavailable"
        | "ImageInspectError"
        | "SignatureValidationFailed" => {
            let image = field(status, "image");
            Some(blocked(
                "ImagePullFailed",
                format!("Pod {pod} cannot start: the image {image} of container {container} cannot be pulled"),
            ))
        }
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "PreCreateHookError"
        | "PostStartHookError" => Some(blocked(
            "ContainerNotStarted",
            format!("Pod {pod} cannot start container {container}: {message}"),
        )),
        _ => crashing(pod, status),
    }
}

/// A container that keeps ending badly and is started again.
fn crashing(pod: &str, status: &Value) -> Option<Finding> {
    let backing_off = status
        .pointer("/state/waiting")
        .is_some_and(|waiting| field(waiting, "reason") == "CrashLoopBackOff");
    let ended = match status.pointer("/state/terminated") {
        Some(ended) => Some(ended),
        None if backing_off => status.pointer("/lastState/terminated"),
        None => return None,
    };
    let exit = ended.and_then(|ended| exit_of(status, ended));
    let message = match exit {
        Some(Exit {
            container,
            code,
            message,
        }) if message.is_empty() => {
            format!("container {container} of Pod {pod} keeps failing, last with exit code {code}")
        }
        Some(Exit {
            container,
            code,
            message,
        }) => {
            format!("container {container} of Pod {pod} keeps failing, last with exit code {code}: {message}")
        }
        None if backing_off => format!("container {} of Pod {pod} keeps ending", field(status, "name")),
        None => return None,
    };
    Some(blocked("ContainerFailing", message))
}

/// A pod that was placed on a node whose kubelet has not touched it.
fn not_taken(pod: &Live) -> Option<Finding> {
    let node = node(pod)?;
    let untouched = phase(pod) == Phase::Pending && containers(pod).next().is_none();
    untouched.then(|| Finding {
        impact: Impact::Waiting,
        reason: "AwaitingNode",
        message: format!("Pod {} waits for node {node} to take it", pod.name()),
    })
}

fn exit_of(status: &Value, ended: &Value) -> Option<Exit> {
    let code = i32::try_from(ended.get("exitCode")?.as_i64()?)
        .ok()
        .filter(|code| *code != 0)?;
    let said = field(ended, "message").trim();
    let reason = field(ended, "reason");
    // `Error` is what the kubelet writes where it knows no more than the code.
    let message = match (said, reason) {
        ("", "Error") => "",
        ("", reason) => reason,
        (said, _) => said.lines().next_back().unwrap_or_default(),
    };
    Some(Exit {
        container: field(status, "name").to_owned(),
        code,
        message: message.to_owned(),
    })
}

/// Container statuses, init containers first.
fn containers(pod: &Live) -> impl Iterator<Item = &Value> {
    ["/status/initContainerStatuses", "/status/containerStatuses"]
        .into_iter()
        .filter_map(|list| pod.object.pointer(list)?.as_array())
        .flatten()
}

fn condition<'a>(pod: &'a Live, type_: &str) -> Option<&'a Value> {
    let conditions = pod.object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| field(condition, "type") == type_)
}

fn field<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn blocked(reason: &'static str, message: String) -> Finding {
    Finding {
        impact: Impact::Blocked,
        reason,
        message,
    }
}
