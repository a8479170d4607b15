//! What a node has to say about a resource, and what becomes of it.
//!
//! Decides how an outbox may treat a report; what it means for a status is decided by the manager's pure code.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Value, value::RawValue};

use crate::{
    object::{Body, ObjectKey},
    tagged::{self, Known, Tagged},
};

/// Something that a node has to say about a resource. It stays in the node's durable outbox until it is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The number in the node's outbox, rising; the first is 1.
    pub seq: u64,
    /// What tells it from any other report, also where the store counts on from a copy of before. Nodes that are older do not
    /// say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ReportId>,
    /// The resource.
    pub key: ObjectKey,
    /// The resource's uid as the node holds it.
    pub uid: String,
    /// When, by the node's clock, which may be wrong.
    pub observed_at: Timestamp,
    /// What.
    pub payload: ReportPayload,
}

/// What a report has from when it was made, and no other has: under one start of a local controller no number is given twice,
/// and of two reports on one resource the later one has the higher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportId {
    /// The start of the node's local controller that made it ([`crate::message::Hello::boot`] of then).
    pub boot: String,
    /// Its number in the outbox then. It keeps this where it gets another [`Report::seq`], because what it is about was not
    /// known yet.
    pub number: u64,
}

/// The name of a start of this name with a store of that name.
pub fn boot(store: &str, start: &str) -> String {
    format!("{store}.{start}")
}

/// The store that a start of this name had: one store, and its copies, count on from start to start. Nodes that are older do not
/// say it.
pub fn store_of(boot: &str) -> Option<&str> {
    boot.rsplit_once('.').map(|(store, _)| store)
}

/// What a report says. Sedna's worker message (the body of `POST /sedna/workers/{name}/info`) travels as it came, so
/// that its meaning is decided in one place, by the manager's pure code; the variant says how the outbox treats it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportPayload {
    /// A worker's message of numbers that replace the last ones (joint inference counts).
    Metrics {
        /// Sedna's worker message.
        message: Body,
    },
    /// A worker's message about a round that it has done.
    Round {
        /// `ownerInfo.currentRound`.
        round: u64,
        /// Sedna's worker message.
        message: Body,
    },
    /// Any other message of a worker: a phase that has begun, completed or failed.
    Event {
        /// Sedna's worker message.
        message: Body,
    },
    /// The samples of a Dataset, counted on this node.
    DatasetSamples {
        /// How many.
        count: u64,
    },
    /// A Dataset that cannot be counted.
    DatasetFailed {
        /// Why, one sentence.
        reason: String,
    },
    /// A payload of a newer node that this manager does not know; it refuses the report.
    #[serde(skip)]
    Unknown {
        /// The variant's name on the wire.
        variant: String,
    },
}

impl ReportPayload {
    /// The message of a worker of this kind of resource (lower-case), which has Sedna's fields: the round of a trainer of a
    /// federated job, the counts of joint inference, or something that happened.
    pub fn of_worker(owner_kind: &str, message: &Value) -> Self {
        let text = |field: &str| message.get(field).and_then(Value::as_str).unwrap_or_default();
        let round = message.pointer("/ownerInfo/currentRound").and_then(Value::as_u64);
        let round = round.filter(|round| *round > 0 && owner_kind == "federatedlearningjob");
        let body = Body::from(message);
        if let Some(round) = round {
            Self::Round { round, message: body }
        } else if text("kind") == "inference" && text("status").is_empty() {
            Self::Metrics { message: body }
        } else {
            Self::Event { message: body }
        }
    }

    /// Whether a newer one about the same resource (and the same worker) makes this one worthless.
    ///
    /// An outbox keeps only the newest of those, and gives them up first when it is full.
    pub fn coalesces(&self) -> bool {
        matches!(
            self,
            Self::Metrics { .. } | Self::DatasetSamples { .. } | Self::DatasetFailed { .. }
        )
    }

    /// The worker's message, where there is one.
    pub fn message(&self) -> Option<&Body> {
        match self {
            Self::Metrics { message } | Self::Round { message, .. } | Self::Event { message } => Some(message),
            Self::DatasetSamples { .. } | Self::DatasetFailed { .. } | Self::Unknown { .. } => None,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KnownPayload {
    Metrics { message: Body },
    Round { round: u64, message: Body },
    Event { message: Body },
    DatasetSamples { count: u64 },
    DatasetFailed { reason: String },
}

impl Tagged for KnownPayload {
    const NAMES: &'static [&'static str] = &["metrics", "round", "event", "dataset-samples", "dataset-failed"];
}

impl<'de> Deserialize<'de> for ReportPayload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Ok(match tagged::read(json.get()).map_err(de::Error::custom)? {
            Known::No(variant) => Self::Unknown { variant },
            Known::Yes(KnownPayload::Metrics { message }) => Self::Metrics { message },
            Known::Yes(KnownPayload::Round { round, message }) => Self::Round { round, message },
            Known::Yes(KnownPayload::Event { message }) => Self::Event { message },
            Known::Yes(KnownPayload::DatasetSamples { count }) => Self::DatasetSamples { count },
            Known::Yes(KnownPayload::DatasetFailed { reason }) => Self::DatasetFailed { reason },
        })
    }
}

/// What became of a report. Either way it leaves the node's outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportResult {
    /// It is in the API server.
    Accepted {},
    /// It is refused for good: sending it again would change nothing.
    Refused {
        /// Why, one sentence.
        reason: String,
    },
}
