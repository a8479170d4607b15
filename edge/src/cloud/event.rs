//! What goes into a session of the manager and what comes out of it, as plain data.

use std::time::Duration;

use super::Denial;
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
    /// A ping has come.
    Heard,
    /// The answer to [`Output::Ping`] has come.
    Pong,
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
        /// What ended it.
        end: End,
        /// Why, for the log.
        cause: String,
    },
    /// Carry this report out, then tell [`super::Node::finish_report`] what became of it.
    Report(Report),
    /// A report was refused, and the node is told so: to be counted and logged.
    Denied(Denial),
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

/// What ended a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Another session of the node.
    Replaced,
    /// The manager stops, or sheds load: the node is to dial again after so long.
    Restarting(Duration),
    /// The node broke the protocol or a limit of it.
    Violation,
    /// The node's store does not follow.
    Behind,
    /// Nothing was heard any more: nobody is there to be told.
    Silent,
    /// The node does not listen to this manager.
    RefusedByNode,
}

impl End {
    /// One word, for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Replaced => "replaced",
            Self::Restarting(_) => "restarting",
            Self::Violation => "violation",
            Self::Behind => "behind",
            Self::Silent => "silent",
            Self::RefusedByNode => "refused_by_node",
        }
    }
}
