//! One connection of a node, from its hello on.
//!
//! ```text
//!   hello ── start ─┬─ position of this epoch, not behind what it acknowledged ─▶ Live
//!                   └─ otherwise ─▶ Digesting ── rows ──▶ Live
//! ```
//!
//! Decides who may go on, what is in flight, and when a connection is given up. It never holds an item: it reads the
//! node's set, which other tasks change, whenever it is told that something happened.

use std::time::Duration;

use super::{
    Link, Node,
    admission::{Peer, Server},
    closing::Closing,
    digesting::Answer,
    event::{End, Input, Output},
    reports::{Taken, Verdict},
    window::Window,
};
use crate::{
    limits,
    message::{Downstream, Hello, MessageError, Received, Start, Upstream},
    object::{ItemKey, ObjectKey},
    report::{Report, ReportResult},
};

/// The state machine of one connection. Times are counted from any fixed moment, by a clock that never goes back.
#[derive(Debug)]
pub struct Session {
    number: u64,
    boot: String,
    /// How many changes the node takes before one is acknowledged, as it said.
    window: Option<u32>,
    confidential: bool,
    stage: Stage,
    heard: Duration,
    ping_at: Duration,
    /// When a ping goes in any case.
    measure_at: Duration,
    /// When the ping went that is not answered.
    pinged: Option<Duration>,
    unknown: u64,
}

#[derive(Debug)]
enum Stage {
    Digesting { answer: Answer, until: Duration },
    Live(Window),
    Closed,
}

impl Session {
    /// Starts a session of the node that said this, after [`Server::check`]; what to do first. It replaces the node's
    /// session before, which has to be given [`Input::Wake`]. No two sessions may have the same `number`, and one whose
    /// hello comes after that of a higher number is over at once.
    pub fn start(
        now: Duration,
        number: u64,
        server: &Server,
        peer: &Peer,
        hello: Hello,
        node: &mut Node,
    ) -> (Self, Vec<Output>) {
        let Server { cluster, epoch } = server.clone();
        let Hello {
            node: _,
            boot,
            protocol: _,
            agent: _,
            stored,
            holds,
            window,
        } = hello;
        let mut session = Self {
            number,
            boot,
            window,
            confidential: peer.confidential,
            stage: Stage::Closed,
            heard: now,
            ping_at: now + limits::PING_AFTER,
            measure_at: now + limits::PING_AFTER,
            pinged: None,
            unknown: 0,
        };
        if node.session > Some(number) {
            let closing = Closing::new(End::Replaced, "another session of this node has begun");
            return (session, closing.outputs().collect());
        }
        node.session = Some(number);
        node.reports.boot(&session.boot);
        // What they answer is sent again, and answered then.
        node.answers = Vec::new();
        node.link = Link::default();
        let resumed = stored
            .filter(|position| position.epoch == epoch)
            .map(|position| position.version);
        let start = if let Some(version) = resumed.filter(|version| node.objects.resume(*version)) {
            session.stage = Stage::Live(Window::of(window, version));
            Start::Resume {}
        } else {
            let chunks = node.objects.begin_digest(holds, peer.confidential);
            let (answer, until) = (Answer::of(chunks.len()), now + limits::ACK_TIMEOUT);
            session.stage = Stage::Digesting { answer, until };
            Start::Digest { chunks }
        };
        if session.confidential {
            node.objects.release_withheld(now);
        }
        let welcome = Downstream::Welcome {
            cluster,
            epoch,
            start,
            reports_per_second: Some(limits::REPORTS_PER_SECOND),
        };
        let mut out = vec![Output::Send(welcome)];
        session.pump(now, node, &mut out);
        (session, out)
    }

    /// The start of the node's local controller that this session is with.
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// Whether the node still answers a digest: then what it has said so far is kept.
    pub fn is_digesting(&self) -> bool {
        matches!(self.stage, Stage::Digesting { .. })
    }

    /// How many frames of unknown variants have come.
    pub fn unknown_frames(&self) -> u64 {
        self.unknown
    }

    /// When to feed the next [`Input::Wake`], if nothing else comes before; none when the session is over.
    pub fn wake_at(&self) -> Option<Duration> {
        let idle = (self.heard + limits::IDLE).min(self.ping_at).min(self.measure_at);
        match &self.stage {
            Stage::Digesting { until, .. } => Some(idle.min(*until)),
            Stage::Live(window) => Some(window.deadline().map_or(idle, |deadline| idle.min(deadline))),
            Stage::Closed => None,
        }
    }

    /// Takes what happened at `now`; what to do, in order. `may_delete` says of an object that the node holds and
    /// nobody placed there whether it may be deleted: its kind was listed and its owner is gone or placed elsewhere.
    pub fn handle(
        &mut self,
        now: Duration,
        input: Input,
        node: &mut Node,
        may_delete: &dyn Fn(&ObjectKey) -> bool,
    ) -> Vec<Output> {
        let mut out = Vec::new();
        if matches!(self.stage, Stage::Closed) {
            return out;
        }
        // A manager that sends its nodes away says so whatever it still knows of them: with a term, that is over.
        let stands = match input {
            Input::Drain { .. } => Ok(()),
            _ => self.stands(node),
        };
        let went = stands.and_then(|()| match input {
            Input::Wake => self.tick(now, &mut out),
            Input::Frame(frame) => {
                self.heard(now);
                self.frame(now, frame, node, may_delete, &mut out)
            }
            Input::Heard => {
                self.heard(now);
                Ok(())
            }
            Input::Pong => {
                self.heard(now);
                if let Some(pinged) = self.pinged.take() {
                    node.link.round_trip = Some(now.saturating_sub(pinged));
                }
                Ok(())
            }
            Input::Drain { reconnect_after } => {
                Err(Closing::new(End::Restarting(reconnect_after), "the manager drains"))
            }
        });
        match went {
            Ok(()) => self.pump(now, node, &mut out),
            Err(closing) => {
                out.extend(closing.outputs());
                self.stage = Stage::Closed;
            }
        }
        out
    }

    /// Whether this session still is the node's, and what is known of the node still what this session found out.
    fn stands(&self, node: &Node) -> Result<(), Closing> {
        if node.session != Some(self.number) {
            return Err(Closing::new(End::Replaced, "another session of this node has begun"));
        }
        let known = match &self.stage {
            Stage::Digesting { .. } => node.objects.is_digesting(),
            Stage::Live(_) | Stage::Closed => node.objects.is_synced(),
        };
        if known {
            Ok(())
        } else {
            Err(Closing::behind("too many deletions wait for this node"))
        }
    }

    fn heard(&mut self, now: Duration) {
        self.heard = now;
        self.ping_at = now + limits::PING_AFTER;
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<Output>) -> Result<(), Closing> {
        if now >= self.heard + limits::IDLE {
            return Err(Closing::new(End::Silent, "the node has fallen silent"));
        }
        match &self.stage {
            Stage::Digesting { until, .. } if now >= *until => {
                return Err(Closing::behind("the digest was not answered in time"));
            }
            Stage::Live(window) if window.deadline().is_some_and(|deadline| now >= deadline) => {
                return Err(Closing::behind("a change was not acknowledged in time"));
            }
            Stage::Digesting { .. } | Stage::Live(_) | Stage::Closed => {}
        }
        if now >= self.ping_at.min(self.measure_at) {
            self.ping_at = now + limits::PING_AFTER;
            self.measure_at = now + limits::MEASURE_EVERY;
            // Pings are answered in their order: where one is not yet, the next answer is that one's.
            self.pinged.get_or_insert(now);
            out.push(Output::Ping);
        }
        Ok(())
    }

    fn frame(
        &mut self,
        now: Duration,
        frame: Result<Received<Upstream>, MessageError>,
        node: &mut Node,
        may_delete: &dyn Fn(&ObjectKey) -> bool,
        out: &mut Vec<Output>,
    ) -> Result<(), Closing> {
        let known = frame.map_err(|error| Closing::violation(error.to_string()))?.known();
        let Some(message) = known else {
            self.unknown += 1;
            return Ok(());
        };
        match (message, &mut self.stage) {
            (Upstream::Rows { chunks, rows, more }, Stage::Digesting { answer, .. }) => {
                answer.take(chunks, rows).map_err(Closing::violation)?;
                if !more {
                    let Answer { differs, rows } = std::mem::replace(answer, Answer::of(0));
                    self.synced(node.objects.finish_digest(now, &differs, rows, may_delete), node, out);
                }
            }
            (Upstream::Ack { version }, Stage::Live(window)) => {
                if !window.ack(now, version) {
                    return Err(Closing::violation(format!(
                        "version {version} was acknowledged and never sent"
                    )));
                }
                if let (changes, Some(since)) = node.objects.ack(version) {
                    out.push(Output::Acked {
                        changes,
                        slowest: now.saturating_sub(since),
                    });
                }
            }
            (Upstream::Report { settled, after, report }, Stage::Live(_)) => {
                node.reports.settled(settled);
                return take_report(after, report, node, out);
            }
            (Upstream::Gap { seq, count }, Stage::Live(_)) => {
                match node.reports.take(seq) {
                    Taken::New => {
                        let accepted = Verdict::Done(ReportResult::Accepted {});
                        node.reports.finish(&self.boot, seq, &accepted);
                        out.push(Output::Gap { count });
                    }
                    Taken::Done(_) => {}
                    Taken::Pending | Taken::TooMany => {
                        return Err(Closing::violation("more reports than the window allows"));
                    }
                }
                let result = ReportResult::Accepted {};
                out.push(Output::Send(Downstream::ReportResult { seq, result }));
            }
            (Upstream::Outbox(depth), Stage::Live(_)) => node.link.outbox = Some(depth),
            (Upstream::Refused { reason: _, hint }, _) => {
                let hint: String = hint.chars().take(limits::HINT).collect();
                return Err(Closing::new(End::RefusedByNode, format!("the node refused: {hint}")));
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

    fn synced(&mut self, strays: Vec<ItemKey>, node: &Node, out: &mut Vec<Output>) {
        if !strays.is_empty() {
            out.push(Output::Strays(strays));
        }
        let version = node.objects.acked();
        self.stage = Stage::Live(Window::of(self.window, version));
        out.push(Output::Send(Downstream::Synced { version }));
    }

    /// Sends what the window has room for.
    fn pump(&mut self, now: Duration, node: &mut Node, out: &mut Vec<Output>) {
        let Stage::Live(window) = &mut self.stage else { return };
        out.extend(std::mem::take(&mut node.answers).into_iter().map(Output::Send));
        while let Some((version, frame)) = node.objects.next(window.sent(), self.confidential) {
            if !window.has_room_for(&frame) {
                return;
            }
            window.push(now, version, &frame);
            out.push(Output::Send(frame));
        }
    }
}

/// When a report comes again that came before one of its resource which was put off.
const OVERTAKES: Duration = Duration::from_secs(1);
/// And one for which the node's earlier starts have left no room: what is worked on of these waits for the API server.
const CROWDED: Duration = Duration::from_secs(5);

fn take_report(after: Option<u64>, report: Report, node: &mut Node, out: &mut Vec<Output>) -> Result<(), Closing> {
    let seq = report.seq;
    // What was taken once is not judged again: since then the object may have gone, which the answer must not depend on.
    let taken = match node.reports.take_again(seq) {
        Some(again) => again,
        None => match node.permits(&report) {
            Ok(()) => {
                let overtakes = after.is_some_and(|after| !node.reports.has(after));
                let put_off = overtakes.then_some(OVERTAKES);
                if let Some(retry_after) = put_off.or_else(|| node.reports.crowded().then_some(CROWDED)) {
                    out.push(Output::Send(Verdict::Later { retry_after }.frame(seq)));
                    return Ok(());
                }
                node.reports.take(seq)
            }
            Err(denial) => {
                // Nothing is kept of it: should it come again, it is judged again.
                let reason = denial.to_string();
                out.push(Output::Denied(denial));
                Taken::Done(ReportResult::Refused { reason })
            }
        },
    };
    match taken {
        Taken::New => out.push(Output::Report(report)),
        Taken::Pending => {}
        Taken::Done(result) => out.push(Output::Send(Downstream::ReportResult { seq, result })),
        Taken::TooMany => return Err(Closing::violation("more reports than the window allows")),
    }
    Ok(())
}
