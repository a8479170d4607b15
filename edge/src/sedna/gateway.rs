//! Stands in for a node on which Sedna's agent runs: one session with the hub for each connection of the agent.
//!
//! Decides nothing of either protocol; only how fast an agent is told, when its connection is given up, and when nothing is
//! read of it.

mod agents;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::extract::ws::{Message, WebSocket};
use jiff::Timestamp;
use thiserror::Error;
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

pub use agents::Agents;
use agents::Entry;

use super::{
    agent::{Agent, Room},
    envelope::{Envelope, EnvelopeError},
    pipe::PipeDialer,
};
use crate::{
    limits,
    link::{self, Signals, Store},
    node::{Batch, Identity, Outgoing, Session, State, Wanted},
    object::Row,
    report::ReportResult,
};

/// The version that sessions of agents have.
pub const AGENT: &str = "sedna";

/// From when an agent has read a message to the next one. It handles each by itself, at once and without a lock, so that two
/// that come together can crash it, and an object's deletion can overtake its insertion.
const PACE: Duration = Duration::from_millis(50);

/// How long the hub is given to take up a session. Then the agent is sent away, and comes back by itself.
const TAKEN_UP: Duration = Duration::from_secs(30);

/// Bytes of a message of an agent: the largest report, in base64.
pub const MAX_MESSAGE: usize = limits::MAX_REPORT / 3 * 4 + 4096;

/// Why a gateway's session ends.
#[derive(Debug, Error)]
pub enum Gone {
    /// The agent's connection is over.
    #[error("the agent has disconnected")]
    Disconnected,
    /// There is a newer one.
    #[error("the agent has connected again")]
    Replaced,
}

/// What a gateway counts and logs.
pub trait Ear: Send + Sync {
    /// A message of the agent was not taken.
    fn misheard(&self, node: &str, error: &EnvelopeError);

    /// So many reports of the agent were given up.
    fn gave_up(&self, node: &str, count: u64);
}

/// What a session wants the agent to be told; answered when it has read it.
type Order = (Vec<Envelope>, oneshot::Sender<()>);

/// The agent, as its session sees it: a store that holds what the agent was told.
struct Told {
    entry: Arc<Entry>,
    turn: u64,
    orders: mpsc::Sender<Order>,
    /// Notified when there is something to report.
    outbox: Arc<Notify>,
}

impl Told {
    fn agent<T>(&self, with: impl FnOnce(&mut Agent) -> T) -> Result<T, Gone> {
        let mut state = self.entry.lock();
        if state.number == self.turn {
            Ok(with(&mut state.agent))
        } else {
            Err(Gone::Replaced)
        }
    }
}

impl Store for Told {
    type Error = Gone;

    async fn store(&self, batch: Batch) -> Result<u64, Gone> {
        let (told, holds) = self.agent(|agent| (agent.apply(Timestamp::now(), batch), agent.holds()))?;
        // What was said of these before they were told.
        self.outbox.notify_one();
        let (taken, wait) = oneshot::channel();
        self.orders.send((told, taken)).await.map_err(|_| Gone::Disconnected)?;
        wait.await.map_err(|_| Gone::Disconnected)?;
        Ok(holds)
    }

    async fn rows(&self) -> Result<Vec<Row>, Gone> {
        self.agent(|agent| agent.rows())
    }

    async fn fetch(&self, wanted: Wanted) -> Result<Vec<Outgoing>, Gone> {
        self.agent(|agent| agent.fetch(&wanted))
    }

    async fn settle(&self, seq: u64, _: ReportResult) -> Result<(), Gone> {
        self.agent(|agent| agent.settle(seq))?;
        self.entry.room.notify_one();
        Ok(())
    }
}

/// Serves one connection of the agent of `node` to its end, with a session over `dialer`.
pub async fn serve(wire: WebSocket, node: String, agents: Agents, dialer: PipeDialer, ear: &dyn Ear) {
    let (entry, turn) = agents.connected(&node);
    let (orders, ordered) = mpsc::channel(1);
    let signals = Signals::new(CancellationToken::new());
    let (identity, holds) = {
        let state = entry.lock();
        let identity = Identity {
            node: node.clone(),
            boot: state.agent.boot().to_owned(),
            agent: AGENT.to_owned(),
        };
        (identity, state.agent.holds())
    };
    let told = Told {
        entry: entry.clone(),
        turn,
        orders,
        outbox: signals.outbox.clone(),
    };
    let session = Session::new(identity, None, holds).taking(limits::WINDOW_OF_AGENT);
    let linked = link::run(
        session,
        dialer.once(),
        Arc::new(told),
        signals.clone(),
        rand::random::<f64>,
    );
    let state = signals.state.subscribe();
    let linked = tokio::spawn(linked);
    let now = Instant::now();
    let mut gateway = Gateway {
        wire,
        entry,
        ordered,
        signals,
        state,
        node: &node,
        ear,
        queue: VecDeque::new(),
        taken: None,
        told: 0,
        read: 0,
        send_at: now,
        heard: now,
        ping_at: now + limits::PING_AFTER,
    };
    let why = gateway.run(now + TAKEN_UP).await;
    tracing::info!(node, why, "a connection of an old agent was ended");
    let Gateway {
        wire, ordered, signals, ..
    } = gateway;
    // Whoever waits for something to be read waits in vain.
    drop(ordered);
    signals.stop.cancel();
    let _ = linked.await;
    agents.disconnected(&node, turn);
    let _ = timeout(limits::CLOSE, goodbye(wire)).await;
}

async fn goodbye(mut wire: WebSocket) {
    let _ = wire.send(Message::Close(None)).await;
    while let Some(Ok(_)) = wire.recv().await {}
}

/// Why a connection is ended whose session with the manager is.
const OVER: &str = "its session with the manager is over";

fn over(state: &State) -> bool {
    matches!(state, State::Waiting { cause: Some(_), .. })
}

struct Gateway<'a> {
    wire: WebSocket,
    entry: Arc<Entry>,
    ordered: mpsc::Receiver<Order>,
    signals: Signals,
    /// How its session stands.
    state: watch::Receiver<State>,
    node: &'a str,
    ear: &'a dyn Ear,
    queue: VecDeque<Envelope>,
    /// Told when the agent has read all of the queue.
    taken: Option<oneshot::Sender<()>>,
    /// How many messages were written over this connection.
    told: u64,
    /// How many of them the agent has read: it reads in order, and its WebSocket library answers a ping as it is read.
    read: u64,
    send_at: Instant,
    heard: Instant,
    ping_at: Instant,
}

impl Gateway<'_> {
    /// Runs until either side has gone; why it did.
    async fn run(&mut self, up_until: Instant) -> &'static str {
        let mut live = false;
        loop {
            // A write looks at the state as well, so that it may have changed unnoticed here.
            live |= *self.state.borrow() == State::Live;
            // What is not read waits in the agent, which then waits for itself.
            let Room { full_until, given_up } = self.entry.lock().agent.make_room(Instant::now());
            if given_up > 0 {
                self.ear.gave_up(self.node, given_up);
            }
            let full = full_until.is_some();
            if full {
                // Nothing is heard of what it has read, then, and what it reports is to hold up nothing that it is told.
                self.has_read(self.told);
            }
            tokio::select! {
                changed = self.state.changed() => {
                    if changed.is_err() || over(&self.state.borrow_and_update()) {
                        return OVER;
                    }
                }
                () = sleep_until(up_until), if !live => return "the manager did not take it up",
                ordered = self.ordered.recv(), if self.taken.is_none() => {
                    let Some((envelopes, taken)) = ordered else { return "its session is over" };
                    self.queue.extend(envelopes);
                    self.taken = Some(taken);
                    self.report_read();
                }
                () = sleep_until(self.send_at), if !self.queue.is_empty() && self.read == self.told => {
                    if let Err(why) = self.tell().await {
                        return why;
                    }
                }
                () = self.entry.room.notified(), if full => {}
                () = sleep_until(full_until.unwrap_or(self.ping_at)), if full => {}
                message = self.wire.recv(), if !full => match message {
                    Some(Ok(message)) => {
                        if !self.heard(&message) {
                            return "it has disconnected";
                        }
                    }
                    Some(Err(_)) | None => return "it has disconnected",
                },
                () = sleep_until(self.ping_at) => {
                    let now = Instant::now();
                    if full {
                        // Nothing is read, so nothing is heard.
                        self.heard = now;
                    } else if now >= self.heard + limits::IDLE {
                        return "it has fallen silent";
                    }
                    self.ping_at = now + limits::PING_AFTER;
                    if let Err(why) = self.ping().await {
                        return why;
                    }
                }
            }
        }
    }

    /// Tells the next of what is to be told.
    async fn tell(&mut self) -> Result<(), &'static str> {
        if let Some(envelope) = self.queue.pop_front() {
            self.write(Message::Text(envelope.encode().into())).await?;
            self.told += 1;
            self.send_at = Instant::now() + PACE;
            self.ping().await?;
        }
        Ok(())
    }

    /// Asks how much it has read.
    async fn ping(&mut self) -> Result<(), &'static str> {
        let told = self.told.to_be_bytes().to_vec();
        self.write(Message::Ping(told.into())).await
    }

    /// It has read so many messages. One that is not told yet it cannot have read.
    fn has_read(&mut self, told: u64) {
        if self.read < told && told <= self.told {
            self.read = told;
            self.send_at = Instant::now() + PACE;
            self.report_read();
        }
    }

    fn report_read(&mut self) {
        if self.queue.is_empty()
            && self.read == self.told
            && let Some(taken) = self.taken.take()
        {
            // The session may have ended meanwhile.
            let _ = taken.send(());
        }
    }

    /// Writes this, or says why not. An agent that does not read is not waited for once its session is over.
    async fn write(&mut self, message: Message) -> Result<(), &'static str> {
        tokio::select! {
            biased;
            written = timeout(limits::IDLE, self.wire.send(message)) => match written {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) | Err(_) => Err("it cannot be written to"),
            },
            _ = self.state.wait_for(over) => Err(OVER),
        }
    }

    /// Takes what the agent says; false where that is its last.
    fn heard(&mut self, message: &Message) -> bool {
        self.heard = Instant::now();
        let text = match message {
            Message::Text(text) => text.as_str(),
            Message::Pong(answer) => {
                if let Ok(told) = answer.as_ref().try_into().map(u64::from_be_bytes) {
                    self.has_read(told);
                }
                return true;
            }
            Message::Ping(_) => return true,
            Message::Binary(_) => "",
            Message::Close(_) => return false,
        };
        match Envelope::decode(text).and_then(|envelope| envelope.said()) {
            Ok(Some(said)) => {
                self.entry.lock().agent.report(Timestamp::now(), said);
                self.signals.outbox.notify_one();
            }
            Ok(None) => {}
            Err(error) => self.ear.misheard(self.node, &error),
        }
        true
    }
}

#[cfg(test)]
mod tests;
