//! `Model`: a trained model, and what is known of its quality.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Metric, given};
use crate::conditions::Condition;

/// A trained model: where it is, and how it is written.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sedna.io",
    version = "v1alpha1",
    kind = "Model",
    plural = "models",
    namespaced,
    status = "ModelStatus",
    derive = "PartialEq",
    schema = "disabled",
    category = "skerry",
    doc = "A trained model: where it is, and how it is written.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Format", type_ = "string", json_path = ".spec.format"),
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(name = "Updated", type_ = "date", json_path = ".status.updateTime"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ModelSpec {
    /// Where the model is: a path on the node, or an `s3://`, `http://` or `https://` address.
    pub url: String,
    /// How the model is written: pb, ckpt, pth, pkl, onnx, …
    pub format: String,
    /// The systems on chip that the model was compiled for. (Sedna spells this one field with underscores.)
    #[serde(rename = "device_soc_versions", default, skip_serializing_if = "Vec::is_empty")]
    pub device_soc_versions: Vec<String>,
    /// The Secret with the credentials of an `s3://` address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential_name: Option<String>,
}

impl ModelSpec {
    /// The Secret with the credentials, where one is named.
    pub fn credential(&self) -> Option<&str> {
        given(self.credential_name.as_ref())
    }
}

/// What is known of a Model. `metrics` and `updateTime` come from the job that trains it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelStatus {
    /// The generation that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Progressing, Degraded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
    /// The model's figures, as its training reported them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub metrics: Vec<Metric>,
    /// When the metrics last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_time: Option<Time>,
}
