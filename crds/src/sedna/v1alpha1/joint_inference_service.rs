//! `JointInferenceService`: a small model at the edge that asks a large one in the cloud about hard examples.

use k8s_openapi::{
    api::autoscaling::v2::{HorizontalPodAutoscalerBehavior, MetricSpec},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Metric, ModelRef, Parameter, ReportedUpTo};
use crate::{
    conditions::Condition,
    schema::rule,
    template::{Embedded, PodTemplate},
};

/// A small model at the edge that asks a large one in the cloud about hard examples.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sedna.io",
    version = "v1alpha1",
    kind = "JointInferenceService",
    plural = "jointinferenceservices",
    shortname = "ji",
    namespaced,
    status = "JointInferenceServiceStatus",
    derive = "PartialEq",
    schema = "disabled",
    category = "skerry",
    doc = "A small model at the edge that asks a large one in the cloud about hard examples.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Edge", type_ = "string", json_path = ".status.workers.edge.summary"),
    printcolumn(name = "Cloud", type_ = "string", json_path = ".status.workers.cloud.summary"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Node",
        type_ = "string",
        priority = 1,
        json_path = ".spec.edgeWorker.template.spec.nodeName"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct JointInferenceServiceSpec {
    /// Runs the small model.
    pub edge_worker: EdgeWorker,
    /// Runs the large model.
    pub cloud_worker: CloudWorker,
}

/// The worker at the edge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EdgeWorker {
    /// The small model.
    pub model: ModelRef,
    /// What decides that an example is hard and goes to the cloud.
    pub hard_example_mining: HardExampleMining,
    /// The worker's pod.
    pub template: PodTemplate,
    /// Scales the worker; absent for one replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpa: Option<Autoscaling>,
}

/// The worker in the cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudWorker {
    /// The large model.
    pub model: ModelRef,
    /// The worker's pod.
    pub template: PodTemplate,
    /// Scales the worker; absent for one replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpa: Option<Autoscaling>,
}

/// A hard-example filter of the worker library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HardExampleMining {
    /// The filter's name in the worker: `Threshold`, `CrossEntropy`, `IBT`, `Random`, … or one of the worker's own.
    pub name: String,
    /// The filter's parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
}

/// What the worker's `HorizontalPodAutoscaler` says, but for its target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",
    "minReplicas must not be greater than maxReplicas",
)]))]
pub struct Autoscaling {
    /// Never fewer replicas than these; 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_replicas: Option<i32>,
    /// Never more replicas than these.
    #[schemars(range(min = 1))]
    pub max_replicas: i32,
    /// What the number of replicas follows; CPU at 80 % if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Embedded<MetricSpec>>,
    /// How fast it follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behavior: Option<Embedded<HorizontalPodAutoscalerBehavior>>,
}

/// What is known of a `JointInferenceService`. `metrics` is what its edge worker reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JointInferenceServiceStatus {
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
    /// How many of the two workers are available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<i32>,
    /// How many of the two workers cannot be as declared until somebody acts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<i32>,
    /// Each worker's Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<ServiceWorkers>,
    /// The edge worker's figures: `inferenceNumber`, `hardExampleNumber`, `uploadCloudRatio`, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub metrics: Vec<Metric>,
    /// How far each start of a node's local controller was heard. What it says again, because an answer was lost or an old
    /// store was put back, takes no effect again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub reported_up_to: Vec<ReportedUpTo>,
}

/// The two workers of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceWorkers {
    /// The worker at the edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<ServiceWorker>,
    /// The worker in the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud: Option<ServiceWorker>,
}

/// How a worker's Deployment is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceWorker {
    /// The Deployment's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many pods there should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many pods of the newest template there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<i32>,
    /// How many pods are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
    /// `ready/replicas`, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

impl ServiceWorker {
    /// The state of the Deployment `name`.
    pub fn new(name: impl Into<String>, replicas: i32, updated: i32, ready: i32) -> Self {
        Self {
            name: Some(name.into()),
            replicas: Some(replicas),
            updated: Some(updated),
            ready: Some(ready),
            summary: Some(format!("{ready}/{replicas}")),
        }
    }
}
