//! What the pods of a [`FakeKubelet`](super::FakeKubelet) do, as a test says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::super::meta::{Id, id};

/// What the containers of a pod do. What follows an exit is up to the pod's restart policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// They start, become ready and run.
    #[default]
    Run,
    /// They run, but their readiness probes fail.
    NeverReady,
    /// They exit some time after each start, in whole seconds.
    Exit {
        /// How long they run.
        after: Duration,
        /// With which code they end.
        code: i32,
    },
    /// Their image cannot be pulled.
    BadImage,
    /// They stay `ContainerCreating`.
    Hang,
}

impl Behaviour {
    /// They end well after a while.
    pub fn succeed_after(after: Duration) -> Self {
        Self::Exit { after, code: 0 }
    }

    /// They fail with code 1 after a while.
    pub fn fail_after(after: Duration) -> Self {
        Self::Exit { after, code: 1 }
    }
}

/// How long things take, in whole seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// From the binding of a pod to the start of its containers.
    pub start: Duration,
    /// From the deletion of a pod to the end of its containers; its grace period where that is shorter.
    pub stop: Duration,
    /// The code with which containers end when they are stopped. 143 is that of a process without a signal handler.
    pub stop_code: i32,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(1),
            stop: Duration::from_secs(1),
            stop_code: 143,
        }
    }
}

type Rule = Arc<dyn Fn(&Pod) -> Option<Behaviour> + Send + Sync>;

/// All that a test has said so far.
#[derive(Default)]
pub(super) struct Script {
    /// How often nodes give a sign of life; none for the usual.
    pub(super) beat: Option<Duration>,
    /// The latest rule that answers counts.
    pub(super) rules: Vec<Rule>,
    /// Pods whose containers end once, now.
    pub(super) exits: BTreeMap<Id, i32>,
    /// Pods to evict, and the message.
    pub(super) evictions: BTreeMap<Id, String>,
    /// Nodes that neither act nor give a sign of life.
    pub(super) lost: BTreeSet<String>,
    pub(super) timing: Timing,
}

impl Script {
    pub(super) fn behaviour(&self, pod: &Pod) -> Behaviour {
        if let Some(code) = self.exits.get(&id(pod)) {
            return Behaviour::Exit {
                after: Duration::ZERO,
                code: *code,
            };
        }
        self.rules.iter().rev().find_map(|rule| rule(pod)).unwrap_or_default()
    }
}
