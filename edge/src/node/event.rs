//! What goes into a node's session and what comes out of it, as plain data.

use std::time::Duration;

use super::store::{Batch, Outgoing, Wanted};
use crate::{
    message::{Downstream, MessageError, OutboxDepth, Received, Upstream},
    object::Row,
    report::ReportResult,
};

/// Who the node is; see [`crate::message::Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// [`crate::message::Hello::node`].
    pub node: String,
    /// [`crate::message::Hello::boot`].
    pub boot: String,
    /// [`crate::message::Hello::agent`].
    pub agent: String,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// [`super::Session::wake_at`] has come.
    Tick,
    /// The dial that was asked for has succeeded.
    Connected,
    /// The dial has failed, or the connection has ended from either side.
    Disconnected {
        /// A random number from [0, 1), for the wait before the next dial.
        jitter: f64,
        /// What ended it, for whoever looks at the node.
        cause: String,
    },
    /// The node proves by something else who it is: what was refused may be taken now.
    IdentityChanged,
    /// A frame has come, read with [`Downstream::decode`].
    Frame(Result<Received<Downstream>, MessageError>),
    /// A ping or a pong has come.
    Heard,
    /// The batch of the last [`Output::Store`] is durable.
    Stored {
        /// How many items the store holds now.
        holds: u64,
    },
    /// The store could not do what it was asked for. A batch that was not stored as a whole was not stored at all.
    StoreFailed {
        /// What it was asked for.
        asked: Asked,
        /// Why, for whoever looks at the node.
        cause: String,
    },
    /// The rows that [`Output::ReadRows`] asked for: all that the store holds.
    Rows(Vec<Row>),
    /// Something was put into the outbox.
    OutboxGrew,
    /// What [`Output::Fetch`] asked for.
    Fetched(Vec<Outgoing>),
    /// What [`Output::Weigh`] asked for; nothing where it cannot be known.
    Weighed(Option<OutboxDepth>),
}

/// What a store that failed was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// [`Output::Store`].
    Store,
    /// [`Output::ReadRows`].
    Rows,
    /// [`Output::Fetch`].
    Fetch,
}

/// What the caller is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Connect to the manager; then [`Input::Connected`] or [`Input::Disconnected`].
    Dial,
    /// Send this frame. Where that fails, the connection has ended.
    Send(Upstream),
    /// Send a ping.
    Ping,
    /// Close the connection; then [`Input::Disconnected`].
    Close,
    /// Store this durably; then [`Input::Stored`] or [`Input::StoreFailed`]. Never asked for while one is under way.
    Store(Batch),
    /// Read the rows of all that the store holds; then [`Input::Rows`]. Never asked for while a batch is being stored.
    ReadRows,
    /// Read from the outbox, in order; then [`Input::Fetched`], with nothing where there is nothing.
    Fetch(Wanted),
    /// Find out how much waits in the outbox; then [`Input::Weighed`].
    Weigh,
    /// Remove this from the outbox, where it still is there: the manager has answered it.
    Settle {
        /// Its number.
        seq: u64,
        /// What became of it.
        result: ReportResult,
    },
}

/// How the link stands, for health endpoints and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not connected.
    Waiting {
        /// When the node dials again.
        until: Duration,
        /// What ended the last connection; none before the first.
        cause: Option<String>,
    },
    /// Connecting, or finding out what differs.
    Connecting,
    /// Connected; what comes is stored.
    Live,
}
