//! `ReidJob`: recognises one object in what several cameras saw.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{JobOptions, PodJobStatus};
use crate::template::PodTemplate;

/// Recognises one object in what several cameras saw.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sedna.io",
    version = "v1alpha1",
    kind = "ReidJob",
    plural = "reidjobs",
    shortname = "reid",
    namespaced,
    status = "PodJobStatus",
    derive = "PartialEq",
    schema = "disabled",
    category = "skerry",
    doc = "Recognises one object in what several cameras saw.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Active", type_ = "integer", json_path = ".status.active"),
    printcolumn(name = "Succeeded", type_ = "integer", json_path = ".status.succeeded"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.failed"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[-1:].reason"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ReidJobSpec {
    /// Whether frames come over Kafka.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kafka_support: Option<bool>,
    /// The job's pod.
    pub template: PodTemplate,
    /// The rest of the Job.
    #[serde(flatten)]
    pub options: JobOptions,
}
