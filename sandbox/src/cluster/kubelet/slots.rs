//! The containers of one pod: what each does, what is started next and when, and what the status says. Pure: the pod's
//! worker tells what happened and does what comes out.
//!
//! ```text
//!            start            exit                    again, if the restart policy says so
//! Waiting ──────────▶ Running ─────▶ Ended ──▶ at once the first time, then after the back-off (Waiting CrashLoopBackOff)
//!    ▲                                              │
//!    └── image unknown, configuration missing ◀─────┘
//! ```

use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    Pod,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use tokio::time::Instant;

use super::super::meta::uid;
use super::super::pod_status::{restart_policy, restarts};

/// A container that ran this long starts with the shortest back-off again.
const RECOVERED: Duration = Duration::from_secs(600);

/// The longest wait is this many times the first.
const LONGEST: u32 = 30;

/// One container of a pod.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) container: Container,
    pub(super) init: bool,
    pub(super) state: State,
    /// How the run before this one ended.
    pub(super) last: Option<Ended>,
    /// How often it was started.
    pub(super) runs: u32,
    /// By its readiness probe; true where it has none.
    pub(super) ready: bool,
    /// By its startup probe; true where it has none.
    pub(super) started: bool,
    /// The wait before the next start after a failure.
    pub(super) back_off: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    /// Not started yet, or not again; the reason, and when it is tried.
    Waiting {
        reason: &'static str,
        message: Option<String>,
        until: Option<Instant>,
    },
    Running {
        id: String,
        since: Time,
        at: Instant,
    },
    Ended(Ended),
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ended {
    pub(super) id: String,
    pub(super) code: i32,
    pub(super) reason: &'static str,
    pub(super) message: Option<String>,
    pub(super) started: Time,
    pub(super) finished: Time,
    /// When it ended, and how long it ran.
    pub(super) at: Instant,
    pub(super) ran: Duration,
}

/// What the worker does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Start this container.
    Start(usize),
    /// Say that this container waits for its back-off, and ask again.
    BackOff(usize),
    /// Nothing before this time, unless something happens.
    Wait(Option<Instant>),
}

/// All containers of a pod, the init containers first.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    pub(super) slots: Vec<Slot>,
    first_back_off: Duration,
}

impl Slots {
    pub(super) fn new(pod: &Pod, first_back_off: Duration) -> Self {
        let Some(spec) = &pod.spec else {
            return Self {
                slots: vec![],
                first_back_off,
            };
        };
        let initializing = spec.init_containers.as_ref().is_some_and(|init| !init.is_empty());
        let slot = |container: &Container, init| Slot {
            container: container.clone(),
            init,
            state: State::Waiting {
                reason: if initializing {
                    "PodInitializing"
                } else {
                    "ContainerCreating"
                },
                message: None,
                until: None,
            },
            last: None,
            runs: 0,
            ready: false,
            started: false,
            back_off: Duration::ZERO,
        };
        let init = spec
            .init_containers
            .iter()
            .flatten()
            .map(|container| slot(container, true));
        let slots = init
            .chain(spec.containers.iter().map(|container| slot(container, false)))
            .collect();
        Self { slots, first_back_off }
    }

    /// What to do now. An ended container that is to run again moves to its back-off first.
    pub(super) fn next(&mut self, pod: &Pod, now: Instant) -> Next {
        let mut wake: Option<Instant> = None;
        for index in self.eligible(pod) {
            let first_back_off = self.first_back_off;
            let Some(slot) = self.slots.get_mut(index) else {
                continue;
            };
            if let State::Ended(ended) = slot.state.clone() {
                let until = ended.at + slot.back_off_after(ended.ran, first_back_off);
                let message = slot.back_off_message(pod);
                slot.last = Some(ended);
                slot.state = State::Waiting {
                    reason: "CrashLoopBackOff",
                    message: Some(message),
                    until: Some(until),
                };
                if until > now {
                    return Next::BackOff(index);
                }
            }
            match slot.state {
                State::Waiting { until: Some(until), .. } if until > now => {
                    wake = Some(wake.map_or(until, |sooner| sooner.min(until)));
                }
                State::Waiting { .. } => return Next::Start(index),
                _ => {}
            }
        }
        Next::Wait(wake)
    }

    /// The containers that may be started or wait to be: the first init container that has not succeeded, or all
    /// others once all have.
    fn eligible(&self, pod: &Pod) -> Vec<usize> {
        let again = |slot: &Slot| match &slot.state {
            State::Running { .. } => false,
            State::Waiting { .. } => true,
            State::Ended(ended) if slot.init => ended.code != 0 && restart_policy(pod) != "Never",
            State::Ended(ended) => restarts(pod, ended.code),
        };
        let succeeded = |slot: &Slot| matches!(&slot.state, State::Ended(ended) if ended.code == 0);
        let pending = self.slots.iter().position(|slot| slot.init && !succeeded(slot));
        let indexes: Vec<usize> = match pending {
            Some(index) => vec![index],
            None => (0..self.slots.len())
                .filter(|index| self.slots.get(*index).is_some_and(|slot| !slot.init))
                .collect(),
        };
        indexes
            .into_iter()
            .filter(|index| self.slots.get(*index).is_some_and(again))
            .collect()
    }

    /// The statuses to report: those of the init containers, and those of the others.
    pub(super) fn statuses(&self) -> (Vec<ContainerStatus>, Vec<ContainerStatus>) {
        let (init, others): (Vec<&Slot>, Vec<&Slot>) = self.slots.iter().partition(|slot| slot.init);
        (
            init.into_iter().map(Slot::status).collect(),
            others.into_iter().map(Slot::status).collect(),
        )
    }
}

impl Slot {
    /// The wait before the next start: none after the first end, then doubling.
    fn back_off_after(&mut self, ran: Duration, first: Duration) -> Duration {
        if ran >= RECOVERED {
            self.back_off = Duration::ZERO;
        }
        let wait = self.back_off;
        self.back_off = (wait * 2).clamp(first, first * LONGEST);
        wait
    }

    fn back_off_message(&self, pod: &Pod) -> String {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        // The wait was just doubled for the next time.
        let wait = (self.back_off / 2).as_secs_f32();
        let container = &self.container.name;
        format!(
            "back-off {wait}s restarting failed container={container} pod={name}_{namespace}({})",
            uid(pod)
        )
    }

    fn status(&self) -> ContainerStatus {
        let (state, id, started) = match &self.state {
            State::Waiting { reason, message, .. } => {
                let waiting = ContainerStateWaiting {
                    reason: Some((*reason).to_owned()),
                    message: message.clone(),
                };
                (
                    ContainerState {
                        waiting: Some(waiting),
                        ..ContainerState::default()
                    },
                    None,
                    false,
                )
            }
            State::Running { id, since, .. } => {
                let running = ContainerStateRunning {
                    started_at: Some(since.clone()),
                };
                (
                    ContainerState {
                        running: Some(running),
                        ..ContainerState::default()
                    },
                    Some(id),
                    self.started,
                )
            }
            State::Ended(ended) => (ended.state(), Some(&ended.id), false),
        };
        let known = id.or(self.last.as_ref().map(|last| &last.id));
        let completed = self.init && matches!(&self.state, State::Ended(ended) if ended.code == 0);
        let running = matches!(self.state, State::Running { .. });
        let ended = matches!(self.state, State::Ended(_));
        let last = self.last.as_ref().map(Ended::state);
        let image = self.container.image.clone().unwrap_or_default();
        ContainerStatus {
            name: self.container.name.clone(),
            image_id: known.map_or_else(String::new, |_| format!("process://{image}")),
            image,
            container_id: known.map(|id| format!("process://{id}")),
            ready: completed || (running && !self.init && self.started && self.ready),
            started: Some(started),
            restart_count: i32::try_from(self.runs.saturating_sub(1)).unwrap_or(i32::MAX),
            // Kubernetes writes this in any case.
            last_state: Some(if ended {
                ContainerState::default()
            } else {
                last.unwrap_or_default()
            }),
            state: Some(state),
            ..ContainerStatus::default()
        }
    }
}

impl Ended {
    fn state(&self) -> ContainerState {
        let terminated = ContainerStateTerminated {
            container_id: Some(format!("process://{}", self.id)),
            exit_code: self.code,
            reason: Some(self.reason.to_owned()),
            message: self.message.clone(),
            started_at: Some(self.started.clone()),
            finished_at: Some(self.finished.clone()),
            signal: None,
        };
        ContainerState {
            terminated: Some(terminated),
            ..ContainerState::default()
        }
    }
}

#[cfg(test)]
mod tests;
