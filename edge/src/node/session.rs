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

use std::time::Duration;

use super::{
    event::{Asked, Identity, Input, Output, State},
    inbox::Inbox,
    outbox::Window,
    reconnect::Reconnect,
    store::{Batch, Change},
};
use crate::{
    digest::{self, ChunkHash},
    limits,
    message::{Downstream, Hello, MessageError, OutboxDepth, Received, RefusedReason, Start, Upstream},
    object::Row,
    position::{Epoch, Fenced, Position, Retired, Standing},
};

/// The state machine. Times are counted from any fixed moment, by a clock that never goes back.
#[derive(Debug)]
pub struct Session {
    identity: Identity,
    position: Option<Position>,
    retired: Retired,
    holds: u64,
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

/// Why the session closes a connection.
struct Closing {
    cause: String,
    refuse: Option<RefusedReason>,
}

impl Closing {
    fn because(cause: impl Into<String>) -> Self {
        Self {
            cause: cause.into(),
            refuse: None,
        }
    }

    fn violation(cause: impl Into<String>) -> Self {
        Self {
            cause: cause.into(),
            refuse: Some(RefusedReason::Violation),
        }
    }
}

impl Session {
    /// A session of a node whose store stands at `position` and holds so many items. It dials at once.
    pub fn new(identity: Identity, position: Option<Position>, holds: u64) -> Self {
        Self {
            identity,
            position,
            retired: Retired::default(),
            holds,
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
        if self.is_behind() {
            // It is not the manager who is silent.
            self.heard(now);
        }
        match &mut self.phase {
            Phase::Waiting { until } if now >= *until && self.storing.is_none() => {
                self.phase = Phase::Dialling;
                out.push(Output::Dial);
            }
            Phase::Connected(connection) => {
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

    fn connected(&mut self, now: Duration, out: &mut Vec<Output>) {
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
        })));
    }

    fn disconnected(&mut self, now: Duration, jitter: f64, cause: String) {
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
    fn identity_changed(&mut self, now: Duration) {
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

    fn heard(&mut self, now: Duration) {
        if let Phase::Connected(connection) = &mut self.phase {
            connection.heard = now;
            connection.ping_at = now + limits::PING_AFTER;
        }
    }

    fn frame(
        &mut self,
        now: Duration,
        frame: Result<Received<Downstream>, MessageError>,
        out: &mut Vec<Output>,
    ) -> Result<(), Closing> {
        self.heard(now);
        let Phase::Connected(Connection { stage, .. }) = &mut self.phase else {
            return Ok(());
        };
        let message = match frame {
            Ok(Received::Message(message)) => message,
            Ok(Received::Unknown(_)) => {
                self.unknown += 1;
                return Ok(());
            }
            Err(error) => return Err(Closing::violation(error.to_string())),
        };
        match (message, stage) {
            (
                Downstream::Welcome {
                    cluster,
                    epoch,
                    start,
                    reports_per_second,
                },
                Stage::Greeting { .. },
            ) => {
                self.outbox.pace(reports_per_second);
                return self.welcome(now, &cluster, &epoch, start);
            }
            (Downstream::Synced { version }, Stage::Digesting { start, asked: true, .. }) if !self.reading_rows => {
                let mut inbox = Inbox::default();
                inbox.rebase(version);
                let base = start.clone();
                self.live(now, base, inbox);
            }
            (Downstream::Put { version, object }, Stage::Live { inbox, .. }) => {
                inbox.push(version, Change::Put(object)).map_err(Closing::violation)?;
            }
            (Downstream::PutCredential { version, credential }, Stage::Live { inbox, .. }) => {
                inbox
                    .push(version, Change::PutCredential(credential))
                    .map_err(Closing::violation)?;
            }
            (Downstream::Delete { version, key }, Stage::Live { inbox, .. }) => {
                inbox.push(version, Change::Delete(key)).map_err(Closing::violation)?;
            }
            (Downstream::ReportResult { seq, result }, Stage::Live { .. }) => {
                if self.outbox.answered(seq) {
                    out.push(Output::Settle { seq, result });
                }
            }
            (Downstream::ReportLater { seq, retry_after_ms }, Stage::Live { .. }) => {
                let (least, most) = limits::REPORT_RETRY;
                self.outbox
                    .later(seq, now + Duration::from_millis(retry_after_ms).clamp(least, most));
            }
            (Downstream::Restarting { reconnect_after_ms }, _) => {
                self.reconnect.after(Duration::from_millis(reconnect_after_ms));
                return Err(Closing::because("the manager asked to come back later"));
            }
            (Downstream::Replaced {}, _) => {
                self.reconnect.slowly();
                return Err(Closing::because("another session of this node's name has taken over"));
            }
            (Downstream::Refused { reason: _, hint }, _) => {
                self.reconnect.slowly();
                let hint: String = hint.chars().take(limits::HINT).collect();
                return Err(Closing::because(format!("the manager refused: {hint}")));
            }
            (message, _) => {
                return Err(Closing::violation(format!(
                    "a {} frame is out of place here",
                    message.name()
                )));
            }
        }
        Ok(())
    }

    fn welcome(&mut self, now: Duration, cluster: &str, epoch: &Epoch, start: Start) -> Result<(), Closing> {
        let standing = self.judge(now, cluster, epoch).map_err(|fenced| {
            self.reconnect.slowly();
            let reason = match fenced {
                Fenced::OtherCluster { .. } => RefusedReason::OtherCluster,
                Fenced::Deposed { .. } => RefusedReason::Deposed,
            };
            Closing {
                cause: fenced.to_string(),
                refuse: Some(reason),
            }
        })?;
        match (start, &self.position, standing) {
            (Start::Resume {}, Some(position), Some(Standing::Same)) => {
                let (base, inbox) = (position.clone(), Inbox::starting_at(position.version));
                self.live(now, base, inbox);
                Ok(())
            }
            (Start::Resume {}, ..) => Err(Closing::violation("a new epoch has to start with a digest")),
            (Start::Digest { chunks }, ..) if !chunks.len().is_power_of_two() || chunks.len() > limits::MAX_CHUNKS => {
                Err(Closing::violation(format!("a digest of {} chunks", chunks.len())))
            }
            (Start::Digest { chunks }, ..) => {
                let start = Position::start(cluster, epoch.clone());
                let until = now + limits::ACK_TIMEOUT;
                self.stage(Stage::Digesting {
                    start,
                    chunks,
                    until,
                    asked: false,
                });
                Ok(())
            }
        }
    }

    /// What the manager is to this node; none where the node belongs nowhere yet.
    fn judge(&self, now: Duration, cluster: &str, epoch: &Epoch) -> Result<Option<Standing>, Fenced> {
        let Some(position) = &self.position else {
            return Ok(None);
        };
        let standing = position.judge(cluster, epoch)?;
        if self.retired.contains(now, epoch) {
            return Err(Fenced::Deposed {
                ours: position.epoch.clone(),
                theirs: epoch.clone(),
            });
        }
        Ok(Some(standing))
    }

    fn live(&mut self, now: Duration, base: Position, inbox: Inbox) {
        self.outbox.open();
        // Not at once: a session that goes on where the last one ended is to cost two messages.
        self.weigh_at = now + limits::OUTBOX_EVERY;
        self.told = None;
        self.stage(Stage::Live {
            base,
            inbox,
            since: now,
        });
    }

    fn stage(&mut self, stage: Stage) {
        if let Phase::Connected(connection) = &mut self.phase {
            connection.stage = stage;
        }
    }

    fn stored(&mut self, now: Duration, holds: u64, out: &mut Vec<Output>) {
        self.holds = holds;
        let Some(position) = self.storing.take() else { return };
        // No session comes up while something is being stored, so it came in over this one.
        if self.is_live() {
            out.push(Output::Send(Upstream::Ack {
                version: position.version,
            }));
        }
        if let Some(before) = &self.position {
            self.retired.supersede(now, &before.epoch, &position.epoch);
        }
        self.position = Some(position);
    }

    fn rows(&mut self, rows: &[Row], out: &mut Vec<Output>) {
        let Some(read_for) = std::mem::replace(&mut self.reading_rows, false).then_some(&self.phase) else {
            return;
        };
        if let Phase::Connected(Connection {
            stage: Stage::Digesting {
                chunks, asked: true, ..
            },
            ..
        }) = read_for
        {
            out.extend(digest::answer(chunks, rows).into_iter().map(Output::Send));
        }
    }

    /// Asks for whatever can be asked for now.
    fn pump(&mut self, now: Duration, out: &mut Vec<Output>) {
        let Phase::Connected(Connection { stage, .. }) = &mut self.phase else {
            return;
        };
        match stage {
            Stage::Greeting { .. } => {}
            Stage::Digesting { asked, .. } => {
                if !*asked && !self.reading_rows {
                    *asked = true;
                    self.reading_rows = true;
                    out.push(Output::ReadRows);
                }
            }
            Stage::Live { base, inbox, .. } => {
                if self.storing.is_none()
                    && let Some((version, changes)) = inbox.batch()
                {
                    let position = Position {
                        version,
                        ..base.clone()
                    };
                    self.storing = Some(position.clone());
                    out.push(Output::Store(Batch { changes, position }));
                }
                out.extend(self.outbox.want(now).map(Output::Fetch));
            }
        }
    }

    fn close(&mut self, closing: Closing, out: &mut Vec<Output>) {
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
