//! The aggregator of a federated job: the sockets around [`Federation`], which decides.
//!
//! WebSocket clients on `/FedAvg`; a plain `GET` there lists them. Ends when all rounds are complete and all clients
//! are gone.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::env::{Env, EnvError};
use crate::federation::{Federation, Outgoing, Refusal};
use crate::model;

/// Sedna's clients take at most 16 MiB; its example server 20 MiB.
const MESSAGE_LIMIT: usize = 20 * 1024 * 1024;
/// Messages that may wait for one client. A round is one message, and joins are few.
const OUTBOX: usize = 64;
/// How long clients may stay after the last round.
const FAREWELL: Duration = Duration::from_secs(60);

/// What the aggregator is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `AGG_BIND_IP` and `AGG_BIND_PORT`.
    pub bind: SocketAddr,
    /// `PARTICIPANTS_COUNT`.
    pub participants: u32,
    /// `EXIT_ROUND`: the number of rounds.
    pub exit_round: u32,
    /// `MODEL_URL`, where it is a file: the averaged weights are kept there.
    pub model: Option<PathBuf>,
}

/// Why the aggregator ends without a result.
#[derive(Debug, thiserror::Error)]
pub enum AggregatorError {
    /// The environment does not do.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address} (AGG_BIND_IP, AGG_BIND_PORT): {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The server broke.
    #[error("the aggregation server failed: {0}")]
    Serve(#[source] std::io::Error),
    /// Told to stop before the last round. Not a success, or the job would count as done.
    #[error("stopped after {round} of {exit_round} rounds")]
    Stopped {
        /// Complete rounds.
        round: u32,
        /// All rounds.
        exit_round: u32,
    },
}

impl Settings {
    /// Reads the settings.
    pub fn from_env(env: &Env) -> Result<Self, EnvError> {
        env.require_socket_transmitter()?;
        Ok(Self {
            bind: env.bind_address("AGG_BIND_IP", "AGG_BIND_PORT", 7363)?,
            participants: env.count("PARTICIPANTS_COUNT", 1)?,
            exit_round: env.count("EXIT_ROUND", 10)?,
            model: model::output(env, "MODEL_URL"),
        })
    }
}

/// Runs a federated job to its end, or until `stop`.
pub async fn run(settings: Settings, stop: CancellationToken) -> Result<(), AggregatorError> {
    let listener = TcpListener::bind(settings.bind).await;
    let listener = listener.map_err(|source| AggregatorError::Bind {
        address: settings.bind,
        source,
    })?;
    serve(listener, settings, stop).await
}

/// As [`run`], on a socket that is listening already.
pub async fn serve(listener: TcpListener, settings: Settings, stop: CancellationToken) -> Result<(), AggregatorError> {
    let Settings {
        bind: _,
        participants,
        exit_round,
        model,
    } = settings;
    tracing::info!("waiting for {participants} participants, {exit_round} rounds");
    let server = Arc::new(Server {
        jobs: Mutex::new(Job {
            federation: Federation::new(participants, exit_round),
            outboxes: BTreeMap::new(),
        }),
        model,
        finished: CancellationToken::new(),
        over: stop.child_token(),
    });
    let end = tokio::spawn(end_in_time(Arc::clone(&server)));
    let router = Router::new()
        .route("/FedAvg", get(connect))
        .with_state(Arc::clone(&server));
    let listener = listener.tap_io(|stream| notice_dead_peers(stream));
    let serving = axum::serve(listener, router).with_graceful_shutdown(server.over.clone().cancelled_owned());
    serving.await.map_err(AggregatorError::Serve)?;
    end.abort();
    let round = server.job().federation.round();
    if round < exit_round {
        Err(AggregatorError::Stopped { round, exit_round })
    } else {
        Ok(())
    }
}

/// A client whose node is lost never closes its connection, and its successor has the same id. Python clients answer
/// no ping while they train, so this is left to the kernels of both ends.
fn notice_dead_peers(stream: &TcpStream) {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5));
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive.with_retries(3)) {
        tracing::debug!("no TCP keep-alive: {error}");
    }
}

/// After the last round clients get some time to take their leave.
async fn end_in_time(server: Arc<Server>) {
    server.finished.cancelled().await;
    tokio::time::sleep(FAREWELL).await;
    tracing::warn!(
        "{} clients still connected, ending without them",
        server.job().outboxes.len()
    );
    server.over.cancel();
}

#[derive(Debug)]
struct Server {
    jobs: Mutex<Job>,
    model: Option<PathBuf>,
    /// All rounds are complete.
    finished: CancellationToken,
    /// Everybody may go.
    over: CancellationToken,
}

#[derive(Debug)]
struct Job {
    federation: Federation,
    outboxes: BTreeMap<String, mpsc::Sender<Utf8Bytes>>,
}

impl Server {
    fn job(&self) -> MutexGuard<'_, Job> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, subscribe: Value) -> Result<(String, mpsc::Receiver<Utf8Bytes>), Refusal> {
        let id = subscribe
            .get("client_id")
            .and_then(Value::as_str)
            .filter(|id| !id.is_empty());
        let wanted = || Refusal::Malformed("subscribe: a client_id is wanted".into());
        let id = id.ok_or_else(wanted)?.to_owned();
        let mut job = self.job();
        let outgoing = job.federation.join(&id, subscribe)?;
        let (outbox, messages) = mpsc::channel(OUTBOX);
        job.outboxes.insert(id.clone(), outbox);
        tracing::info!("{id} joined, {} connected", job.outboxes.len());
        job.deliver(outgoing);
        Ok((id, messages))
    }

    fn receive(&self, id: &str, message: Value) -> Result<(), Refusal> {
        let mut job = self.job();
        let before = job.federation.round();
        let outgoing = job.federation.receive(id, message)?;
        if job.federation.round() > before {
            tracing::info!(
                "round {} complete, sent to {} participants",
                job.federation.round(),
                job.outboxes.len()
            );
            if let (Some(path), Some(weights)) = (&self.model, job.federation.weights()) {
                // The trainers have the weights too, so a job need not fail for this.
                model::save(path, weights).unwrap_or_else(|error| tracing::warn!("{error}"));
            }
        }
        job.deliver(outgoing);
        if job.federation.is_finished() {
            self.finished.cancel();
        }
        Ok(())
    }

    fn leave(&self, id: &str) {
        let mut job = self.job();
        job.federation.leave(id);
        job.outboxes.remove(id);
        tracing::info!("{id} left, {} connected", job.outboxes.len());
        if job.federation.is_finished() && job.federation.is_empty() {
            self.over.cancel();
        }
    }
}

impl Job {
    fn deliver(&mut self, outgoing: Vec<Outgoing>) {
        for Outgoing { to, message } in outgoing {
            let text = Utf8Bytes::from(message.to_string());
            for id in to {
                let full = self
                    .outboxes
                    .get(&id)
                    .is_some_and(|outbox| outbox.try_send(text.clone()).is_err());
                if full {
                    tracing::warn!("{id} does not take its messages, sending it away");
                    self.outboxes.remove(&id);
                }
            }
        }
    }
}

async fn connect(
    State(server): State<Arc<Server>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    match upgrade {
        Ok(upgrade) => {
            let upgrade = upgrade.max_message_size(MESSAGE_LIMIT).max_frame_size(MESSAGE_LIMIT);
            upgrade.on_upgrade(move |socket| session(server, socket))
        }
        Err(_) => Json(json!({"clients": server.job().federation.client_ids()})).into_response(),
    }
}

async fn session(server: Arc<Server>, mut socket: WebSocket) {
    let farewell = match subscribe(&server, &mut socket).await {
        Ok(None) => return,
        Ok(Some((id, messages))) => {
            let farewell = converse(&server, &mut socket, &id, messages).await;
            server.leave(&id);
            farewell
        }
        Err(refusal) => Some(refusal),
    };
    if let Some(refusal) = &farewell {
        tracing::warn!("a client is sent away: {refusal}");
    }
    let code = if farewell.is_some() {
        close_code::POLICY
    } else {
        close_code::NORMAL
    };
    // A reason has at most 123 bytes.
    let reason: String = farewell
        .map(|refusal| refusal.to_string())
        .unwrap_or_default()
        .chars()
        .take(100)
        .collect();
    // Whoever is gone already need not be told.
    let _ = socket
        .send(Message::Close(Some(CloseFrame {
            code,
            reason: reason.into(),
        })))
        .await;
}

type Subscription = (String, mpsc::Receiver<Utf8Bytes>);

/// The first message must be `subscribe`; none when the client goes before it.
async fn subscribe(server: &Server, socket: &mut WebSocket) -> Result<Option<Subscription>, Refusal> {
    let message = tokio::select! {
        message = next_message(socket) => message?,
        () = server.over.cancelled() => None,
    };
    let Some(message) = message else { return Ok(None) };
    if message.get("type").and_then(Value::as_str) != Some("subscribe") {
        return Err(Refusal::NotSubscribed);
    }
    server.join(message).map(Some)
}

/// Passes messages both ways until either end goes; says why the client is sent away, if it is.
async fn converse(
    server: &Server,
    socket: &mut WebSocket,
    id: &str,
    mut messages: mpsc::Receiver<Utf8Bytes>,
) -> Option<Refusal> {
    loop {
        tokio::select! {
            message = messages.recv() => match message {
                Some(text) => socket.send(Message::Text(text)).await.ok()?,
                None => return None,
            },
            message = next_message(socket) => match message {
                Ok(Some(message)) => if let Err(refusal) = server.receive(id, message) { return Some(refusal) },
                Ok(None) => return None,
                Err(refusal) => return Some(refusal),
            },
            () = server.over.cancelled() => return None,
        }
    }
}

/// The next message; none when the connection is gone.
async fn next_message(socket: &mut WebSocket) -> Result<Option<Value>, Refusal> {
    loop {
        let bytes = match socket.recv().await {
            None | Some(Err(_) | Ok(Message::Close(_))) => return Ok(None),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(message)) => message.into_data(),
        };
        let malformed = |error| Refusal::Malformed(format!("a message is not JSON: {error}"));
        return serde_json::from_slice(&bytes).map(Some).map_err(malformed);
    }
}
