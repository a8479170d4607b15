//! A pod's phase and conditions, from the states of its containers, as a kubelet computes them. Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What a node's runtime knows of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Runtime {
    /// The init containers that it knows, in the order of the spec.
    pub(crate) init: Vec<ContainerStatus>,
    /// The containers that it knows, in the order of the spec.
    pub(crate) containers: Vec<ContainerStatus>,
    pub(crate) host_ip: String,
    pub(crate) pod_ip: Option<String>,
    /// When the kubelet took the pod on.
    pub(crate) started: Time,
    /// Whether nothing will be started again: the pod is on its way out.
    pub(crate) terminal: bool,
}

/// The conditions that a kubelet owns, in the order in which it lists them.
pub(crate) const OWN_CONDITIONS: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

/// The status to report. Conditions of others and a phase that is final stay.
pub(crate) fn pod_status(pod: &Pod, runtime: Runtime, now: &Time) -> PodStatus {
    let known = pod.status.clone().unwrap_or_default();
    let phase = match known.phase.as_deref() {
        Some(last @ ("Succeeded" | "Failed")) => last.to_owned(),
        _ => phase(pod, &runtime).to_owned(),
    };
    let own = own_conditions(pod, &runtime, &phase);
    let stamped = own.into_iter().map(|condition| stamp(condition, &known, now));
    let others = known
        .conditions
        .iter()
        .flatten()
        .filter(|condition| !OWN_CONDITIONS.contains(&condition.type_.as_str()));
    let conditions = others.cloned().chain(stamped).collect();
    let same_phase = known.phase.as_ref() == Some(&phase);
    PodStatus {
        reason: known.reason.filter(|_| same_phase),
        message: known.message.filter(|_| same_phase),
        qos_class: known.qos_class,
        phase: Some(phase),
        conditions: Some(conditions),
        host_ip: Some(runtime.host_ip.clone()),
        host_ips: Some(vec![HostIP { ip: runtime.host_ip }]),
        pod_ips: runtime.pod_ip.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip: runtime.pod_ip,
        start_time: Some(runtime.started),
        init_container_statuses: (!runtime.init.is_empty()).then_some(runtime.init),
        container_statuses: (!runtime.containers.is_empty()).then_some(runtime.containers),
        ..PodStatus::default()
    }
}

/// Whether a container that exited with `code` is started again.
pub(crate) fn restarts(pod: &Pod, code: i32) -> bool {
    match restart_policy(pod) {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    }
}

pub(crate) fn restart_policy(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref())
        .unwrap_or("Always")
}

/// The code of a container's last end, as far as its state shows one.
fn exit_code(status: &ContainerStatus) -> Option<i32> {
    let ended = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
        state
            .as_ref()?
            .terminated
            .as_ref()
            .map(|terminated| terminated.exit_code)
    };
    ended(&status.state).or_else(|| ended(&status.last_state))
}

pub(crate) fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

fn phase(pod: &Pod, runtime: &Runtime) -> &'static str {
    let Some(spec) = &pod.spec else { return "Pending" };
    let never = restart_policy(pod) == "Never";
    let find = |list: &[ContainerStatus], name: &str| list.iter().find(|status| status.name == name).cloned();
    let init: Vec<_> = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| find(&runtime.init, &container.name))
        .collect();
    let code =
        |status: &Option<ContainerStatus>| status.as_ref().filter(|status| !is_running(status)).and_then(exit_code);
    if never && init.iter().filter_map(code).any(|code| code != 0) {
        return "Failed";
    }
    if init.iter().any(|status| code(status).is_none()) {
        return "Pending";
    }
    let containers: Vec<_> = spec
        .containers
        .iter()
        .map(|container| find(&runtime.containers, &container.name))
        .collect();
    let known: Vec<_> = containers.iter().flatten().collect();
    if known.len() < containers.len()
        || known
            .iter()
            .any(|status| !is_running(status) && exit_code(status).is_none())
    {
        return "Pending";
    }
    if known.iter().any(|status| is_running(status)) {
        return "Running";
    }
    let succeeded = known.iter().all(|status| exit_code(status) == Some(0));
    match restart_policy(pod) {
        "Always" if !runtime.terminal => "Running",
        _ if succeeded => "Succeeded",
        "OnFailure" if !runtime.terminal => "Running",
        _ => "Failed",
    }
}

fn own_conditions(pod: &Pod, runtime: &Runtime, phase: &str) -> Vec<PodCondition> {
    let containers_ready = containers_ready(pod, runtime, phase);
    let ready = match gates(pod) {
        Some(message) if containers_ready.status == "True" => {
            condition("Ready", false, Some("ReadinessGatesNotReady"), Some(message))
        }
        _ => PodCondition {
            type_: "Ready".to_owned(),
            ..containers_ready.clone()
        },
    };
    vec![
        condition(
            "PodReadyToStartContainers",
            runtime.pod_ip.is_some() && !is_final(phase),
            None,
            None,
        ),
        initialized(pod, runtime, phase),
        ready,
        containers_ready,
        condition("PodScheduled", true, None, None),
    ]
}

fn is_final(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

fn initialized(pod: &Pod, runtime: &Runtime, phase: &str) -> PodCondition {
    const TYPE: &str = "Initialized";
    if phase == "Succeeded" {
        return condition(TYPE, true, Some("PodCompleted"), None);
    }
    if runtime
        .containers
        .iter()
        .any(|status| is_running(status) || exit_code(status).is_some())
    {
        return condition(TYPE, true, None, None);
    }
    let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let done = |name: &str| {
        let status = runtime.init.iter().find(|status| status.name == name);
        status.is_some_and(|status| {
            status
                .state
                .as_ref()
                .is_some_and(|state| state.terminated.as_ref().is_some_and(|end| end.exit_code == 0))
        })
    };
    let incomplete: Vec<&str> = init
        .map(|container| container.name.as_str())
        .filter(|name| !done(name))
        .collect();
    if incomplete.is_empty() {
        return condition(TYPE, true, None, None);
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    condition(TYPE, false, Some("ContainersNotInitialized"), Some(message))
}

fn containers_ready(pod: &Pod, runtime: &Runtime, phase: &str) -> PodCondition {
    const TYPE: &str = "ContainersReady";
    match phase {
        "Succeeded" => return condition(TYPE, false, Some("PodCompleted"), None),
        "Failed" => return condition(TYPE, false, Some("PodFailed"), None),
        _ => {}
    }
    let names = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| container.name.as_str());
    let ready = |name: &str| {
        runtime
            .containers
            .iter()
            .find(|status| status.name == name)
            .map(|status| status.ready)
    };
    let (unknown, rest): (Vec<&str>, Vec<&str>) = names.partition(|name| ready(name).is_none());
    let unready: Vec<&str> = rest.into_iter().filter(|name| ready(name) == Some(false)).collect();
    let said = |names: &[&str], what: &str| {
        (!names.is_empty()).then(|| format!("containers with {what} status: [{}]", names.join(" ")))
    };
    let messages: Vec<String> = [said(&unknown, "unknown"), said(&unready, "unready")]
        .into_iter()
        .flatten()
        .collect();
    if messages.is_empty() {
        return condition(TYPE, true, None, None);
    }
    condition(TYPE, false, Some("ContainersNotReady"), Some(messages.join(", ")))
}

/// What the readiness gates that someone else has to open still lack.
fn gates(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let gates = pod.spec.as_ref()?.readiness_gates.as_ref()?;
    let closed = gates.iter().filter_map(|gate| {
        let known = conditions
            .into_iter()
            .flatten()
            .find(|known| known.type_ == gate.condition_type);
        match known {
            None => Some(format!(
                "corresponding condition of pod readiness gate \"{}\" does not exist.",
                gate.condition_type
            )),
            Some(known) if known.status != "True" => Some(format!(
                "the status of pod readiness gate \"{}\" is not \"True\", but {}",
                gate.condition_type, known.status
            )),
            Some(_) => None,
        }
    });
    let closed: Vec<String> = closed.collect();
    (!closed.is_empty()).then(|| closed.join(", "))
}

fn condition(of: &str, holds: bool, reason: Option<&str>, message: Option<String>) -> PodCondition {
    PodCondition {
        type_: of.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: reason.map(str::to_owned),
        message,
        ..PodCondition::default()
    }
}

/// A condition keeps the time of its last change of status.
fn stamp(mut condition: PodCondition, known: &PodStatus, now: &Time) -> PodCondition {
    let before = known
        .conditions
        .iter()
        .flatten()
        .find(|before| before.type_ == condition.type_);
    let unchanged = before.filter(|before| before.status == condition.status);
    condition.last_transition_time = unchanged.map_or(Some(now.clone()), |before| before.last_transition_time.clone());
    condition
}
