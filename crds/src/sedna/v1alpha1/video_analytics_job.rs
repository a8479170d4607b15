//! `VideoAnalyticsJob`: finds objects in a video.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{JobOptions, ModelRef, PodJobStatus};
use crate::template::PodTemplate;

/// Finds objects in a video.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sedna.io",
    version = "v1alpha1",
    kind = "VideoAnalyticsJob",
    plural = "videoanalyticsjobs",
    shortname = "va",
    namespaced,
    status = "PodJobStatus",
    derive = "PartialEq",
    schema = "disabled",
    category = "skerry",
    doc = "Finds objects in a video.",
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
pub struct VideoAnalyticsJobSpec {
    /// The model that finds objects.
    pub model: ModelRef,
    /// Whether frames come over Kafka.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kafka_support: Option<bool>,
    /// The job's pod.
    pub template: PodTemplate,
    /// The rest of the Job.
    #[serde(flatten)]
    pub options: JobOptions,
}
