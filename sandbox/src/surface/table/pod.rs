//! What a pod shows: how many of its containers are ready, and in one word how it is.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    age::since,
    text::{NONE, at, condition, holds, list, number, text, text_or},
};

/// Cells of a pod's row.
pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let shown = Shown::of(pod);
    let restarts = match &shown.last_restart {
        Some(time) if shown.restarts != 0 => {
            format!("{} ({} ago)", shown.restarts, since(Some(&json!(time)), now))
        }
        _ => shown.restarts.to_string(),
    };
    let gates = list(pod, "spec.readinessGates");
    let open = gates
        .iter()
        .filter(|gate| holds(pod, text(gate, "conditionType")))
        .count();
    let gates = if gates.is_empty() {
        NONE.to_owned()
    } else {
        format!("{open}/{}", gates.len())
    };
    let address = list(pod, "status.podIPs").first().map_or("", |ip| text(ip, "ip"));
    vec![
        text(pod, "metadata.name").into(),
        format!("{}/{}", shown.ready, shown.total).into(),
        shown.reason.into(),
        restarts.into(),
        since(at(pod, "metadata.creationTimestamp"), now).into(),
        if address.is_empty() { NONE } else { address }.into(),
        text_or(pod, "spec.nodeName", NONE).into(),
        text_or(pod, "status.nominatedNodeName", NONE).into(),
        gates.into(),
    ]
}

/// What a row says beside its cells: the pod has come to its end.
pub(super) fn row_conditions(pod: &Value) -> Vec<Value> {
    let (reason, message) = match text(pod, "status.phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

#[derive(Default)]
struct Shown {
    ready: usize,
    total: usize,
    restarts: i64,
    /// RFC 3339, so that later ones are greater.
    last_restart: Option<String>,
    reason: String,
}

impl Shown {
    fn of(pod: &Value) -> Self {
        let sidecars: Vec<&str> = list(pod, "spec.initContainers")
            .iter()
            .filter(|c| text(c, "restartPolicy") == "Always")
            .map(|c| text(c, "name"))
            .collect();
        let mut shown = Self {
            total: list(pod, "spec.containers").len() + sidecars.len(),
            reason: text_or(pod, "status.reason", text(pod, "status.phase")).to_owned(),
            ..Self::default()
        };
        if condition(pod, "PodScheduled").is_some_and(|c| text(c, "reason") == "SchedulingGated") {
            shown.reason = "SchedulingGated".into();
        }
        let sidecar_restarts = shown.init(pod, &sidecars);
        if !shown.reason.starts_with("Init:") || holds(pod, "Initialized") {
            (shown.restarts, shown.last_restart) = sidecar_restarts;
            shown.containers(pod);
        }
        shown.leaving(pod);
        shown
    }

    /// Looks at the init containers up to the first that is not done. Answers the restarts of sidecars alone.
    fn init(&mut self, pod: &Value, sidecars: &[&str]) -> (i64, Option<String>) {
        let (mut restarts, mut last) = (0, None);
        for (index, status) in list(pod, "status.initContainerStatuses").iter().enumerate() {
            let sidecar = sidecars.contains(&text(status, "name"));
            self.restarted(status);
            if sidecar {
                restarts += number(status, "restartCount");
                last = last.max(finished(status));
            }
            let terminated = at(status, "state.terminated");
            if terminated.is_some_and(|t| number(t, "exitCode") == 0) {
                continue;
            }
            if sidecar && at(status, "started") == Some(&Value::Bool(true)) {
                self.ready += usize::from(at(status, "ready") == Some(&Value::Bool(true)));
                continue;
            }
            let waiting = text(status, "state.waiting.reason");
            self.reason = if let Some(terminated) = terminated {
                format!("Init:{}", ended(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", list(pod, "spec.initContainers").len())
            };
            break;
        }
        (restarts, last)
    }

    fn containers(&mut self, pod: &Value) {
        let mut running = false;
        for status in list(pod, "status.containerStatuses").iter().rev() {
            self.restarted(status);
            let waiting = text(status, "state.waiting.reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(terminated) = at(status, "state.terminated") {
                self.reason = ended(terminated);
            } else if at(status, "ready") == Some(&Value::Bool(true)) && at(status, "state.running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            self.reason = if holds(pod, "Ready") { "Running" } else { "NotReady" }.into();
        }
    }

    fn leaving(&mut self, pod: &Value) {
        if at(pod, "metadata.deletionTimestamp").is_none() {
            return;
        }
        if text(pod, "status.reason") == "NodeLost" {
            self.reason = "Unknown".into();
        } else if !matches!(text(pod, "status.phase"), "Succeeded" | "Failed") {
            self.reason = "Terminating".into();
        }
    }

    fn restarted(&mut self, status: &Value) {
        self.restarts += number(status, "restartCount");
        self.last_restart = self.last_restart.take().max(finished(status));
    }
}

fn finished(status: &Value) -> Option<String> {
    at(status, "lastState.terminated.finishedAt")
        .and_then(Value::as_str)
        .map(str::to_owned)
}

fn ended(terminated: &Value) -> String {
    match (text(terminated, "reason"), number(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", number(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(status: &Value) -> (String, String, String) {
        let pod = json!({
            "kind": "Pod",
            "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]},
            "status": status,
        });
        let cells = cells(&pod, "2026-01-01T00:01:00Z".parse().unwrap());
        let text = |i: usize| cells[i].as_str().unwrap().to_owned();
        (text(1), text(2), text(3))
    }

    #[test]
    fn a_pod_is_told_in_one_word() {
        let running = json!({"name": "a", "ready": true, "state": {"running": {}}});
        for (status, ready, word, restarts) in [
            (json!({"phase": "Pending"}), "0/2", "Pending", "0"),
            (
                json!({"phase": "Running", "containerStatuses": [running, running]}),
                "2/2",
                "Running",
                "0",
            ),
            (
                json!({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}),
                "0/2",
                "ImagePullBackOff",
                "0",
            ),
            (
                json!({"phase": "Running", "containerStatuses": [running, {
                    "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"finishedAt": "2026-01-01T00:00:30Z"}},
                }]}),
                "1/2",
                "CrashLoopBackOff",
                "3 (30s ago)",
            ),
            (
                json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}),
                "0/2",
                "Init:0/1",
                "0",
            ),
            (
                json!({"phase": "Pending", "initContainerStatuses": [
                    {"name": "i", "restartCount": 1, "state": {"terminated": {"exitCode": 2}}},
                ]}),
                "0/2",
                "Init:ExitCode:2",
                "1",
            ),
            (
                json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
                "0/2",
                "Error",
                "0",
            ),
            (json!({"phase": "Failed", "reason": "Evicted"}), "0/2", "Evicted", "0"),
        ] {
            assert_eq!(shown(&status), (ready.into(), word.into(), restarts.into()), "{status}");
        }
    }

    #[test]
    fn a_pod_on_its_way_out_is_terminating() {
        let pod = json!({
            "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"},
        });
        assert_eq!(Shown::of(&pod).reason, "Terminating");
        assert_eq!(
            row_conditions(&json!({"status": {"phase": "Failed"}}))[0]["reason"],
            "Failed"
        );
    }
}
