//! How a session ends that the manager ends: the frame that says why, and the connection's end.

use super::event::{End, Output};
use crate::message::{Downstream, RefusedReason};

/// Why a connection is given up.
pub(super) struct Closing {
    end: End,
    cause: String,
}

impl Closing {
    pub(super) fn new(end: End, cause: impl Into<String>) -> Self {
        Self {
            end,
            cause: cause.into(),
        }
    }

    pub(super) fn violation(cause: impl Into<String>) -> Self {
        Self::new(End::Violation, cause)
    }

    pub(super) fn behind(cause: impl Into<String>) -> Self {
        Self::new(End::Behind, cause)
    }

    /// The last frames of the connection.
    pub(super) fn outputs(self) -> impl Iterator<Item = Output> {
        let Self { end, cause } = self;
        let refused = |reason| Downstream::Refused {
            reason,
            hint: cause.clone(),
        };
        let frame = match end {
            End::Silent | End::RefusedByNode => None,
            End::Replaced => Some(Downstream::Replaced {}),
            End::Restarting(after) => Some(Downstream::Restarting {
                reconnect_after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
            }),
            End::Violation => Some(refused(RefusedReason::Violation)),
            End::Behind => Some(refused(RefusedReason::Behind)),
        };
        frame
            .map(Output::Send)
            .into_iter()
            .chain([Output::Close { end, cause }])
    }
}
