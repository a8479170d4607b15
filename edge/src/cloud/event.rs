//! What goes into a session of the manager and what comes out of it, as plain data.

use std::time::Duration;

use crate::{
    message::{Downstream, MessageError, Received, Upstream},
    object::ItemKey,
    report::Report,
};

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// [`super::Session::wake_at`] has come, or the node's set has changed, a report was carried out, or another session of the node has begun.
    Wake,
    /// A frame has come, read with [`Upstream::decode`].
    Frame(Result<Received<Upstream>, MessageError>),
    /// A ping or a pong has come.
    Heard,
    /// The manager is about to stop, or sheds load.
    Drain {
        /// When the node is to dial again.
        reconnect_after: Duration,
    },
}

/// What the caller is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send this frame.
    Send(Downstream),
    /// Send a ping.
    Ping,
    /// Close the connection; the session is over.
    Close {
        /// Why, for the log.
        cause: String,
    },
    /// Carry this report out, then tell [`super::Node::finish_report`] what became of it.
    Report(Report),
    /// The node has stored changes: to be counted.
    Acked {
        /// How many.
        changes: usize,
        /// How long the one that waited longest did, from the change of the set.
        slowest: Duration,
    },
    /// The node has given up so many reports: to be counted and logged.
    Gap {
        /// How many.
        count: u64,
    },
    /// The node holds these in excess, and they may not be deleted yet; whoever learns that one may calls
    /// [`super::NodeObjects::remove`].
    Strays(Vec<ItemKey>),
}
