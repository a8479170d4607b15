//! The node's side: dials the manager.

use std::{fmt, future::Future, io};

use axum::http::{HeaderValue, header::SEC_WEBSOCKET_PROTOCOL};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{self, Message, client::IntoClientRequest as _, protocol::WebSocketConfig},
};

use super::{Buffers, Event, Frame, Socket, WireMessage, socket};
use crate::{
    limits,
    message::{Downstream, Upstream},
};

/// How a node reaches the manager.
pub trait Dialer: Send + Sync {
    /// A byte stream.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The manager's name and port, for the `Host` header and for messages.
    fn host(&self) -> &str;

    /// Connects to the manager, TLS included where there is any.
    fn dial(&self) -> impl Future<Output = io::Result<Self::Io>> + Send;
}

/// Dials over plain TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpDialer {
    address: String,
}

impl TcpDialer {
    /// Dials this `host:port`; the name is resolved anew each time.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
        }
    }
}

impl Dialer for TcpDialer {
    type Io = TcpStream;

    fn host(&self) -> &str {
        &self.address
    }

    async fn dial(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.address).await?;
        // Frames are small and each is waited for.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Why the manager was not reached.
#[derive(Debug, Error)]
pub enum DialError {
    /// No connection.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// [`Dialer::host`].
        host: String,
        /// Why.
        source: io::Error,
    },
    /// A connection, but no session over it.
    #[error("{host} answers, but not as a manager that speaks {protocol}: {source}")]
    Upgrade {
        /// [`Dialer::host`].
        host: String,
        /// What it was to speak.
        protocol: &'static str,
        /// Why.
        source: Box<tungstenite::Error>,
    },
    /// Nothing within [`limits::HANDSHAKE`].
    #[error("{host} did not answer within {seconds} s", seconds = limits::HANDSHAKE.as_secs())]
    Timeout {
        /// [`Dialer::host`].
        host: String,
    },
}

/// The node's end of a connection.
pub type NodeSocket<Io> = Socket<WebSocketStream<Io>, Message, Downstream, Upstream>;

/// Connects to the manager.
pub async fn connect<D: Dialer>(dialer: &D) -> Result<NodeSocket<D::Io>, DialError> {
    let protocol = HeaderValue::from_static(limits::SUBPROTOCOL);
    // The library refuses a server that does not take up the subprotocol.
    let upgrade = Upgrade {
        protocol: limits::SUBPROTOCOL,
        header: (SEC_WEBSOCKET_PROTOCOL.as_str(), protocol),
        longest: limits::MAX_DOWNSTREAM,
    };
    upgrade.connect(dialer).await.map(Socket::new)
}

/// What differs between the protocols before the first message.
pub(crate) struct Upgrade {
    /// What it is called.
    pub(crate) protocol: &'static str,
    /// What the request has beside what every upgrade has.
    pub(crate) header: (&'static str, HeaderValue),
    /// Bytes of a message that may come.
    pub(crate) longest: usize,
}

impl Upgrade {
    /// Connects to the manager.
    pub(crate) async fn connect<D: Dialer>(self, dialer: &D) -> Result<WebSocketStream<D::Io>, DialError> {
        let Self {
            protocol,
            header: (name, value),
            longest,
        } = self;
        let host = || dialer.host().to_owned();
        let upgrade = |source| DialError::Upgrade {
            host: host(),
            protocol,
            source: Box::new(source),
        };
        let connecting = async {
            let mut request = format!("ws://{}/", dialer.host())
                .into_client_request()
                .map_err(upgrade)?;
            request.headers_mut().insert(name, value);
            let io = dialer
                .dial()
                .await
                .map_err(|source| DialError::Connect { host: host(), source })?;
            let config = WebSocketConfig::default()
                .read_buffer_size(Buffers::NODE.read)
                .write_buffer_size(Buffers::NODE.write)
                .max_message_size(Some(longest))
                .max_frame_size(Some(longest));
            let (wire, _) = client_async_with_config(request, io, Some(config))
                .await
                .map_err(upgrade)?;
            Ok(wire)
        };
        tokio::time::timeout(limits::HANDSHAKE, connecting)
            .await
            .unwrap_or_else(|_| Err(DialError::Timeout { host: host() }))
    }
}

impl WireMessage for Message {
    fn text(text: String) -> Self {
        Self::Text(text.into())
    }

    fn ping(mark: Option<u64>) -> Self {
        Self::Ping(socket::payload(mark).into())
    }

    fn read<F: Frame>(&self) -> Option<Event<F>> {
        match self {
            Self::Text(text) => Some(Event::Frame(F::decode(text))),
            // Not text, so not a frame: read as one, it is malformed.
            Self::Binary(_) => Some(Event::Frame(F::decode(""))),
            Self::Ping(_) | Self::Frame(_) => Some(Event::Heard),
            Self::Pong(payload) => Some(Event::Pong(socket::mark(payload))),
            Self::Close(_) => None,
        }
    }

    fn in_between(&self) -> Option<usize> {
        match self {
            Self::Ping(payload) | Self::Pong(payload) => Some(payload.len() + socket::SHORT_HEAD),
            _ => None,
        }
    }
}

impl<W, M, In, Out> fmt::Debug for Socket<W, M, In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").finish_non_exhaustive()
    }
}
