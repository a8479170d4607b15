//! `FederatedLearningJob`: trainers that keep their samples, and an aggregator that joins what they learn.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{DatasetRef, Metric, ModelRef, OptionalModelRef, ReportedUpTo, given};
use crate::{conditions::Condition, template::PodTemplate};

/// Trainers that keep their samples, and an aggregator that joins what they learn.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sedna.io",
    version = "v1alpha1",
    kind = "FederatedLearningJob",
    plural = "federatedlearningjobs",
    shortname = "fl",
    namespaced,
    status = "FederatedLearningJobStatus",
    derive = "PartialEq",
    schema = "disabled",
    category = "skerry",
    doc = "Trainers that keep their samples, and an aggregator that joins what they learn.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Round", type_ = "integer", json_path = ".status.rounds[-1:].round"),
    printcolumn(name = "Active", type_ = "integer", json_path = ".status.active"),
    printcolumn(name = "Succeeded", type_ = "integer", json_path = ".status.succeeded"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.failed"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct FederatedLearningJobSpec {
    /// Joins what the trainers learn.
    pub aggregation_worker: AggregationWorker,
    /// The trainers, each beside its samples.
    #[schemars(length(min = 1))]
    pub training_workers: Vec<TrainingWorker>,
    /// The Model that the training starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pretrained_model: Option<OptionalModelRef>,
    /// How the weights travel: over the aggregator's WebSocket if absent, through object storage if both ways are named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transmitter: Option<Transmitter>,
}

/// The aggregator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AggregationWorker {
    /// The Model that the job trains.
    pub model: ModelRef,
    /// The aggregator's pod.
    pub template: PodTemplate,
}

/// One trainer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrainingWorker {
    /// What it trains on.
    pub dataset: DatasetRef,
    /// The trainer's pod.
    pub template: PodTemplate,
}

/// How the weights travel between the trainers and the aggregator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transmitter {
    /// Through object storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Transmitter>,
    /// Over the aggregator's WebSocket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ws: Option<WsTransmitter>,
}

/// Weights travel through object storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Transmitter {
    /// The prefix under which weights are put, `s3://bucket/path`.
    pub agg_data_path: String,
    /// The Secret with the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential_name: Option<String>,
}

impl S3Transmitter {
    /// The Secret with the credentials, where one is named.
    pub fn credential(&self) -> Option<&str> {
        given(self.credential_name.as_ref())
    }
}

/// Weights travel over the aggregator's WebSocket; there is nothing to set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WsTransmitter {}

/// What is known of a `FederatedLearningJob`. `rounds` is what its trainers report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FederatedLearningJobStatus {
    /// The generation that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Progressing, Degraded, then the states that Sedna's clients read: Training (the newest rounds), and last
    /// Complete or Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
    /// When the job was first seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the job ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// How many pods run or are about to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<i32>,
    /// How many workers succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<i32>,
    /// How many workers failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<i32>,
    /// Pending, Running, Succeeded or Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Each worker, the aggregator first, and how it ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub workers: Vec<JobWorker>,
    /// The rounds that trainers reported, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub rounds: Vec<Round>,
    /// How far each start of a node's local controller was heard. What it says again, because an answer was lost or an old
    /// store was put back, takes no effect again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub reported_up_to: Vec<ReportedUpTo>,
}

/// One worker of a job. Its outcome is written here before anything else follows from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobWorker {
    /// Its `WORKER_NAME`, the same for every pod in its place.
    pub name: String,
    /// `aggregation` or `train`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Its position among the trainers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<i32>,
    /// The node that it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its newest pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// That pod's uid: the aggregator's tells which trainers are connected to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// What that pod was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs_hash: Option<String>,
    /// How it is doing, or how it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// One CamelCase word about the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One sentence about the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The failed container's exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// How a worker is doing, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Outcome {
    /// Not ended.
    Running,
    /// Ended well; never started again.
    Succeeded,
    /// Ended badly; never started again.
    Failed,
}

/// One round of training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Round {
    /// Its number, from 1.
    pub round: i64,
    /// How many samples the trainers used, all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<i64>,
    /// The joint model's figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// When the newest report about it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_time: Option<Time>,
    /// What each trainer reported, in order of name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<RoundWorker>,
}

/// What one trainer reported about a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoundWorker {
    /// Its `WORKER_NAME`.
    pub name: String,
    /// When it began the round, as it tells the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// How many samples the round rested on: Sedna's library reports those of all trainers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<i64>,
    /// Its figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
}
