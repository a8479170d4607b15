//! Carries out what a node's session says: dials, reads and writes the socket, calls the store.
//!
//! Decides nothing: what is done, and in which order, is [`node::Session`]'s.

use std::{
    collections::VecDeque,
    future::{Future, pending, ready},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    message::{OutboxDepth, Upstream},
    node::{self, Asked, Batch, Input, Outgoing, Output, State, Wanted},
    object::Row,
    report::ReportResult,
    transport::{
        Event,
        client::{self, DialError, Dialer, NodeSocket},
    },
};

/// The node's durable store and outbox. Calls come one at a time, in the order in which they take effect.
pub trait Store: Send + Sync + 'static {
    /// Why something could not be done, one sentence.
    type Error: std::fmt::Display + Send;

    /// Makes the batch durable as a whole, or leaves the store as it was; how many items it holds then.
    fn store(&self, batch: Batch) -> impl Future<Output = Result<u64, Self::Error>> + Send;

    /// The rows of all items.
    fn rows(&self) -> impl Future<Output = Result<Vec<Row>, Self::Error>> + Send;

    /// What is wanted of the outbox, in order.
    fn fetch(&self, wanted: Wanted) -> impl Future<Output = Result<Vec<Outgoing>, Self::Error>> + Send;

    /// How much waits in the outbox; nothing where it is not counted.
    fn outbox(&self) -> impl Future<Output = Result<Option<OutboxDepth>, Self::Error>> + Send {
        ready(Ok(None))
    }

    /// Removes an entry of the outbox, where it still is there: the manager has answered it so.
    fn settle(&self, seq: u64, result: ReportResult) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// What the rest of the local controller and the link tell each other.
#[derive(Clone, Debug)]
pub struct Signals {
    /// Notified when something was put into the outbox.
    pub outbox: Arc<Notify>,
    /// Notified when the dialer proves by something else who the node is.
    pub identity_changed: Arc<Notify>,
    /// How the link stands.
    pub state: watch::Sender<State>,
    /// Ends the link.
    pub stop: CancellationToken,
}

impl Signals {
    /// Signals of a link that is not up.
    pub fn new(stop: CancellationToken) -> Self {
        let state = State::Waiting {
            until: Duration::ZERO,
            cause: None,
        };
        Self {
            outbox: Arc::default(),
            identity_changed: Arc::default(),
            state: watch::Sender::new(state),
            stop,
        }
    }
}

/// Runs a session until [`Signals::stop`]. `jitter` draws random numbers from [0, 1).
pub async fn run<D, S>(
    mut session: node::Session,
    dialer: D,
    store: Arc<S>,
    signals: Signals,
    mut jitter: impl FnMut() -> f64 + Send,
) where
    D: Dialer,
    S: Store,
{
    let origin = Instant::now();
    let mut connection = Connection::None;
    let mut orders = Orders {
        store,
        waiting: VecDeque::new(),
        working: None,
    };
    loop {
        let wake_at = session.wake_at().map(|at| origin + at);
        let input = tokio::select! {
            // In this order, so that a simulation replays. Each of the first is ready only now and then, so the
            // connection, which may be ready for long, has its turn.
            biased;
            () = signals.stop.cancelled() => break,
            () = sleep_until(wake_at) => Input::Tick,
            () = signals.outbox.notified() => Input::OutboxGrew,
            () = signals.identity_changed.notified() => Input::IdentityChanged,
            input = orders.next() => input,
            event = connection.next(session.is_behind()) => event.unwrap_or_else(|cause| {
                connection = Connection::None;
                Input::Disconnected { jitter: jitter(), cause }
            }),
        };
        let mut next = Some(input);
        while let Some(input) = next.take() {
            for output in session.handle(origin.elapsed(), input) {
                match output {
                    Output::Dial => connection = Connection::Dialling(client::connect(&dialer).boxed()),
                    Output::Send(frame) => connection.send(frame),
                    Output::Ping => connection.ping(),
                    Output::Close => {
                        if let Connection::Up(socket) = std::mem::replace(&mut connection, Connection::None) {
                            // In the background: the last frames may take a while to arrive.
                            tokio::spawn(socket.close());
                        }
                        next = Some(Input::Disconnected {
                            jitter: jitter(),
                            cause: String::new(),
                        });
                    }
                    Output::Store(batch) => orders.push(Order::Store(batch)),
                    Output::ReadRows => orders.push(Order::Rows),
                    Output::Fetch(wanted) => orders.push(Order::Fetch(wanted)),
                    Output::Weigh => orders.push(Order::Weigh),
                    Output::Settle { seq, result } => orders.push(Order::Settle { seq, result }),
                }
            }
        }
        signals.state.send_if_modified(|state| {
            let now = session.state();
            let news = *state != now;
            *state = now;
            news
        });
    }
    if let Connection::Up(socket) = connection {
        socket.close().await;
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => pending().await,
    }
}

enum Connection<'a, Io> {
    None,
    Dialling(BoxFuture<'a, Result<NodeSocket<Io>, DialError>>),
    Up(Box<NodeSocket<Io>>),
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Connection<'_, Io> {
    /// The next input; an error where there is no connection any more. Where the session is behind, nothing is read.
    async fn next(&mut self, is_behind: bool) -> Result<Input, String> {
        match self {
            Self::None => pending().await,
            Self::Dialling(dialling) => {
                let socket = dialling.await.map_err(|error| error.to_string())?;
                *self = Self::Up(Box::new(socket));
                Ok(Input::Connected)
            }
            Self::Up(socket) if is_behind => Err(socket.write().await.to_string()),
            Self::Up(socket) => match socket.next().await {
                Ok(Event::Frame(frame)) => Ok(Input::Frame(frame)),
                Ok(Event::Heard | Event::Pong(_)) => Ok(Input::Heard),
                Err(ended) => Err(ended.to_string()),
            },
        }
    }

    fn send(&mut self, frame: Upstream) {
        if let Self::Up(socket) = self {
            socket.send(frame);
        }
    }

    fn ping(&mut self) {
        if let Self::Up(socket) = self {
            socket.ping();
        }
    }
}

enum Order {
    Store(Batch),
    Rows,
    Fetch(Wanted),
    Weigh,
    Settle { seq: u64, result: ReportResult },
}

/// What the store is asked for, one at a time.
struct Orders<S> {
    store: Arc<S>,
    waiting: VecDeque<Order>,
    working: Option<BoxFuture<'static, Option<Input>>>,
}

impl<S: Store> Orders<S> {
    fn push(&mut self, order: Order) {
        self.waiting.push_back(order);
    }

    /// What came of an order that the session waits for. May be dropped and called again.
    async fn next(&mut self) -> Input {
        loop {
            if self.working.is_none()
                && let Some(order) = self.waiting.pop_front()
            {
                self.working = Some(carry_out(self.store.clone(), order).boxed());
            }
            let Some(working) = &mut self.working else {
                return pending().await;
            };
            let done = working.await;
            self.working = None;
            if let Some(input) = done {
                return input;
            }
        }
    }
}

async fn carry_out<S: Store>(store: Arc<S>, order: Order) -> Option<Input> {
    let failed = |asked| {
        move |error: S::Error| Input::StoreFailed {
            asked,
            cause: error.to_string(),
        }
    };
    Some(match order {
        Order::Store(batch) => match store.store(batch).await {
            Ok(holds) => Input::Stored { holds },
            Err(error) => failed(Asked::Store)(error),
        },
        Order::Rows => store.rows().await.map_or_else(failed(Asked::Rows), Input::Rows),
        Order::Fetch(wanted) => store
            .fetch(wanted)
            .await
            .map_or_else(failed(Asked::Fetch), Input::Fetched),
        // The next time is soon enough.
        Order::Weigh => Input::Weighed(store.outbox().await.unwrap_or_default()),
        Order::Settle { seq, result } => {
            if let Err(error) = store.settle(seq, result).await {
                // It is sent again with the next session.
                tracing::warn!(seq, %error, "an answered report could not be removed from the outbox");
            }
            return None;
        }
    })
}

#[cfg(test)]
mod tests;
