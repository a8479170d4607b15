//! The node's session, over all its connections.
//!
//! ```text
//!            Tick, nothing being stored        Connected            Welcome
//!   Waiting ───────────────────────────▶ Dialling ───────▶ Greeting ───────┬─▶ Live
//!      ▲                                                                   │    ▲
//!      │ Disconnected, from anywhere                               digest  ▼    │ Synced
//!      └────────────────────────────────── Closing ◀── anything wrong ── Digesting
//! ```
//!
//! Decides which manager is listened to, in which order changes reach the store, when they are acknowledged, which
//! reports are in flight and when the node dials again. It never touches the store, the outbox or a socket: the caller
//! carries out each [`Output`] in order and feeds back what came of it.

mod connections;
mod frames;
mod storing;

use std::time::Duration;

use super::{
    event::{Asked, Identity, Input, Output, State},
    inbox::Inbox,
    outbox::Window,
    reconnect::Reconnect,
};
use crate::{
    digest::ChunkHash,
    limits,
    message::{OutboxDepth, Upstream},
    position::{Position, Retired},
};
use connections::Closing;

/// The state machine. Times are counted from any fixed moment, by a clock that never goes back.
#[derive(Debug)]
pub struct Session {
    identity: Identity,
    position: Option<Position>,
    retired: Retired,
    holds: u64,
    /// How many changes it takes before one is acknowledged.
    window: u32,
    phase: Phase,
    reconnect: Reconnect,
    /// The position that the batch being stored leads to.
    storing: Option<Position>,
    reading_rows: bool,
    outbox: Window,
    /// When it is to be told how much waits there, in a session that is live.
    weigh_at: Duration,
    /// What this session was told of that.
    told: Option<OutboxDepth>,
    cause: Option<String>,
    unknown: u64,
}

#[derive(Debug)]
enum Phase {
    Waiting { until: Duration },
    Dialling,
    Connected(Connection),
    Closing { up_since: Option<Duration> },
}

#[derive(Debug)]
struct Connection {
    stage: Stage,
    heard: Duration,
    ping_at: Duration,
}

#[derive(Debug)]
enum Stage {
    Greeting {
        until: Duration,
    },
    Digesting {
        start: Position,
        chunks: Vec<ChunkHash>,
        until: Duration,
        asked: bool,
    },
    Live {
        base: Position,
        inbox: Inbox,
        since: Duration,
    },
}

impl Session {
    /// A session of a node whose store stands at `position` and holds so many items. It dials at once.
    pub fn new(identity: Identity, position: Option<Position>, holds: u64) -> Self {
        Self {
            identity,
            position,
            retired: Retired::default(),
            holds,
            window: limits::WINDOW_FRAMES,
            phase: Phase::Waiting { until: Duration::ZERO },
            reconnect: Reconnect::default(),
            storing: None,
            reading_rows: false,
            outbox: Window::default(),
            weigh_at: Duration::ZERO,
            told: None,
            cause: None,
            unknown: 0,
        }
    }

    /// The same, which takes no more than so many changes before one is acknowledged.
    #[must_use]
    pub fn taking(self, window: u32) -> Self {
        Self { window, ..self }
    }

    /// How the link stands.
    pub fn state(&self) -> State {
        match &self.phase {
            Phase::Waiting { until } => State::Waiting {
                until: *until,
                cause: self.cause.clone(),
            },
            Phase::Connected(Connection {
                stage: Stage::Live { .. },
                ..
            }) => State::Live,
            Phase::Dialling | Phase::Connected(_) | Phase::Closing { .. } => State::Connecting,
        }
    }

    /// Where the store stands.
    pub fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    /// Whether nothing is to be read from the manager until something was stored: what it has sent waits in the socket
    /// meanwhile, and costs the node no memory.
    pub fn is_behind(&self) -> bool {
        let Phase::Connected(Connection {
            stage: Stage::Live { inbox, .. },
            ..
        }) = &self.phase
        else {
            return false;
        };
        self.storing.is_some() && inbox.is_full()
    }

    /// How many frames of unknown variants have come.
    pub fn unknown_frames(&self) -> u64 {
        self.unknown
    }

    /// When to feed the next [`Input::Tick`], if nothing else comes before.
    pub fn wake_at(&self) -> Option<Duration> {
        match &self.phase {
            // While something is being stored, its end wakes us.
            Phase::Waiting { until } => self.storing.is_none().then_some(*until),
            Phase::Dialling | Phase::Closing { .. } => None,
            Phase::Connected(Connection { stage, heard, ping_at }) => {
                let idle = (*heard + limits::IDLE).min(*ping_at);
                Some(match stage {
                    Stage::Greeting { until } | Stage::Digesting { until, .. } => idle.min(*until),
                    Stage::Live { .. } => {
                        let idle = idle.min(self.weigh_at);
                        self.outbox.wake_at().map_or(idle, |at| idle.min(at))
                    }
                })
            }
        }
    }

    /// Takes what happened at `now`; what to do, in order.
    pub fn handle(&mut self, now: Duration, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        let went = match input {
            Input::Tick => self.tick(now, &mut out),
            Input::Connected => {
                self.connected(now, &mut out);
                Ok(())
            }
            Input::Disconnected { jitter, cause } => {
                self.disconnected(now, jitter, cause);
                Ok(())
            }
            Input::IdentityChanged => {
                self.identity_changed(now);
                Ok(())
            }
            Input::Frame(frame) => self.frame(now, frame, &mut out),
            Input::Heard => {
                self.heard(now);
                Ok(())
            }
            Input::Stored { holds } => {
                self.stored(now, holds, &mut out);
                Ok(())
            }
            Input::StoreFailed { asked, cause } => {
                match asked {
                    Asked::Store => self.storing = None,
                    Asked::Rows => self.reading_rows = false,
                    Asked::Fetch => self.outbox.read_failed(),
                }
                Err(Closing::because(format!("the store failed: {cause}")))
            }
            Input::Rows(rows) => {
                self.rows(&rows, &mut out);
                Ok(())
            }
            Input::OutboxGrew => {
                self.outbox.grew();
                Ok(())
            }
            Input::Weighed(depth) => {
                if self.is_live() && depth.is_some() && depth != self.told {
                    self.told = depth;
                    out.extend(depth.map(|depth| Output::Send(Upstream::Outbox(depth))));
                }
                Ok(())
            }
            Input::Fetched(outgoing) => {
                let frames = self.outbox.read(outgoing);
                if self.is_live() {
                    out.extend(frames.into_iter().map(Output::Send));
                }
                Ok(())
            }
        };
        if let Err(closing) = went {
            self.close(closing, &mut out);
        }
        self.pump(now, &mut out);
        out
    }

    fn is_live(&self) -> bool {
        matches!(
            &self.phase,
            Phase::Connected(Connection {
                stage: Stage::Live { .. },
                ..
            })
        )
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<Output>) -> Result<(), Closing> {
        let is_behind = self.is_behind();
        match &mut self.phase {
            Phase::Waiting { until } if now >= *until && self.storing.is_none() => {
                self.phase = Phase::Dialling;
                out.push(Output::Dial);
            }
            Phase::Connected(connection) => {
                if is_behind {
                    // It is not the manager who is silent.
                    connection.heard = now;
                }
                if now >= connection.heard + limits::IDLE {
                    return Err(Closing::because("the manager has fallen silent"));
                }
                match &connection.stage {
                    Stage::Greeting { until } if now >= *until => {
                        return Err(Closing::because("the manager did not answer the hello"));
                    }
                    Stage::Digesting { until, .. } if now >= *until => {
                        return Err(Closing::because("the manager did not finish the digest"));
                    }
                    Stage::Greeting { .. } | Stage::Digesting { .. } | Stage::Live { .. } => {}
                }
                if now >= connection.ping_at {
                    connection.ping_at = now + limits::PING_AFTER;
                    out.push(Output::Ping);
                }
                if matches!(connection.stage, Stage::Live { .. }) && now >= self.weigh_at {
                    self.weigh_at = now + limits::OUTBOX_EVERY;
                    out.push(Output::Weigh);
                }
            }
            Phase::Waiting { .. } | Phase::Dialling | Phase::Closing { .. } => {}
        }
        Ok(())
    }

    fn heard(&mut self, now: Duration) {
        if let Phase::Connected(connection) = &mut self.phase {
            connection.heard = now;
            connection.ping_at = now + limits::PING_AFTER;
        }
    }
}
