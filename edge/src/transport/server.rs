//! The manager's side: takes connections, upgrades them and hands them on.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    Extension, Router,
    body::Body,
    extract::ws::{Message, WebSocket, WebSocketUpgrade},
    http::{Request, StatusCode},
    response::{IntoResponse as _, Response},
    routing::any,
    serve::Listener,
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{Buffers, Event, Frame, Socket, WireMessage, doors::Place, socket};
use crate::{
    cloud::Peer,
    limits,
    message::{Downstream, Upstream},
};

/// Bytes of a request's head, and that are read of its body at once. hyper panics where it is to do with less.
const HEAD_BYTES: usize = 8192;

/// The manager's end of a connection.
pub type ManagerSocket = Socket<WebSocket, Message, Upstream, Downstream>;

/// What a listener knows of the other side of a connection.
pub trait Address {
    /// What of it counts for a session.
    fn peer(&self) -> Peer;

    /// The place that the connection takes up, where its listener counts them.
    fn place(&self) -> Option<Arc<Place>> {
        None
    }
}

impl Address for SocketAddr {
    fn peer(&self) -> Peer {
        Peer {
            identity: None,
            confidential: self.ip().to_canonical().is_loopback(),
        }
    }
}

/// A router that upgrades requests for `/` which offer the subprotocol, and hands the sockets to `handle`.
///
/// What is known of the peer is the request's [`Peer`] extension, as [`serve`] sets it; without one, nothing is.
pub fn router<F, Handled>(handle: F) -> Router
where
    F: Fn(Peer, ManagerSocket) -> Handled + Clone + Send + Sync + 'static,
    Handled: Future<Output = ()> + Send + 'static,
{
    let upgrade =
        async move |peer: Option<Extension<Peer>>, place: Option<Extension<Arc<Place>>>, upgrade: WebSocketUpgrade| {
            let peer = peer.map(|Extension(peer)| peer).unwrap_or_default();
            let place = place.map(|Extension(place)| place);
            take(upgrade, move |socket| handle(peer, socket.holding(place)))
        };
    Router::new().route("/", any(upgrade))
}

fn take<F, Handled>(upgrade: WebSocketUpgrade, handle: F) -> Response
where
    F: FnOnce(ManagerSocket) -> Handled + Send + 'static,
    Handled: Future<Output = ()> + Send + 'static,
{
    let upgrade = upgrade
        .protocols([limits::SUBPROTOCOL])
        .read_buffer_size(Buffers::MANAGER.read)
        .write_buffer_size(Buffers::MANAGER.write)
        .max_message_size(limits::MAX_UPSTREAM)
        .max_frame_size(limits::MAX_UPSTREAM);
    if upgrade.selected_protocol().is_none() {
        let hint = format!(
            "this address speaks WebSocket with the subprotocol {}\n",
            limits::SUBPROTOCOL
        );
        return (StatusCode::BAD_REQUEST, hint).into_response();
    }
    upgrade.on_upgrade(move |wire| handle(Socket::new(wire).reading_ahead(limits::QUEUED_FRAMES)))
}

/// Serves `router` on every connection that `listener` takes, until `stop`. Connections that were upgraded by then
/// live on: whoever handles them ends them.
pub async fn serve<L>(mut listener: L, router: Router, stop: CancellationToken)
where
    L: Listener,
    L::Addr: Address,
{
    loop {
        let (io, address) = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (router, peer, place) = (router.clone(), address.peer(), address.place());
        let io = Metered {
            io,
            place: place.clone(),
        };
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (router, peer, place) = (router.clone(), peer.clone(), place.clone());
            async move {
                request.extensions_mut().insert(peer);
                place.map(|place| request.extensions_mut().insert(place));
                Ok::<_, Infallible>(router.oneshot(request.map(Body::new)).await.into_response())
            }
        });
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits::HANDSHAKE)
                .max_buf_size(HEAD_BYTES)
                .serve_connection(TokioIo::new(io), service)
                .with_upgrades();
            // Done with once it is upgraded.
            match timeout(limits::REQUEST, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a connection ended before it became a session"),
                Err(_) => tracing::debug!("a connection became no session within {:?}", limits::REQUEST),
            }
        });
    }
}

/// A connection that ends where it brings more than one may that has proven nothing.
struct Metered<Io> {
    io: Io,
    place: Option<Arc<Place>>,
}

impl<Io: AsyncRead + Unpin> AsyncRead for Metered<Io> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, read: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = read.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, read))?;
        let brought = read.filled().len() - before;
        let taken = self.place.as_ref().map_or(Ok(()), |place| place.brought(brought));
        Poll::Ready(taken.map_err(io::Error::other))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Metered<Io> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
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
            Self::Ping(_) => Some(Event::Heard),
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
