//! `Dataset`: samples that lie on an edge node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{ReportedUpTo, given};
use crate::conditions::Condition;

/// Samples that lie on an edge node or in a store that the node can reach.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sedna.io",
    version = "v1alpha1",
    kind = "Dataset",
    plural = "datasets",
    namespaced,
    status = "DatasetStatus",
    derive = "PartialEq",
    schema = "disabled",
    category = "skerry",
    doc = "Samples that lie on an edge node or in a store that the node can reach.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Format", type_ = "string", json_path = ".spec.format"),
    printcolumn(name = "Samples", type_ = "integer", json_path = ".status.numberOfSamples"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "URL", type_ = "string", priority = 1, json_path = ".spec.url"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct DatasetSpec {
    /// Where the samples are: a path on the node, or an `s3://`, `http://` or `https://` address.
    pub url: String,
    /// How the samples are written. `csv` (first line is a header) and `txt` (one sample a line) can be counted.
    pub format: String,
    /// The node that holds the samples.
    pub node_name: String,
    /// The Secret with the credentials of an `s3://` address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential_name: Option<String>,
}

impl DatasetSpec {
    /// The Secret with the credentials, where one is named.
    pub fn credential(&self) -> Option<&str> {
        given(self.credential_name.as_ref())
    }
}

/// What is known of a Dataset. `numberOfSamples`, `updateTime` and `countError` are what its node reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatasetStatus {
    /// The generation that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Progressing, Degraded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
    /// How many samples the node counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number_of_samples: Option<i64>,
    /// When the count last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_time: Option<Time>,
    /// Why the node cannot count the samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_error: Option<String>,
    /// How far each start of a node's local controller was heard. What it says again, because an answer was lost or an old
    /// store was put back, takes no effect again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub reported_up_to: Vec<ReportedUpTo>,
}
