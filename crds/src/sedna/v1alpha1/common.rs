//! What several kinds share: references, metrics, workers, statuses.

use std::borrow::Cow;

use k8s_openapi::{
    api::{apps::v1::DeploymentStrategy, batch::v1::JobSpec},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, Time},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    conditions::Condition,
    schema,
    template::{Embedded, PodTemplate},
};

/// A figure that a worker reports, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// What it measures.
    pub key: String,
    /// The figure; whatever is not text is JSON.
    pub value: String,
}

/// How far what one start of a node's local controller reported stands in this status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportedUpTo {
    /// The node.
    pub node: String,
    /// The start of its local controller: the name of its store, and one that no other start has, or `*` for all that are no longer
    /// named.
    pub boot: String,
    /// The number of its last report that was accepted.
    pub number: i64,
}

impl ReportedUpTo {
    /// Whether this is of that start of the local controller of that node.
    pub fn is_of(&self, node: &str, boot: &str) -> bool {
        self.node == node && self.boot == boot
    }
}

/// A parameter of a hard-example filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Parameter {
    /// Its name.
    pub key: String,
    /// Its value, as text.
    pub value: String,
}

/// Names a Model of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRef {
    /// The Model's name.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Names a Model of the same namespace, or none: Sedna's clients always send the field, with an empty name for none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OptionalModelRef {
    /// The Model's name; empty for none.
    pub name: String,
}

impl OptionalModelRef {
    /// The name, unless it is empty.
    pub fn name(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|name| !name.is_empty())
    }
}

/// Names a Dataset of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DatasetRef {
    /// The Dataset's name.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// A Secret's name as given: Sedna's clients may send an empty one for none.
pub(crate) fn given(name: Option<&String>) -> Option<&str> {
    name.map(String::as_str).filter(|name| !name.is_empty())
}

/// The Dataset that a job learns from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobDataset {
    /// The Dataset's name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The share of new samples that training gets, from 0 to 1; evaluation gets the rest.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub train_prob: f64,
}

/// A worker that is a pod and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PodWorker {
    /// Its pod.
    pub template: PodTemplate,
}

/// What Sedna's manifests say of a Deployment, but for its selector, which is derived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentFields {
    /// The pods.
    pub template: PodTemplate,
    /// How many pods; 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// How new pods take the place of old ones. (Sedna takes it and leaves it unused.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Embedded<DeploymentStrategy>>,
    /// How long a pod has to be ready to count, in seconds. (Sedna takes it and leaves it unused.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<i32>,
    /// How many old templates are kept. (Sedna takes it and leaves it unused.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
    /// Whether the Deployment is paused. (Sedna takes it and leaves it unused.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// How long a change may take, in seconds. (Sedna takes it and leaves it unused.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i32>,
}

/// Workers that recognise objects: a Deployment as it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReidWorkers {
    /// Sedna's types require a selector and its samples leave it out; nothing uses it, since labels are derived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<Embedded<LabelSelector>>,
    /// The rest of it.
    #[serde(flatten)]
    pub deployment: DeploymentFields,
}

/// What is known of a service of several workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectServiceStatus {
    /// The generation that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Progressing, Degraded, and last the state that Sedna's clients read: Pending, Running or Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
    /// When the service was first seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// How many workers are available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<i32>,
    /// How many workers are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<i32>,
}

/// What is known of a job of one pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodJobStatus {
    /// The generation that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Progressing, Degraded, and last the state that Sedna's clients read: Running, Completed or Failed.
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
    /// How many pods succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<i32>,
    /// How many pods failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<i32>,
    /// Pending, Running, Succeeded or Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

/// What a `batch/v1` Job says beside its template. Sedna takes it and leaves it unused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobOptions(pub Map<String, Value>);

impl JsonSchema for JobOptions {
    fn schema_name() -> Cow<'static, str> {
        "JobOptions".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema::without(schema::structural::<JobSpec>(), "template").into()
    }
}
