//! What the bench and its process of nodes say to each other: one JSON object a line, over the latter's stdin and stdout.

use std::{collections::BTreeMap, net::SocketAddr, ops::Range, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

/// What the nodes are to do. Each order has one answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// Have these nodes connect, so many in a second; those that were there before go on with what they have stored.
    Start {
        /// Where the manager listens.
        manager: SocketAddr,
        /// The folder of the authority that their certificates come from; without one they connect in plain.
        authority: Option<PathBuf>,
        /// Their numbers.
        nodes: Range<u32>,
        /// How many of them in a second.
        per_second: u32,
    },
    /// Make the certificates of these nodes now, rather than when they connect first.
    Certify {
        /// The folder of the authority.
        authority: PathBuf,
        /// The nodes' numbers.
        nodes: Range<u32>,
    },
    /// End all sessions. What nodes have stored stays.
    Stop,
    /// Keep a copy of what each node has stored.
    Copy,
    /// Put those copies back in the place of what nodes have stored since; they have no sessions then.
    PutBack,
    /// Wait for these generations of objects, by their names, beside those that are waited for already.
    Expect(BTreeMap<String, i64>),
    /// Say how it stands.
    Look,
    /// Say what was stored when, since this was asked last.
    Stored,
    /// Say what is held.
    Held,
}

/// What the nodes answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// To whatever has no other answer: it is done.
    Done,
    /// To [`Order::Look`].
    Looked(Looked),
    /// To [`Order::Stored`]: by object, in the order in which it was stored and acknowledged.
    Stored(BTreeMap<String, Vec<Stored>>),
    /// To [`Order::Held`].
    Held(Vec<Held>),
    /// It cannot be done.
    Failed(String),
}

/// How it stands with all nodes together; totals since they were first started where nothing else is said.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Looked {
    /// Nodes that have a session now.
    pub(super) live: u32,
    /// Objects whose expected generation is not stored yet.
    pub(super) missing: usize,
    /// Bodies that came.
    pub(super) bodies: u64,
    /// Deletions that came.
    pub(super) deletions: u64,
    /// Versions of an object that came after a newer one of it.
    pub(super) backwards: u64,
    /// Bytes that nodes received, below the WebSocket and above TLS.
    pub(super) received: u64,
    /// Bytes that they sent.
    pub(super) sent: u64,
    /// Connections that were asked for.
    pub(super) dials: u64,
}

/// A version of an object was stored, and acknowledged at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    /// The generation of the resource.
    pub(super) generation: i64,
    /// When, by [`super::clock`].
    pub(super) at: Duration,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    /// The node.
    pub(super) node: String,
    /// The object's name.
    pub(super) name: String,
    /// The resource's uid.
    pub(super) uid: String,
    /// The resource's generation.
    pub(super) generation: i64,
}

/// What a node is called.
pub(super) fn node(number: u32) -> String {
    format!("bench-{number:05}")
}
