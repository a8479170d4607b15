//! The one shape that conditions have in every kind, and the words in them.
//!
//! Sedna appends conditions to a log, and its clients read the last one; Kubernetes keeps one condition per type. A list
//! in Skerry serves both: standard types first, the legacy state last. Who writes the list writes it whole.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Standard: the resource does what it was declared to do.
pub const READY: &str = "Ready";
/// Standard: the resource is on its way from one state to another.
pub const PROGRESSING: &str = "Progressing";
/// Standard: something keeps the resource from being as it was declared.
pub const DEGRADED: &str = "Degraded";
/// Legacy, services: nothing runs yet.
pub const PENDING: &str = "Pending";
/// Legacy, services and stages of jobs: all workers run.
pub const RUNNING: &str = "Running";
/// Legacy, all kinds: a worker failed. Sedna never leaves it; here it goes when its cause does, unless a job ended.
pub const FAILED: &str = "Failed";
/// Legacy, `FederatedLearningJob`: a round was reported.
pub const TRAINING: &str = "Training";
/// Legacy, `FederatedLearningJob`: the job succeeded.
pub const COMPLETE: &str = "Complete";
/// Legacy, other jobs: the job or one of its stages succeeded.
pub const COMPLETED: &str = "Completed";
/// Legacy, stages of jobs: waits for its trigger.
pub const WAITING: &str = "Waiting";
/// Legacy, stages of jobs: the pod is being made.
pub const STARTING: &str = "Starting";

/// A condition holds.
pub const TRUE: &str = "True";
/// A condition does not hold.
pub const FALSE: &str = "False";
/// Nobody knows whether a condition holds.
pub const UNKNOWN: &str = "Unknown";

/// One condition, with the fields of every kind of Sedna's and of Kubernetes' own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// The generation that it speaks of (standard conditions).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When it was last looked at (legacy).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    /// When it was last looked at (legacy).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
    /// When its status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// One CamelCase word about the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One sentence that names the object at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The stage of an incremental or lifelong learning job: Train, Eval or Deploy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The stage's input and output, JSON as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

impl Condition {
    /// Whether its status is `True`.
    pub fn holds(&self) -> bool {
        self.status == TRUE
    }
}

/// The newest condition of a type: the last one, where a legacy log holds several.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().rev().find(|condition| condition.type_ == type_)
}
