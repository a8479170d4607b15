//! The frames: one enum per direction, each frame one JSON text message `{"variant": {…}}`.
//!
//! What may be said when is decided by the sessions.

mod decode;
mod fit;

use serde::{Deserialize, Serialize};

pub(crate) use decode::depth;
pub use decode::{MessageError, Received};
use decode::{check_row, decode};

use crate::{
    digest::ChunkHash,
    limits,
    object::{Credential, ItemKey, Object, Row},
    position::{Epoch, Position},
    report::{Report, ReportResult},
    tagged::Tagged,
};

/// From the manager to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Downstream {
    /// The answer to a hello.
    Welcome {
        /// The uid of the cluster that the manager speaks for.
        cluster: String,
        /// Which run of the manager this is.
        epoch: Epoch,
        /// How the node's store is brought up to date.
        start: Start,
        /// How many reports a second the node sends at most, once it has sent [`limits::REPORT_WINDOW`] at once; as fast
        /// as they are answered where nothing is said, as older managers do not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reports_per_second: Option<u32>,
    },
    /// The digest is done: from here on the node's store is counted by this epoch, from this version.
    Synced {
        /// The version that the following frames count on from.
        version: u64,
    },
    /// The node should hold this object.
    Put {
        /// The version of the node's set that this makes.
        version: u64,
        /// The object.
        object: Object,
    },
    /// The node should hold this credential. Only sent over mTLS or loopback.
    PutCredential {
        /// The version of the node's set that this makes.
        version: u64,
        /// The credential.
        credential: Credential,
    },
    /// The node should not hold what is under this key.
    Delete {
        /// The version of the node's set that this makes.
        version: u64,
        /// The key.
        key: ItemKey,
    },
    /// What became of a report or a gap.
    ReportResult {
        /// Its number.
        seq: u64,
        /// What became of it.
        result: ReportResult,
    },
    /// A report cannot be carried out now: the node keeps it and sends it again.
    ReportLater {
        /// Its number.
        seq: u64,
        /// When to send it again, in milliseconds.
        retry_after_ms: u64,
    },
    /// The manager is about to close the connection, because it restarts or has too many at once.
    Restarting {
        /// When to dial again, in milliseconds: spread over the nodes, so that they do not return at once.
        reconnect_after_ms: u64,
    },
    /// Another session of this node has taken the place of this one.
    Replaced {},
    /// The manager does not go on with this session.
    Refused {
        /// Why, for programs.
        reason: RefusedReason,
        /// Why and what to do, for people.
        hint: String,
    },
}

/// How a session brings the node's store up to date.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// The node's position is counted by this epoch: what is newer follows.
    Resume {},
    /// The manager does not know what the node holds: the node answers with [`Upstream::Rows`].
    Digest {
        /// The hashes of the chunks of what the node should hold; their number is a power of two.
        chunks: Vec<ChunkHash>,
    },
}

/// From a node to the manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Upstream {
    /// The first frame of a session.
    Hello(Hello),
    /// The answer to a digest: what the node holds in the chunks that differ.
    Rows {
        /// The chunks whose hashes differ, each named in one of the frames.
        chunks: Vec<u32>,
        /// What the node holds in the chunks named so far.
        rows: Vec<Row>,
        /// Whether another frame of this answer follows.
        more: bool,
    },
    /// Every frame up to this version is in the node's durable store.
    Ack {
        /// The version.
        version: u64,
    },
    /// A report from the node's outbox.
    Report {
        /// Every report below this number is settled: the manager need not remember its answer.
        settled: u64,
        /// The last report on the same resource before this one that has no answer yet. Where the manager has neither it nor
        /// its answer any more, because it was put off, this one comes too early: it would overtake.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<u64>,
        /// The report.
        report: Report,
    },
    /// Reports were given up because the outbox was full, or they were too old. Answered as a report is.
    Gap {
        /// Its number, counted with the reports'.
        seq: u64,
        /// How many reports were given up.
        count: u64,
    },
    /// How much waits in the node's outbox, now and then. A manager that does not know this frame leaves it out.
    Outbox(OutboxDepth),
    /// The node does not listen to this manager.
    Refused {
        /// Why, for programs.
        reason: RefusedReason,
        /// Why and what to do, for people.
        hint: String,
    },
}

/// What waits in a node's outbox, counts of Datasets not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxDepth {
    /// Reports.
    pub messages: u64,
    /// Their bytes, as the node stores them.
    pub bytes: u64,
}

/// The first frame of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The node's name. Over mTLS it has to be the certificate's.
    pub node: String,
    /// A name that is unique to this start of the node's local controller; report numbers are never used twice under it. It begins
    /// with that of the node's store ([`crate::store_of`]).
    pub boot: String,
    /// [`limits::PROTOCOL`] of the node.
    pub protocol: u32,
    /// The version of the node's local controller.
    pub agent: String,
    /// Where the node's store stands; none for a new store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<Position>,
    /// How many items the store holds.
    pub holds: u64,
    /// How many changes it takes before one is acknowledged; [`limits::WINDOW_UNSAID`] where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
}

/// Why one side does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusedReason {
    /// The node's name is not one, or not the one that the node has proven.
    Node,
    /// The peer speaks a version of the protocol that we cannot bridge.
    Protocol,
    /// The peer broke the protocol or a limit of it.
    Violation,
    /// The manager speaks for another cluster.
    OtherCluster,
    /// The manager is deposed.
    Deposed,
    /// The node's store does not follow: it did not acknowledge in time, or too much has gathered for it.
    Behind,
    /// A reason of a newer peer.
    #[serde(other)]
    Unknown,
}

impl Downstream {
    /// The variant's name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Welcome { .. } => "welcome",
            Self::Synced { .. } => "synced",
            Self::Put { .. } => "put",
            Self::PutCredential { .. } => "put-credential",
            Self::Delete { .. } => "delete",
            Self::ReportResult { .. } => "report-result",
            Self::ReportLater { .. } => "report-later",
            Self::Restarting { .. } => "restarting",
            Self::Replaced {} => "replaced",
            Self::Refused { .. } => "refused",
        }
    }

    /// The frame's text.
    pub fn encode(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Reads a frame.
    pub fn decode(text: &str) -> Result<Received<Self>, MessageError> {
        decode(text, limits::MAX_DOWNSTREAM, |message: &Self| match message {
            Self::Put { object, .. } => Ok(object.key.check()?),
            Self::PutCredential { credential, .. } => Ok(credential.key().check()?),
            Self::Delete { key, .. } => Ok(key.check()?),
            Self::Welcome { .. }
            | Self::Synced { .. }
            | Self::ReportResult { .. }
            | Self::ReportLater { .. }
            | Self::Restarting { .. }
            | Self::Replaced {}
            | Self::Refused { .. } => Ok(()),
        })
    }
}

impl Tagged for Downstream {
    const NAMES: &'static [&'static str] = &[
        "welcome",
        "synced",
        "put",
        "put-credential",
        "delete",
        "report-result",
        "report-later",
        "restarting",
        "replaced",
        "refused",
    ];
}

impl Upstream {
    /// The variant's name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Rows { .. } => "rows",
            Self::Ack { .. } => "ack",
            Self::Report { .. } => "report",
            Self::Gap { .. } => "gap",
            Self::Outbox(_) => "outbox",
            Self::Refused { .. } => "refused",
        }
    }

    /// The frame's text.
    pub fn encode(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Reads a frame.
    pub fn decode(text: &str) -> Result<Received<Self>, MessageError> {
        decode(text, limits::MAX_UPSTREAM, |message: &Self| match message {
            Self::Rows { rows, .. } => rows.iter().try_for_each(check_row),
            // What a report is about is judged with whether the node may report on it: one that is refused must not end
            // the session, since the node would send it again with the next.
            Self::Report { .. }
            | Self::Hello(_)
            | Self::Ack { .. }
            | Self::Gap { .. }
            | Self::Outbox(_)
            | Self::Refused { .. } => Ok(()),
        })
    }
}

impl Tagged for Upstream {
    const NAMES: &'static [&'static str] = &["hello", "rows", "ack", "report", "gap", "outbox", "refused"];
}

#[cfg(test)]
mod tests;
