//! A trainer's connection to the aggregator.
//!
//! Waits for an aggregator that is not up yet; notices one that is gone without a word.

use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// The largest message taken, as in the aggregator.
const MESSAGE_LIMIT: usize = 20 * 1024 * 1024;
/// How long one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// As Sedna's library pings.
const PING_PERIOD: Duration = Duration::from_secs(5);
/// An aggregator that answers no ping for so long is gone.
const SILENCE: Duration = Duration::from_secs(60);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The aggregator did not come up in time.
    #[error("no aggregator at {url} after {} s (CONNECT_TIMEOUT): {last}", .patience.as_secs())]
    Timeout {
        /// Where it should be.
        url: String,
        /// How long the trainer waited.
        patience: Duration,
        /// Why the last attempt failed.
        last: String,
    },
    /// It does not accept the connection, or the subscription.
    #[error("{0}")]
    Refused(String),
    /// The connection broke. The protocol cannot resume.
    #[error("the connection to the aggregator is gone, and its protocol cannot resume: {0}")]
    Gone(String),
}

impl From<tungstenite::Error> for LinkError {
    fn from(error: tungstenite::Error) -> Self {
        Self::Gone(error.to_string())
    }
}

/// A connection on which this client has subscribed.
#[derive(Debug)]
pub struct Link {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Link {
    /// Connects and subscribes, again and again for as long as `patience` lasts: the aggregator may not be up yet, or
    /// still hold the connection of this client's predecessor.
    pub async fn connect(url: &str, client_id: &str, patience: Duration) -> Result<Self, LinkError> {
        let deadline = Instant::now() + patience;
        let mut pause = FIRST_PAUSE;
        loop {
            let attempt = tokio::time::timeout(ATTEMPT, Self::subscribe(url, client_id)).await;
            let error = match attempt {
                Ok(Ok(link)) => return Ok(link),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            if Instant::now() + pause > deadline {
                return Err(LinkError::Timeout {
                    url: url.to_owned(),
                    patience,
                    last: error,
                });
            }
            tracing::info!("waiting for the aggregator at {url}: {error}");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn subscribe(url: &str, client_id: &str) -> Result<Self, LinkError> {
        let limits = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_LIMIT))
            .max_frame_size(Some(MESSAGE_LIMIT));
        let connected = tokio_tungstenite::connect_async_with_config(url, Some(limits), true).await;
        let (socket, _) = connected.map_err(|error| LinkError::Refused(error.to_string()))?;
        let mut link = Self { socket };
        link.send(&json!({"type": "subscribe", "client_id": client_id})).await?;
        match link.receive("subscribe").await {
            Ok(_) => Ok(link),
            Err(LinkError::Gone(reason)) => Err(LinkError::Refused(reason)),
            Err(error) => Err(error),
        }
    }

    /// Sends a message.
    pub async fn send(&mut self, message: &Value) -> Result<(), LinkError> {
        Ok(self.socket.send(Message::text(message.to_string())).await?)
    }

    /// The next message of this type; others (who joined, what other clients say) are passed over.
    pub async fn receive(&mut self, kind: &str) -> Result<Value, LinkError> {
        let mut ping = tokio::time::interval(PING_PERIOD);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        loop {
            let received = tokio::select! {
                received = self.socket.next() => received,
                _ = ping.tick() => {
                    if heard.elapsed() > SILENCE {
                        return Err(LinkError::Gone(format!("nothing heard for {} s", SILENCE.as_secs())));
                    }
                    self.socket.send(Message::Ping(tungstenite::Bytes::new())).await?;
                    continue;
                }
            };
            heard = Instant::now();
            let text = match received.transpose()? {
                None => return Err(LinkError::Gone("closed".into())),
                Some(Message::Close(frame)) => {
                    let reason = frame
                        .map(|frame| frame.reason.to_string())
                        .filter(|reason| !reason.is_empty());
                    return Err(LinkError::Gone(reason.unwrap_or_else(|| "closed".into())));
                }
                Some(Message::Text(text)) => text,
                Some(_) => continue,
            };
            let message: Value = serde_json::from_str(&text).map_err(|error| LinkError::Gone(error.to_string()))?;
            if message.get("type").and_then(Value::as_str) == Some(kind) {
                return Ok(message);
            }
        }
    }

    /// Takes leave.
    pub async fn close(mut self) {
        // An aggregator that is gone already need not be told.
        let _ = self.socket.close(None).await;
    }
}
