//! How a connection begins and ends.
//!
//! Decides what the node says of itself first, what it says last, and when it dials again.

use std::time::Duration;

use super::{Connection, Phase, Session, Stage};
use crate::{
    limits,
    message::{Hello, RefusedReason, Upstream},
    node::{Identity, Output, Reconnect},
};

/// Why the session closes a connection.
pub(super) struct Closing {
    pub(super) cause: String,
    pub(super) refuse: Option<RefusedReason>,
}

impl Closing {
    pub(super) fn because(cause: impl Into<String>) -> Self {
        Self {
            cause: cause.into(),
            refuse: None,
        }
    }

    pub(super) fn violation(cause: impl Into<String>) -> Self {
        Self {
            cause: cause.into(),
            refuse: Some(RefusedReason::Violation),
        }
    }
}

impl Session {
    pub(super) fn connected(&mut self, now: Duration, out: &mut Vec<Output>) {
        let Identity { node, boot, agent } = self.identity.clone();
        let stage = Stage::Greeting {
            until: now + limits::FIRST_MESSAGE,
        };
        self.phase = Phase::Connected(Connection {
            stage,
            heard: now,
            ping_at: now + limits::PING_AFTER,
        });
        out.push(Output::Send(Upstream::Hello(Hello {
            node,
            boot,
            protocol: limits::PROTOCOL,
            agent,
            stored: self.position.clone(),
            holds: self.holds,
            window: Some(self.window),
        })));
    }

    pub(super) fn disconnected(&mut self, now: Duration, jitter: f64, cause: String) {
        let up_since = match &self.phase {
            Phase::Connected(Connection {
                stage: Stage::Live { since, .. },
                ..
            }) => Some(*since),
            Phase::Closing { up_since } => *up_since,
            Phase::Waiting { .. } | Phase::Dialling | Phase::Connected(_) => None,
        };
        // Why we closed says more than that the connection then ended.
        if !matches!(self.phase, Phase::Closing { .. }) {
            self.cause = Some(cause);
        }
        let wait = self
            .reconnect
            .next(up_since.map(|since| now.saturating_sub(since)), jitter);
        self.phase = Phase::Waiting { until: now + wait };
    }

    /// A session that is up stays; the next one is begun with what is new.
    pub(super) fn identity_changed(&mut self, now: Duration) {
        match &mut self.phase {
            Phase::Waiting { until } => {
                *until = now;
                self.reconnect = Reconnect::default();
            }
            Phase::Connected(Connection {
                stage: Stage::Live { .. },
                ..
            }) => {}
            // Begun with what was before.
            Phase::Dialling | Phase::Connected(_) | Phase::Closing { .. } => self.reconnect.anew(),
        }
    }

    pub(super) fn close(&mut self, closing: Closing, out: &mut Vec<Output>) {
        let Closing { cause, refuse } = closing;
        let Phase::Connected(connection) = &self.phase else {
            self.cause = Some(cause);
            return;
        };
        let up_since = match connection.stage {
            Stage::Live { since, .. } => Some(since),
            Stage::Greeting { .. } | Stage::Digesting { .. } => None,
        };
        if let Some(reason) = refuse {
            out.push(Output::Send(Upstream::Refused {
                reason,
                hint: cause.clone(),
            }));
        }
        out.push(Output::Close);
        self.cause = Some(cause);
        self.phase = Phase::Closing { up_since };
    }
}
