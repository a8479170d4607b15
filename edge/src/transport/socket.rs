//! A WebSocket as both ends use it: frames in, frames out, neither waiting for the other.

use std::{
    collections::VecDeque,
    error::Error as _,
    future::poll_fn,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::{Sink, Stream};
use thiserror::Error;
use tokio_tungstenite::tungstenite::{self, error::CapacityError};

use super::doors::Place;
use crate::{
    limits,
    message::{Downstream, MessageError, Received, Upstream},
};

/// A frame of one direction.
pub trait Frame: Sized {
    /// Its text.
    fn encode(&self) -> Result<String, serde_json::Error>;
    /// Reads it.
    fn decode(text: &str) -> Result<Received<Self>, MessageError>;
    /// Whether it is one of those that a window of their own bounds.
    fn is_change(&self) -> bool;
}

impl Frame for Downstream {
    fn encode(&self) -> Result<String, serde_json::Error> {
        self.encode()
    }

    fn decode(text: &str) -> Result<Received<Self>, MessageError> {
        Self::decode(text)
    }

    fn is_change(&self) -> bool {
        matches!(
            self,
            Self::Put { .. } | Self::PutCredential { .. } | Self::Delete { .. }
        )
    }
}

impl Frame for Upstream {
    fn encode(&self) -> Result<String, serde_json::Error> {
        self.encode()
    }

    fn decode(text: &str) -> Result<Received<Self>, MessageError> {
        Self::decode(text)
    }

    fn is_change(&self) -> bool {
        false
    }
}

/// A message of a WebSocket library.
pub trait WireMessage: Sized {
    /// A text message.
    fn text(text: String) -> Self;
    /// A ping, with the mark that its pong brings back.
    fn ping(mark: Option<u64>) -> Self;
    /// What this message is to a session; none for what ends the connection.
    fn read<F: Frame>(&self) -> Option<Event<F>>;
    /// The bytes of one that can come in the midst of another: a ping or a pong.
    fn in_between(&self) -> Option<usize>;
}

/// Bytes that a frame of at most 125 bytes, as pings and pongs are, has before its payload where it comes from a client (RFC
/// 6455, 5.2).
pub(super) const SHORT_HEAD: usize = 6;

/// An error of a WebSocket library.
pub trait WireError: std::fmt::Display {
    /// What of a frame's limits the other side broke; none for everything else. No frame can be read after that.
    fn breach(&self) -> Option<MessageError>;
}

impl WireError for tungstenite::Error {
    fn breach(&self) -> Option<MessageError> {
        match self {
            Self::Capacity(CapacityError::MessageTooLong { size, max_size }) => Some(MessageError::TooLong {
                bytes: *size,
                limit: *max_size,
            }),
            Self::Utf8(_) => Some(MessageError::NotText),
            _ => None,
        }
    }
}

impl WireError for axum::Error {
    fn breach(&self) -> Option<MessageError> {
        self.source()?.downcast_ref::<tungstenite::Error>()?.breach()
    }
}

/// What a connection brings.
#[derive(Debug)]
pub enum Event<F> {
    /// A frame.
    Frame(Result<Received<F>, MessageError>),
    /// A ping; or a pong, where nobody asks for how long it took.
    Heard,
    /// A pong, with the mark of the ping that it answers.
    Pong(Option<u64>),
}

/// What a ping with this mark carries.
pub(super) fn payload(mark: Option<u64>) -> Vec<u8> {
    mark.map_or_else(Vec::new, |mark| mark.to_be_bytes().to_vec())
}

/// The mark of the ping that a pong with this payload answers.
pub(super) fn mark(payload: &[u8]) -> Option<u64> {
    payload.try_into().ok().map(u64::from_be_bytes)
}

/// How a connection ended.
#[derive(Debug, Error)]
pub enum Ended {
    /// The other side closed it.
    #[error("the other side closed the connection")]
    Closed,
    /// It broke, or the other side broke the rules of WebSocket.
    #[error("the connection broke: {0}")]
    Broken(String),
}

/// One end of a connection: reads frames `In`, writes frames `Out`.
pub struct Socket<W, M, In, Out> {
    wire: W,
    queue: VecDeque<Outgoing<Out>>,
    /// So many frames may wait to be written before nothing more is read.
    ahead: usize,
    /// How many frames wait that are no changes.
    others: usize,
    unflushed: bool,
    place: Option<Arc<Place>>,
    reads: PhantomData<fn(M) -> In>,
}

enum Outgoing<Out> {
    Frame(Out),
    Ping(Option<u64>),
}

impl<W, M, E, In, Out> Socket<W, M, In, Out>
where
    W: Stream<Item = Result<M, E>> + Sink<M, Error = E> + Unpin,
    M: WireMessage,
    E: WireError,
    In: Frame,
    Out: Frame,
{
    /// A socket over a WebSocket that is up.
    pub fn new(wire: W) -> Self {
        Self {
            wire,
            queue: VecDeque::new(),
            ahead: usize::MAX,
            others: 0,
            unflushed: false,
            place: None,
            reads: PhantomData,
        }
    }

    /// Reads nothing while more than so many frames wait to be written, those apart that the window of changes bounds. For
    /// one end only: two that wait for each other would wait for ever.
    #[must_use]
    pub fn reading_ahead(self, ahead: usize) -> Self {
        Self { ahead, ..self }
    }

    /// Holds this place until the connection is dropped.
    #[must_use]
    pub fn holding(self, place: Option<Arc<Place>>) -> Self {
        Self { place, ..self }
    }

    /// The place that the connection takes up, where its listener counts them.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_deref()
    }

    /// Queues a frame. It is written while [`Socket::next`] is awaited; the sessions' windows bound the queue.
    pub fn send(&mut self, frame: Out) {
        self.others += usize::from(!frame.is_change());
        self.queue.push_back(Outgoing::Frame(frame));
    }

    /// Queues a ping.
    pub fn ping(&mut self) {
        self.queue.push_back(Outgoing::Ping(None));
    }

    /// Queues a ping that is known again by its pong: whoever answers it has read all that was sent before.
    pub fn ping_marked(&mut self, mark: u64) {
        self.queue.push_back(Outgoing::Ping(Some(mark)));
    }

    /// Writes what is queued and reads what comes, until something has come. May be dropped and called again.
    pub async fn next(&mut self) -> Result<Event<In>, Ended> {
        poll_fn(|context| {
            match self.poll_write(context) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(broken(&error))),
                Poll::Pending if self.others > self.ahead => return Poll::Pending,
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
            Poll::Ready(match ready!(Pin::new(&mut self.wire).poll_next(context)) {
                Some(Ok(message)) => {
                    if let Some(place) = &self.place {
                        place.whole(message.in_between());
                    }
                    message.read().ok_or(Ended::Closed)
                }
                Some(Err(error)) => match error.breach() {
                    Some(breach) => Ok(Event::Frame(Err(breach))),
                    None => Err(broken(&error)),
                },
                None => Err(Ended::Closed),
            })
        })
        .await
    }

    /// Writes what is queued and reads nothing, for as long as this is awaited or until the connection breaks. May be
    /// dropped and called again.
    pub async fn write(&mut self) -> Ended {
        poll_fn(|context| match self.poll_write(context) {
            Poll::Ready(Err(error)) => Poll::Ready(broken(&error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Writes what is queued, closes the connection and waits for the other side to do so too, so that the last
    /// frames arrive. Gives up after [`limits::CLOSE`].
    pub async fn close(mut self) {
        let goodbye = async {
            poll_fn(|context| self.poll_write(context)).await.ok()?;
            poll_fn(|context| Pin::new(&mut self.wire).poll_close(context))
                .await
                .ok()?;
            while self.next().await.is_ok() {}
            Some(())
        };
        // That the goodbye did not get through changes nothing: the connection is dropped either way.
        let _ = tokio::time::timeout(limits::CLOSE, goodbye).await;
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        while !self.queue.is_empty() {
            ready!(Pin::new(&mut self.wire).poll_ready(context)).map_err(|error| error.to_string())?;
            let Some(outgoing) = self.queue.pop_front() else { break };
            let message = match outgoing {
                Outgoing::Ping(mark) => M::ping(mark),
                Outgoing::Frame(frame) => {
                    self.others -= usize::from(!frame.is_change());
                    M::text(frame.encode().map_err(|error| error.to_string())?)
                }
            };
            Pin::new(&mut self.wire)
                .start_send(message)
                .map_err(|error| error.to_string())?;
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.wire).poll_flush(context)).map_err(|error| error.to_string())?;
            self.unflushed = false;
            // An idle connection keeps no memory of a busy time.
            self.queue = VecDeque::new();
        }
        Poll::Ready(Ok(()))
    }
}

fn broken(error: &impl std::fmt::Display) -> Ended {
    Ended::Broken(error.to_string())
}
