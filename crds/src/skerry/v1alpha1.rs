//! `skerry.io/v1alpha1`.

#![allow(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and most have the same"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A node that has joined over the edge link, under its own name, in the namespace of the manager. Whoever may write it
/// may turn the node away.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "skerry.io",
    version = "v1alpha1",
    kind = "EdgeNode",
    plural = "edgenodes",
    shortname = "en",
    namespaced,
    status = "EdgeNodeStatus",
    derive = "PartialEq",
    schema = "disabled",
    category = "skerry",
    doc = "A node that has joined over the edge link, by its name.",
    printcolumn(name = "Connected", type_ = "boolean", json_path = ".status.session.connected"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.session.since"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.session.version"),
    printcolumn(name = "Certified", type_ = "date", json_path = ".status.certificate.issued"),
    printcolumn(name = "Expires", type_ = "string", json_path = ".status.certificate.expires"),
    printcolumn(name = "Revoked", type_ = "string", json_path = ".spec.revokedBefore"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EdgeNodeSpec {
    /// Certificates of the node that were issued before this time count no more. Where it lies ahead, the node cannot join
    /// until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_before: Option<Time>,
}

/// What is known of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EdgeNodeStatus {
    /// Its newest certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
    /// Its session with the manager, as of half a minute ago at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// A certificate of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// When it was issued.
    pub issued: Time,
    /// Until when it is valid.
    pub expires: Time,
}

/// How the session of a node stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Whether there is one.
    pub connected: bool,
    /// Since when there is one, or none.
    pub since: Time,
    /// The version of the node's local controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How many objects and credentials the node should hold.
    pub assigned: i64,
    /// How many changes it has not acknowledged, deletions included.
    pub unacknowledged: i64,
    /// Since when the oldest of those waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_unacknowledged: Option<Time>,
    /// What waits in the node's outbox, to within half, where the node is connected and tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outbox: Option<Outbox>,
    /// Milliseconds from a ping to its answer, to within half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_milliseconds: Option<i64>,
}

/// What waits in the outbox of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Outbox {
    /// Reports.
    pub messages: i64,
    /// Their bytes.
    pub bytes: i64,
}
