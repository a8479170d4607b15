//! One connection of a node: carries out what its session says.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use skerry_edge::{
    Downstream, Upstream,
    cloud::{Counts, End, Input, Output, Peer, Session},
    limits,
    message::{Hello, MessageError, Received, RefusedReason},
    transport::{Event, server::ManagerSocket},
};
use tokio::{
    sync::{Notify, watch},
    time::sleep_until,
};

use super::{
    Connected, Hub, NodeName, State, Term,
    claims::Claim,
    hello::hello,
    standing::{Judgement, Standing},
};

/// Nodes that are sent away are spread over so long beyond what their number asks for: those of two managers, too.
const SPREAD: Duration = Duration::from_secs(1);

/// Serves one connection to its end.
pub(super) async fn serve(hub: Hub, peer: Peer, mut socket: ManagerSocket) {
    let number = hub.shared.counters.connections.fetch_add(1, Relaxed);
    let mut term = hub.shared.term.subscribe();
    let present = term.borrow_and_update().clone();
    let mut standing = Standing::new(&hub, &peer);
    let farewell = match (present, standing.judge()) {
        (_, Judgement::Lost(lost)) => {
            hub.refused(lost.word(), &peer, &lost);
            Some(lost.frame())
        }
        (None, _) | (_, Judgement::Unknown) => Some(hub.come_back()),
        (Some(present), Judgement::Counts) => {
            let begun = match hello(&hub, &mut socket, &present, &peer, &mut standing).await {
                Ok(hello) => Connection::start(&hub, number, present, &peer, hello).map_err(|hint| {
                    let reason = RefusedReason::Node;
                    ("proves", hint.clone(), Some(Downstream::Refused { reason, hint }))
                }),
                Err(no_hello) => Err(no_hello),
            };
            match begun {
                Ok((mut connection, outputs)) => {
                    connection.carry_out(outputs, &mut socket);
                    let farewell = connection.run(&mut socket, &mut term, &mut standing).await;
                    connection.end();
                    farewell
                }
                Err((word, cause, farewell)) => {
                    hub.refused(word, &peer, &cause);
                    farewell
                }
            }
        }
    };
    if let Some(farewell) = farewell {
        socket.send(farewell);
    }
    socket.close().await;
}

struct Connection {
    hub: Hub,
    term: Term,
    node: NodeName,
    number: u64,
    session: Session,
    claim: Claim,
    wake: Arc<Notify>,
}

impl Connection {
    /// Begins the session, unless this agent may not have it: why not.
    fn start(hub: &Hub, number: u64, term: Term, peer: &Peer, hello: Hello) -> Result<(Self, Vec<Output>), String> {
        let node: NodeName = hello.node.as_str().into();
        let agent = hello.agent.clone();
        let wake = Arc::<Notify>::default();
        let since = hub.now();
        let mut state = hub.shared.state.lock();
        state.may_stand_in(&agent, &node)?;
        // A hello may have been under way for longer than that of a newer connection.
        let newest = state
            .connected
            .get(&node)
            .is_none_or(|connected| connected.number < number);
        if newest {
            state.placements.forget_strays(&node);
        }
        let (held, _) = state.placements.node_with_rule(&node);
        let (session, outputs) = Session::start(since, number, &term.server, peer, hello, held);
        let connected = Connected {
            number,
            wake: wake.clone(),
            since,
            agent,
        };
        let replaced = newest
            .then(|| state.connected.insert(node.clone(), connected))
            .flatten();
        drop(state);
        if let Some(replaced) = replaced {
            replaced.wake.notify_one();
        }
        tracing::info!(%node, confidential = peer.confidential, "a node has connected");
        let connection = Self {
            hub: hub.clone(),
            term,
            node,
            number,
            session,
            claim: hub.shared.claims.of(peer),
            wake,
        };
        Ok((connection, outputs))
    }

    /// Runs the session to its end; what is left to say then.
    async fn run(
        &mut self,
        socket: &mut ManagerSocket,
        term: &mut watch::Receiver<Option<Term>>,
        standing: &mut Standing,
    ) -> Option<Downstream> {
        while let Some(wake_at) = self.session.wake_at() {
            let input = tokio::select! {
                // In this order, so that a simulation replays. Each of the first is ready only now and then, so the
                // socket, which may be ready for long, has its turn.
                biased;
                lost = standing.lost() => {
                    self.hub.shared.counters.ended.count(lost.word());
                    tracing::warn!(%lost, "a session was ended");
                    return Some(lost.frame());
                }
                _ = term.changed() => self.drain(),
                () = sleep_until(self.hub.shared.origin + wake_at) => Input::Wake,
                () = self.wake.notified() => Input::Wake,
                event = socket.next() => match event {
                    Ok(Event::Frame(frame)) => self.said(frame),
                    Ok(Event::Heard) => Input::Heard,
                    Ok(Event::Pong(_)) => Input::Pong,
                    Err(ended) => {
                        self.hub.shared.counters.ended.count("disconnected");
                        tracing::info!(node = %self.node, %ended, "a node has disconnected");
                        return None;
                    }
                },
            };
            let outputs = self.handle(input, term);
            self.carry_out(outputs, socket);
        }
        None
    }

    /// What the node said, unless it names more than it may before it has proven who it is: then it comes back.
    fn said(&mut self, frame: Result<Received<Upstream>, MessageError>) -> Input {
        let rows = match &frame {
            Ok(Received::Message(Upstream::Rows { rows, .. })) => rows.len(),
            _ => 0,
        };
        if self.claim.take(rows) {
            return Input::Frame(frame);
        }
        if let Some(left_out) = self.hub.shared.lines.ended.line() {
            let (node, limit) = (&self.node, limits::SAID_ROWS);
            tracing::warn!(%node, limit, left_out, "nodes without a certificate name too much that they hold: one comes back later");
        }
        self.drain()
    }

    fn drain(&self) -> Input {
        Input::Drain {
            reconnect_after: self.hub.reconnect_after(),
        }
    }

    fn handle(&mut self, input: Input, term: &watch::Receiver<Option<Term>>) -> Vec<Output> {
        let now = self.hub.now();
        let mut state = self.hub.shared.state.lock();
        // What is known of the node now may be another term's already.
        let over = term.has_changed().unwrap_or(true);
        let input = if over { self.drain() } else { input };
        let outputs = {
            let (node, may_delete) = state.placements.node_with_rule(&self.node);
            let outputs = self.session.handle(now, input, node, &may_delete);
            if !self.session.is_digesting() {
                let Counts { strays, deletions, .. } = node.objects.counts();
                self.claim.keep(strays + deletions);
            }
            outputs
        };
        for output in &outputs {
            if let Output::Strays(keys) = output {
                state.placements.strayed(&self.node, keys);
            }
        }
        outputs
    }

    fn carry_out(&mut self, outputs: Vec<Output>, socket: &mut ManagerSocket) {
        let (node, counters, lines) = (&self.node, &self.hub.shared.counters, &self.hub.shared.lines);
        for output in outputs {
            match output {
                Output::Send(frame) => socket.send(frame),
                Output::Ping => socket.ping(),
                Output::Close { end, cause } => {
                    counters.ended.count(end.word());
                    if let (End::Violation, Some(left_out)) = (end, lines.ended.line()) {
                        tracing::warn!(%node, cause, left_out, "a node broke the protocol: its session was ended");
                    } else {
                        tracing::info!(%node, cause, "a session was ended");
                    }
                }
                Output::Denied(denial) => {
                    counters.reports_denied.count(denial.word());
                    if let Some(left_out) = lines.denied.line() {
                        tracing::warn!(%node, %denial, left_out, "a node may not report that");
                    }
                }
                Output::Report(report) => {
                    self.hub
                        .take_report(self.term.reports.clone(), node, self.session.boot(), report);
                }
                Output::Acked { changes, slowest } => {
                    counters.acked.fetch_add(changes as u64, Relaxed);
                    counters.slowest_ack_ms.fetch_max(millis(slowest), Relaxed);
                }
                Output::Gap { count } => {
                    counters.reports_given_up.fetch_add(count, Relaxed);
                    if let Some(left_out) = lines.given_up.line() {
                        tracing::warn!(%node, count, left_out, "a node gave up reports: its outbox was full, or they were too old");
                    }
                }
                Output::Strays(keys) => tracing::debug!(%node, items = keys.len(), "a node holds items in excess"),
            }
        }
    }

    fn end(self) {
        self.hub
            .shared
            .counters
            .unknown_frames
            .fetch_add(self.session.unknown_frames(), Relaxed);
        let mut state = self.hub.shared.state.lock();
        let State {
            placements,
            connected,
            streams: _,
        } = &mut *state;
        match connected.get(&self.node) {
            Some(present) if present.number == self.number => {
                connected.remove(&self.node);
                placements.left(&self.node);
            }
            // Another connection has taken over: all belongs to it.
            Some(_) => {}
            // And has gone, too: what this one has found since is nobody's.
            None => placements.release(&self.node),
        }
    }
}

impl Hub {
    /// A connection becomes no session.
    pub(crate) fn refused(&self, word: &'static str, peer: &Peer, cause: &dyn fmt::Display) {
        self.shared.counters.refused.count(word);
        if let Some(left_out) = self.shared.lines.refused.line() {
            let proven = peer.identity.as_ref().map(|certificate| certificate.node.as_str());
            tracing::warn!(proven, %cause, left_out, "a node was refused");
        }
    }

    /// What a node is told that is to come back later.
    pub(super) fn come_back(&self) -> Downstream {
        Downstream::Restarting {
            reconnect_after_ms: millis(self.reconnect_after()),
        }
    }

    /// When a node that is sent away is to come back.
    fn reconnect_after(&self) -> Duration {
        let appointment = self.shared.appointments.lock().next(self.now());
        appointment + SPREAD.mul_f64((self.shared.jitter)())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use skerry_edge::{Epoch, ObjectKey, cloud::Server};

    use super::{
        super::{Answers, Reported, Reports},
        *,
    };

    struct Nobody;

    #[async_trait]
    impl Reports for Nobody {
        async fn take(&self, _: &ObjectKey, _: &[Reported]) -> Answers {
            Answers::default()
        }
    }

    fn begin(hub: &Hub, number: u64) -> Connection {
        let epoch = Epoch {
            lease: "l".to_owned(),
            transitions: 0,
            made: None,
        };
        let term = Term {
            server: Arc::new(Server {
                cluster: "c".to_owned(),
                epoch,
            }),
            reports: Arc::new(Nobody),
        };
        let hello = Hello {
            node: "edge-1".to_owned(),
            boot: "boot".to_owned(),
            protocol: limits::PROTOCOL,
            agent: "test".to_owned(),
            stored: None,
            holds: 0,
            window: None,
        };
        Connection::start(hub, number, term, &Peer::default(), hello).unwrap().0
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_node_whose_replaced_session_is_the_last_to_end() {
        let hub = Hub::default();
        let (mut first, second) = (begin(&hub, 0), begin(&hub, 1));
        second.end();
        assert!(hub.nodes().is_empty());
        let ended = first.handle(Input::Wake, &hub.shared.term.subscribe());
        assert!(
            ended
                .iter()
                .any(|output| matches!(output, Output::Close { end: End::Replaced, .. })),
            "{ended:?}"
        );
        first.end();
        assert!(hub.nodes().is_empty());
    }
}
