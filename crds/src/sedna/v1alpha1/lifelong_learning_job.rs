//! `LifelongLearningJob`: one job for many tasks, with a knowledge base that remembers them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    common::{JobDataset, PodWorker, given},
    trigger::Trigger,
};
use crate::{conditions::Condition, template::PodTemplate};

/// One job for many tasks, with a knowledge base that remembers them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sedna.io",
    version = "v1alpha1",
    kind = "LifelongLearningJob",
    plural = "lifelonglearningjobs",
    shortname = "ll",
    namespaced,
    status = "LifelongLearningJobStatus",
    derive = "PartialEq",
    schema = "disabled",
    category = "skerry",
    doc = "One job for many tasks, with a knowledge base that remembers them.",
    printcolumn(name = "Stage", type_ = "string", json_path = ".status.conditions[-1:].stage"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.conditions[-1:].type"),
    printcolumn(name = "Dataset", type_ = "string", json_path = ".spec.dataset.name"),
    printcolumn(
        name = "Models",
        type_ = "integer",
        json_path = ".status.knowledgeBase.AIModels.numberOfAIModels"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[-1:].message"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct LifelongLearningJobSpec {
    /// What it learns from.
    pub dataset: JobDataset,
    /// How it trains.
    pub train_spec: LifelongTrainSpec,
    /// How it evaluates.
    pub eval_spec: PodWorker,
    /// How it serves.
    pub deploy_spec: PodWorker,
    /// Where what it makes is put: a path on the node, or an `s3://` address.
    pub output_dir: String,
    /// The Secret with the credentials of an `s3://` address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential_name: Option<String>,
}

impl LifelongLearningJobSpec {
    /// The Secret with the credentials, where one is named.
    pub fn credential(&self) -> Option<&str> {
        given(self.credential_name.as_ref())
    }
}

/// How a job trains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LifelongTrainSpec {
    /// The trainer's pod.
    pub template: PodTemplate,
    /// When it trains.
    pub trigger: Trigger,
}

/// What is known of a `LifelongLearningJob`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LifelongLearningJobStatus {
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
    /// What the job knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knowledge_base: Option<KnowledgeBase>,
}

/// What a job knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KnowledgeBase {
    /// Its models.
    #[serde(rename = "AIModels", skip_serializing_if = "Option::is_none")]
    pub ai_models: Option<AiModels>,
    /// The classes that they tell apart.
    #[serde(rename = "AIClasses", skip_serializing_if = "Option::is_none")]
    pub ai_classes: Option<AiClasses>,
    /// The samples that they have not seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<UnseenSamples>,
}

/// The models in a knowledge base.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiModels {
    /// How many.
    #[serde(rename = "numberOfAIModels", skip_serializing_if = "Option::is_none")]
    pub number_of_ai_models: Option<i64>,
    /// Each of them.
    #[serde(rename = "listOfAIModels", default, skip_serializing_if = "Vec::is_empty")]
    pub list_of_ai_models: Vec<AiModel>,
}

/// One model in a knowledge base.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AiModel {
    /// Its id.
    #[serde(rename = "modelID", skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// Its precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_precision: Option<f64>,
    /// How many samples it was trained on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number_of_train_samples: Option<i64>,
}

/// The classes that the models tell apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiClasses {
    /// How many.
    #[serde(rename = "numberOfAIClasses", skip_serializing_if = "Option::is_none")]
    pub number_of_ai_classes: Option<i64>,
    /// Each of them.
    #[serde(rename = "listOfAIClasses", default, skip_serializing_if = "Vec::is_empty")]
    pub list_of_ai_classes: Vec<String>,
}

/// The samples that no model has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnseenSamples {
    /// How many of them have labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number_of_labeled_unseen_sample: Option<i64>,
    /// How many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number_of_unseen_sample: Option<i64>,
}
