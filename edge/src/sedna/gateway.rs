//! Stands in for a node on which Sedna's agent runs: one session with the hub for each connection of the agent.
//!
//! Decides nothing of either protocol; only how fast an agent is told, when its connection is given up, and when nothing is
//! read of it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::extract::ws::{Message, WebSocket};
use jiff::Timestamp;
use thiserror::Error;
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

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

/// Between two messages to an agent. It handles each by itself, at once and without a lock, so that two that come together
/// can crash it, and an object's deletion can overtake its insertion.
const PACE: Duration = Duration::from_millis(50);

/// How long the hub is given to take up a session. Then the agent is sent away, and comes back by itself.
const TAKEN_UP: Duration = Duration::from_secs(30);

/// Bytes of a message of an agent: the largest report, in base64.
pub const MAX_MESSAGE: usize = limits::MAX_REPORT / 3 * 4 + 4096;

/// How long an agent that has gone is remembered: over a night without the site's link. One that comes later is told
/// everything as if it were new, and may hold what was deleted meanwhile until it is restarted.
const REMEMBERED: Duration = Duration::from_secs(12 * 60 * 60);

/// The agents, by node. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Agents(Arc<Mutex<HashMap<String, Arc<Entry>>>>);

#[derive(Debug)]
struct Entry {
    state: Mutex<Turn>,
    /// Notified when there is room for another report.
    room: Notify,
}

/// An agent, and which of its connections is the present one.
#[derive(Debug)]
struct Turn {
    agent: Agent,
    number: u64,
    /// Since when it has been gone.
    gone: Option<Instant>,
}

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

impl Agents {
    fn connected(&self, node: &str) -> (Arc<Entry>, u64) {
        let mut agents = self.lock();
        // Whenever one comes is often enough: what is kept of all is bounded.
        let now = Instant::now();
        agents.retain(|_, entry| entry.lock().gone.is_none_or(|gone| now < gone + REMEMBERED));
        let entry = agents
            .entry(node.to_owned())
            .or_insert_with(|| {
                let agent = Agent::new(format!("{:032x}", rand::random::<u128>()));
                Arc::new(Entry {
                    state: Mutex::new(Turn {
                        agent,
                        number: 0,
                        gone: None,
                    }),
                    room: Notify::new(),
                })
            })
            .clone();
        let mut state = entry.lock();
        state.number += 1;
        state.gone = None;
        state.agent.connected();
        let turn = state.number;
        drop(state);
        (entry, turn)
    }

    fn disconnected(&self, node: &str, turn: u64) {
        let mut agents = self.lock();
        let Some(entry) = agents.get(node) else { return };
        let mut state = entry.lock();
        if state.number != turn {
            return;
        }
        let forget = !state.agent.disconnected();
        state.gone = Some(Instant::now());
        drop(state);
        if forget {
            agents.remove(node);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a session wants the agent to be told; answered when it is written.
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
        let (written, wait) = oneshot::channel();
        self.orders
            .send((told, written))
            .await
            .map_err(|_| Gone::Disconnected)?;
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
        written: None,
        send_at: now,
        heard: now,
        ping_at: now + limits::PING_AFTER,
    };
    let why = gateway.run(now + TAKEN_UP).await;
    tracing::info!(node, why, "a connection of an old agent was ended");
    let Gateway {
        wire, ordered, signals, ..
    } = gateway;
    // Whoever waits for something to be written waits in vain.
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
    /// Told when the queue is empty.
    written: Option<oneshot::Sender<()>>,
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
            tokio::select! {
                changed = self.state.changed() => {
                    if changed.is_err() || over(&self.state.borrow_and_update()) {
                        return OVER;
                    }
                }
                () = sleep_until(up_until), if !live => return "the manager did not take it up",
                ordered = self.ordered.recv(), if self.written.is_none() => {
                    let Some((envelopes, written)) = ordered else { return "its session is over" };
                    self.queue.extend(envelopes);
                    self.written = Some(written);
                    self.report_written();
                }
                () = sleep_until(self.send_at), if !self.queue.is_empty() => {
                    if let Some(envelope) = self.queue.pop_front()
                        && let Err(why) = self.write(Message::Text(envelope.encode().into())).await
                    {
                        return why;
                    }
                    self.send_at = Instant::now() + PACE;
                    self.report_written();
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
                    if let Err(why) = self.write(Message::Ping(Vec::new().into())).await {
                        return why;
                    }
                }
            }
        }
    }

    fn report_written(&mut self) {
        if self.queue.is_empty()
            && let Some(written) = self.written.take()
        {
            // The session may have ended meanwhile.
            let _ = written.send(());
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
            Message::Ping(_) | Message::Pong(_) => return true,
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
