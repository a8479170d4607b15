//! `ObjectSearchService`: cameras that follow objects, and recognise one that a user asks for.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{ObjectServiceStatus, PodWorker, ReidWorkers};

/// Cameras that follow objects, and recognise one that a user asks for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sedna.io",
    version = "v1alpha1",
    kind = "ObjectSearchService",
    plural = "objectsearchservices",
    shortname = "objs",
    namespaced,
    status = "ObjectServiceStatus",
    derive = "PartialEq",
    schema = "disabled",
    category = "skerry",
    doc = "Cameras that follow objects, and recognise one that a user asks for.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
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
pub struct ObjectSearchServiceSpec {
    /// What users talk to.
    pub user_worker: PodWorker,
    /// What follows objects, one at each camera.
    pub tracking_workers: Vec<PodWorker>,
    /// What recognises objects.
    pub reid_workers: ReidWorkers,
}
