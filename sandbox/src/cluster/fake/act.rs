//! What a pod's containers do next under a given behaviour. Pure: all that it needs to remember is in the pod's status.

use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    Pod, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::super::clock::after;
use super::super::meta::{deleting, finished, uid};
use super::super::pod_status::{Runtime, pod_status, restarts};
use super::script::{Behaviour, Timing};

/// The wait before a container that failed twice is started again; it doubles with each further failure.
const BACK_OFF_SECONDS: i32 = 10;
const LONGEST_BACK_OFF_SECONDS: i32 = 300;

/// What happens to a pod now.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Act {
    /// Nothing until then; for ever, if no time is given.
    Wait(Option<Time>),
    /// Its status becomes this.
    Report(Box<PodStatus>),
    /// Its status becomes this, and then it is gone.
    Remove(Box<PodStatus>),
}

/// Where a pod runs.
pub(super) struct Place {
    pub(super) host_ip: String,
    pub(super) pod_ip: String,
}

/// What a pod that is bound to a node does next.
pub(super) fn act(pod: &Pod, behaviour: &Behaviour, timing: &Timing, place: Place, now: &Time) -> Act {
    if deleting(pod) {
        return stop(pod, timing, place, now);
    }
    if finished(pod) {
        return Act::Wait(None);
    }
    let Some(started) = pod.status.as_ref().and_then(|status| status.start_time.clone()) else {
        let creating = each(pod, |container| waiting(container, None, "ContainerCreating", None));
        return report(pod, creating, place, now.clone(), false, now);
    };
    let steps: Vec<Step> = containers(pod)
        .map(|container| step(pod, container, behaviour, timing, &started, now))
        .collect();
    let again = steps.iter().filter_map(|step| step.again.clone()).min();
    let statuses: Vec<_> = steps.into_iter().map(|step| step.status).collect();
    match report(pod, statuses, place, started, false, now) {
        Act::Report(status) if Some(status.as_ref()) != pod.status.as_ref() => Act::Report(status),
        _ => Act::Wait(again),
    }
}

/// The status of an evicted pod.
pub(super) fn evicted(pod: &Pod, message: &str, place: Place, now: &Time) -> PodStatus {
    let ended = each(pod, |container| {
        terminated(container, known(pod, &container.name), 137, now)
    });
    let started = pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.clone())
        .unwrap_or_else(|| now.clone());
    let mut failed = pod.clone();
    failed.status.get_or_insert_default().phase = Some("Failed".to_owned());
    PodStatus {
        reason: Some("Evicted".to_owned()),
        message: Some(message.to_owned()),
        ..pod_status(&failed, runtime(ended, place, started, true), now)
    }
}

struct Step {
    status: ContainerStatus,
    again: Option<Time>,
}

fn step(pod: &Pod, container: &Container, behaviour: &Behaviour, timing: &Timing, started: &Time, now: &Time) -> Step {
    let known = known(pod, &container.name);
    let state = known.and_then(|status| status.state.clone()).unwrap_or_default();
    let done = |status| Step { status, again: None };
    let until = |at: Time, status| Step {
        status,
        again: Some(at),
    };
    let keep = || {
        known
            .cloned()
            .unwrap_or_else(|| waiting(container, None, "ContainerCreating", None))
    };
    if let Some(running) = state.running {
        return match behaviour {
            Behaviour::Exit { after: lifetime, code } => {
                let end = later(&running.started_at.clone().unwrap_or_else(|| now.clone()), *lifetime);
                if end <= *now {
                    done(terminated(container, known, *code, now))
                } else {
                    until(end, keep())
                }
            }
            Behaviour::NeverReady => done(ContainerStatus { ready: false, ..keep() }),
            _ => done(ContainerStatus { ready: true, ..keep() }),
        };
    }
    if let Some(ended) = state.terminated {
        if !restarts(pod, ended.exit_code) {
            return done(keep());
        }
        let count = known.map_or(0, |status| status.restart_count);
        return if count == 0 {
            done(running(container, known, behaviour, now))
        } else {
            done(crash_loop(pod, container, known))
        };
    }
    let reason = state.waiting.and_then(|waiting| waiting.reason).unwrap_or_default();
    if reason == "CrashLoopBackOff" {
        let due = crash_loop_ends(known).unwrap_or_else(|| now.clone());
        return if due <= *now {
            done(running(container, known, behaviour, now))
        } else {
            until(due, keep())
        };
    }
    let due = later(started, timing.start);
    match behaviour {
        _ if due > *now => until(due, keep()),
        Behaviour::Hang => done(keep()),
        Behaviour::BadImage => bad_image(container, &reason, now),
        _ => done(running(container, known, behaviour, now)),
    }
}

/// A pull that fails, then backs off.
fn bad_image(container: &Container, reason: &str, now: &Time) -> Step {
    let image = container.image.clone().unwrap_or_default();
    let failed = format!("failed to pull and unpack image \"{image}\": not found");
    if reason == "ContainerCreating" {
        return Step {
            status: waiting(container, None, "ErrImagePull", Some(failed)),
            again: Some(after(now, 1)),
        };
    }
    let message = format!("Back-off pulling image \"{image}\": ErrImagePull: {failed}");
    Step {
        status: waiting(container, None, "ImagePullBackOff", Some(message)),
        again: None,
    }
}

/// Graceful deletion: the containers end after a while, then the pod is gone.
fn stop(pod: &Pod, timing: &Timing, place: Place, now: &Time) -> Act {
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
    let deadline = pod.metadata.deletion_timestamp.clone().unwrap_or_else(|| now.clone());
    let began = after(&deadline, -i32::try_from(grace).unwrap_or_default());
    let end = later(&began, timing.stop).min(deadline);
    let started = pod.status.as_ref().and_then(|status| status.start_time.clone());
    if end > *now && !finished(pod) && started.is_some() {
        return Act::Wait(Some(end));
    }
    let ended = each(pod, |container| {
        let known = known(pod, &container.name);
        let running = known.is_some_and(super::super::pod_status::is_running);
        match known {
            Some(known) if !running => known.clone(),
            known => terminated(container, known, timing.stop_code, now),
        }
    });
    Act::Remove(Box::new(pod_status(
        pod,
        runtime(ended, place, started.unwrap_or_else(|| now.clone()), true),
        now,
    )))
}

fn report(pod: &Pod, statuses: Vec<ContainerStatus>, place: Place, started: Time, terminal: bool, now: &Time) -> Act {
    Act::Report(Box::new(pod_status(
        pod,
        runtime(statuses, place, started, terminal),
        now,
    )))
}

fn runtime(containers: Vec<ContainerStatus>, place: Place, started: Time, terminal: bool) -> Runtime {
    // Init containers are taken to have done their work at once.
    Runtime {
        init: vec![],
        containers,
        host_ip: place.host_ip,
        pod_ip: Some(place.pod_ip),
        started,
        terminal,
    }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| &spec.containers)
}

fn each(pod: &Pod, status: impl FnMut(&Container) -> ContainerStatus) -> Vec<ContainerStatus> {
    containers(pod).map(status).collect()
}

fn known<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == container)
}

fn base(container: &Container, known: Option<&ContainerStatus>) -> ContainerStatus {
    let image = container.image.clone().unwrap_or_default();
    ContainerStatus {
        name: container.name.clone(),
        image,
        restart_count: known.map_or(0, |known| known.restart_count),
        // Kubernetes writes this in any case.
        last_state: Some(known.and_then(|known| known.last_state.clone()).unwrap_or_default()),
        started: Some(false),
        ..ContainerStatus::default()
    }
}

fn waiting(
    container: &Container,
    known: Option<&ContainerStatus>,
    reason: &str,
    message: Option<String>,
) -> ContainerStatus {
    let waiting = ContainerStateWaiting {
        reason: Some(reason.to_owned()),
        message,
    };
    ContainerStatus {
        state: Some(ContainerState {
            waiting: Some(waiting),
            ..ContainerState::default()
        }),
        ..base(container, known)
    }
}

fn running(
    container: &Container,
    known: Option<&ContainerStatus>,
    behaviour: &Behaviour,
    now: &Time,
) -> ContainerStatus {
    let ended = known
        .and_then(|known| known.state.clone())
        .filter(|state| state.terminated.is_some());
    let again = ended.is_some()
        || known
            .and_then(|known| known.last_state.as_ref()?.terminated.as_ref())
            .is_some();
    let running = ContainerStateRunning {
        started_at: Some(now.clone()),
    };
    let mut status = base(container, known);
    status.state = Some(ContainerState {
        running: Some(running),
        ..ContainerState::default()
    });
    status.last_state = ended.or(status.last_state);
    status.restart_count += i32::from(again);
    status.started = Some(true);
    status.ready = *behaviour != Behaviour::NeverReady;
    status.image_id = status.image.clone();
    status.container_id = Some(format!("fake://{}-{}", container.name, status.restart_count));
    status
}

fn terminated(container: &Container, known: Option<&ContainerStatus>, code: i32, now: &Time) -> ContainerStatus {
    let started_at = known.and_then(|known| known.state.as_ref()?.running.as_ref()?.started_at.clone());
    let terminated = ContainerStateTerminated {
        exit_code: code,
        reason: Some(if code == 0 { "Completed" } else { "Error" }.to_owned()),
        started_at,
        finished_at: Some(now.clone()),
        container_id: known.and_then(|known| known.container_id.clone()),
        ..ContainerStateTerminated::default()
    };
    ContainerStatus {
        state: Some(ContainerState {
            terminated: Some(terminated),
            ..ContainerState::default()
        }),
        container_id: known.and_then(|known| known.container_id.clone()),
        image_id: known.map(|known| known.image_id.clone()).unwrap_or_default(),
        ..base(container, known)
    }
}

fn crash_loop(pod: &Pod, container: &Container, known: Option<&ContainerStatus>) -> ContainerStatus {
    let wait = back_off(known.map_or(0, |known| known.restart_count));
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let message = format!(
        "back-off {wait}s restarting failed container={} pod={name}_{namespace}({})",
        container.name,
        uid(pod)
    );
    let mut status = waiting(container, known, "CrashLoopBackOff", Some(message));
    status.last_state = known.and_then(|known| known.state.clone());
    status
}

fn crash_loop_ends(known: Option<&ContainerStatus>) -> Option<Time> {
    let ended = known?.last_state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?;
    Some(after(ended, back_off(known?.restart_count)))
}

fn back_off(restarts: i32) -> i32 {
    let doublings = u32::try_from(restarts.saturating_sub(1)).unwrap_or_default().min(16);
    BACK_OFF_SECONDS
        .saturating_mul(1 << doublings)
        .min(LONGEST_BACK_OFF_SECONDS)
}

fn later(time: &Time, wait: Duration) -> Time {
    after(time, i32::try_from(wait.as_secs()).unwrap_or(i32::MAX))
}
