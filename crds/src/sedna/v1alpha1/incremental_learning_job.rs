//! `IncrementalLearningJob`: train, evaluate, deploy, again and again, as samples come in.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    common::{JobDataset, ModelRef, OptionalModelRef, given},
    joint_inference_service::HardExampleMining,
    trigger::Trigger,
};
use crate::{conditions::Condition, template::PodTemplate};

/// Train, evaluate, deploy, again and again, as samples come in.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sedna.io",
    version = "v1alpha1",
    kind = "IncrementalLearningJob",
    plural = "incrementallearningjobs",
    shortname = "il",
    namespaced,
    status = "IncrementalLearningJobStatus",
    derive = "PartialEq",
    schema = "disabled",
    category = "skerry",
    doc = "Train, evaluate, deploy, again and again, as samples come in.",
    printcolumn(name = "Stage", type_ = "string", json_path = ".status.conditions[-1:].stage"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.conditions[-1:].type"),
    printcolumn(name = "Dataset", type_ = "string", json_path = ".spec.dataset.name"),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.deploySpec.model.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[-1:].message"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct IncrementalLearningJobSpec {
    /// What it learns from.
    pub dataset: JobDataset,
    /// The Model that the first training starts from.
    pub initial_model: ModelRef,
    /// How it trains.
    pub train_spec: IncrementalTrainSpec,
    /// How it evaluates.
    pub eval_spec: IncrementalEvalSpec,
    /// How it serves.
    pub deploy_spec: IncrementalDeploySpec,
    /// Where what it makes is put: a path on the node, or an `s3://` address.
    pub output_dir: String,
    /// The Secret with the credentials of an `s3://` address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential_name: Option<String>,
}

impl IncrementalLearningJobSpec {
    /// The Secret with the credentials, where one is named.
    pub fn credential(&self) -> Option<&str> {
        given(self.credential_name.as_ref())
    }
}

/// How a job trains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IncrementalTrainSpec {
    /// The trainer's pod.
    pub template: PodTemplate,
    /// When it trains.
    pub trigger: Trigger,
}

/// How a job evaluates what was trained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IncrementalEvalSpec {
    /// The evaluator's pod.
    pub template: PodTemplate,
    /// The Model that the first one is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_eval_model: Option<OptionalModelRef>,
}

/// How a job serves what was trained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IncrementalDeploySpec {
    /// The model that is served.
    pub model: DeployModel,
    /// When a trained model takes its place.
    pub trigger: Trigger,
    /// What decides that an example is hard and kept for training.
    pub hard_example_mining: HardExampleMining,
    /// The server's pod.
    pub template: PodTemplate,
}

/// The model that is served, and how a new one takes its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployModel {
    /// The Model's name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Whether a running worker loads the new model; if not, its pod is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot_update_enabled: Option<bool>,
    /// How often a running worker looks for a new model, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 60))]
    pub poll_period_seconds: Option<i64>,
}

/// What is known of an `IncrementalLearningJob`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IncrementalLearningJobStatus {
    /// The generation that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Standard conditions, then the stages that the job went through, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
    /// When the job was first seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the job ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}
