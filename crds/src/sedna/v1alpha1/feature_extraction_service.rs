//! `FeatureExtractionService`: turns what cameras see into features that others compare.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{DeploymentFields, Metric, ModelRef};
use crate::{conditions::Condition, template::Embedded};

/// Turns what cameras see into features that others compare.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sedna.io",
    version = "v1alpha1",
    kind = "FeatureExtractionService",
    plural = "featureextractionservices",
    shortname = "fe",
    namespaced,
    status = "FeatureExtractionServiceStatus",
    derive = "PartialEq",
    schema = "disabled",
    category = "skerry",
    doc = "Turns what cameras see into features that others compare.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.model.name"),
    printcolumn(name = "Active", type_ = "integer", json_path = ".status.active"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.failed"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct FeatureExtractionServiceSpec {
    /// The model that extracts features.
    pub model: ModelRef,
    /// Whether frames come over Kafka.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kafka_support: Option<bool>,
    /// Required by Sedna's types; nothing uses it, since labels are derived.
    pub selector: Embedded<LabelSelector>,
    /// The Deployment.
    #[serde(flatten)]
    pub deployment: DeploymentFields,
}

/// What is known of a `FeatureExtractionService`. `metrics` is what its worker reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeatureExtractionServiceStatus {
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
    /// The worker's figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub metrics: Vec<Metric>,
}
