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

/// Whether none of the pod's containers runs, and one that keeps ending badly waits to be started again. That one ended
/// badly once says nothing: it is told for as long as the pod lives.
pub(crate) fn keeps_failing(pod: &Live) -> bool {
    let runs = |status: &Value| status.pointer("/state/running").is_some();
    let failed = |status: &Value| {
        let last = status.pointer("/lastState/terminated");
        backs_off(status) && last.and_then(|ended| exit_of(status, ended)).is_some()
    };
    !containers(pod).any(runs) && containers(pod).any(failed)
}

/// Whether the kubelet waits for longer and longer until it starts the container again.
fn backs_off(status: &Value) -> bool {
    let waiting = status.pointer("/state/waiting");
    waiting.is_some_and(|waiting| field(waiting, "reason") == "CrashLoopBackOff")
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
    let ended = match status.pointer("/state/terminated") {
        Some(ended) => Some(ended),
        None if backs_off(status) => status.pointer("/lastState/terminated"),
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
        None if backs_off(status) => format!("container {} of Pod {pod} keeps ending", field(status, "name")),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use rstest::rstest;
    use serde_json::json;

    fn pod(status: &Value) -> Live {
        testing::pod("p", Some("edge-1"), status)
    }

    #[rstest]
    #[case(json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory. "}), Some("Evicted: low on memory"))]
    #[case(json!({"phase": "Failed", "reason": "NodeLost"}), Some("NodeLost"))]
    #[case(json!({"phase": "Failed", "reason": "OutOfcpu"}), Some("OutOfcpu"))]
    #[case(json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True",
        "reason": "DeletionByPodGC", "message": "node is gone"}]}), Some("DeletionByPodGC: node is gone"))]
    #[case(json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "False"}]}), None)]
    #[case(json!({"phase": "Failed", "reason": "DeadlineExceeded"}), None)]
    #[case(json!({"phase": "Failed"}), None)]
    #[case(json!({"phase": "Running", "reason": "Evicted"}), None)]
    fn a_pod_that_was_lost_is_told_from_one_that_failed(#[case] status: Value, #[case] how: Option<&str>) {
        assert_eq!(lost(&pod(&status)).as_deref(), how);
    }

    fn waiting(reason: &str) -> Value {
        json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "i:1",
            "state": {"waiting": {"reason": reason, "message": "m"}}}]})
    }

    #[rstest]
    #[case::backs_off(&[("waiting", 2)], true)]
    #[case::ended_well(&[("waiting", 0)], false)]
    #[case::runs_again(&[("running", 2)], false)]
    #[case::another_runs(&[("waiting", 2), ("running", 0)], false)]
    #[case::has_just_ended(&[("terminated", 2)], false)]
    fn a_pod_keeps_failing_if_none_runs_and_one_backs_off(#[case] states: &[(&str, i32)], #[case] fails: bool) {
        let status = |(state, last): &(&str, i32)| {
            json!({"name": "c", "state": {*state: {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": last}}})
        };
        let statuses: Vec<_> = states.iter().map(status).collect();
        let pod = pod(&json!({"phase": "Running", "containerStatuses": statuses}));
        assert_eq!(keeps_failing(&pod), fails);
    }

    #[rstest]
    #[case(
        waiting("ErrImagePull"),
        "ImagePullFailed",
        "Pod p cannot start: the image i:1 of container c cannot be pulled"
    )]
    #[case(
        waiting("ImagePullBackOff"),
        "ImagePullFailed",
        "Pod p cannot start: the image i:1 of container c cannot be pulled"
    )]
    #[case(
        waiting("CreateContainerConfigError"),
        "ContainerNotStarted",
        "Pod p cannot start container c: m"
    )]
    #[case(waiting("CrashLoopBackOff"), "ContainerFailing", "container c of Pod p keeps ending")]
    #[case(
        json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "no node."}]}),
        "Unschedulable",
        "Pod p cannot be scheduled: no node"
    )]
    #[case(
        json!({"phase": "Running", "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 2, "reason": "Error"}}}]}),
        "ContainerFailing",
        "container c of Pod p keeps failing, last with exit code 2"
    )]
    #[case(
        json!({"phase": "Running", "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 137,
            "reason": "OOMKilled"}}}]}),
        "ContainerFailing",
        "container c of Pod p keeps failing, last with exit code 137: OOMKilled"
    )]
    #[case(
        json!({"phase": "Pending", "initContainerStatuses": [{"name": "storage-initializer",
            "state": {"terminated": {"exitCode": 1, "reason": "Error", "message": "fetching\ns3://b/m: no such key\n"}}}]}),
        "ContainerFailing",
        "container storage-initializer of Pod p keeps failing, last with exit code 1: s3://b/m: no such key"
    )]
    #[case(json!({"phase": "Pending"}), "AwaitingNode", "Pod p waits for node edge-1 to take it")]
    fn what_keeps_a_pod_from_running_is_named(#[case] status: Value, #[case] reason: &str, #[case] message: &str) {
        let found = trouble(&pod(&status)).unwrap();
        assert_eq!((found.reason, found.message.as_str()), (reason, message));
    }

    #[rstest]
    #[case(json!({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 9, "state": {"running": {}}}]}))]
    #[case(json!({"phase": "Succeeded", "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 0}}}]}))]
    #[case(json!({"phase": "Failed", "reason": "Evicted"}))]
    #[case(waiting("ContainerCreating"))]
    fn a_pod_that_runs_starts_or_has_ended_has_no_trouble(#[case] status: Value) {
        assert_eq!(trouble(&pod(&status)), None);
    }

    #[test]
    fn a_pod_on_its_way_out_has_no_trouble() {
        let mut going = pod(&waiting("ErrImagePull"));
        going.object["metadata"]["deletionTimestamp"] = json!("2024-05-01T10:00:00Z");
        assert_eq!(trouble(&going), None);
    }

    #[test]
    fn a_pod_that_nobody_placed_yet_waits_for_no_node() {
        assert_eq!(trouble(&testing::pod("p", None, &json!({"phase": "Pending"}))), None);
    }

    #[test]
    fn the_container_that_ended_badly_is_found() {
        let status = json!({"phase": "Failed", "containerStatuses": [
            {"name": "good", "state": {"terminated": {"exitCode": 0, "finishedAt": "2024-05-01T10:00:05Z"}}},
            {"name": "bad", "state": {"terminated": {"exitCode": 3, "finishedAt": "2024-05-01T10:00:01Z"}}}]});
        let exit = bad_exit(&pod(&status)).unwrap();
        assert_eq!(
            (exit.container.as_str(), exit.code, exit.message.as_str()),
            ("bad", 3, "")
        );
        assert_eq!(ended_at(&pod(&status)).unwrap().to_string(), "2024-05-01T10:00:05Z");
    }
}
