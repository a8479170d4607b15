//! What nodes report upstream, and what it changes in a status.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::ObjectKind;

/// One report of a node about one resource; the engine has checked that the resource is the one meant (name and uid).
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The node that reports.
    pub node: String,
    /// What it says.
    pub payload: Payload,
}

/// What a report says.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// A worker's message to its local controller, forwarded as it came.
    Worker(Box<WorkerMessage>),
    /// The samples of a Dataset, counted on the node that holds it.
    Samples(u64),
    /// A Dataset that cannot be counted, and why.
    SamplesFailed(String),
}

impl Payload {
    /// What it says, in few words, for whoever has to be told that it makes no sense.
    pub(crate) fn title(&self) -> &'static str {
        match self {
            Self::Worker(_) => "a worker's message",
            Self::Samples(_) => "a count of samples",
            Self::SamplesFailed(_) => "a failed count of samples",
        }
    }
}

/// The body of `POST /sedna/workers/{name}/info`: the contract of Sedna's worker library.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerMessage {
    /// The worker's `WORKER_NAME`.
    pub name: String,
    /// The resource's namespace.
    pub namespace: String,
    /// The resource's name.
    pub owner_name: String,
    /// The resource's kind, lower-case.
    pub owner_kind: String,
    /// The phase: train, eval, inference, …
    pub kind: String,
    /// running, completed, failed, …
    pub status: String,
    /// What the phase reports of itself: counts, times, the current round. `null` counts as nothing.
    #[serde(deserialize_with = "null_as_default")]
    pub owner_info: Map<String, Value>,
    /// The models that came of it: `{format, url, metrics}`.
    #[serde(deserialize_with = "null_as_default")]
    pub results: Vec<Map<String, Value>>,
}

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The status field that says how far each node was heard. No kind looks at it: whoever writes what nodes report keeps it.
pub const REPORTED_UP_TO: &str = "reportedUpTo";

/// A change of the reported part of a status, written by the nodes' field manager.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusChange {
    /// The kind whose status changes: the resource's own, or a Model that it names.
    pub kind: ObjectKind,
    /// The object's name, in the resource's namespace.
    pub name: String,
    /// The reported fields, whole, but for [`REPORTED_UP_TO`]: `{"metrics": […]}`.
    pub status: Map<String, Value>,
}

impl StatusChange {
    /// The change of a single reported field.
    pub(crate) fn field(kind: ObjectKind, name: impl Into<String>, field: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or_default();
        Self {
            kind,
            name: name.into(),
            status: Map::from_iter([(field.to_owned(), value)]),
        }
    }
}

/// Why a report is refused for good: sending it again would change nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The payload makes no sense for this kind.
    #[error("a {kind} takes no report of this form: {found}")]
    Form {
        /// The resource's kind.
        kind: &'static str,
        /// What was found.
        found: String,
    },
    /// Another node has to report on it.
    #[error("node {found} reports, but the resource is on node {right}")]
    Node {
        /// Who reports.
        found: String,
        /// Who should.
        right: String,
    },
    /// A figure makes no sense.
    #[error("{field} makes no sense: {found}; {right}")]
    Value {
        /// The field's path in the message.
        field: &'static str,
        /// What was found.
        found: String,
        /// What would be right.
        right: &'static str,
    },
}

impl Refusal {
    /// The payload is of a form that this kind does not take.
    pub(crate) fn form(kind: ObjectKind, payload: &Payload) -> Self {
        Self::Form {
            kind: kind.kind,
            found: payload.title().to_owned(),
        }
    }
}
