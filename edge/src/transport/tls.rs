//! TLS underneath the WebSocket: the manager's listener, which knows who has proven what, and the node's dialer.
//!
//! Whoever has not proven to be a node costs little: so many such connections at once are taken, in all and from one
//! address, and a connection that shows no certificate holds its place among them to its end.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use axum::serve::Listener;
use rustls::{
    ClientConfig, ServerConfig,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::{client::Dialer, server::Address};
use crate::{
    cloud::Peer,
    identity::{MANAGER, NodeCertificate},
    limits,
};

/// What is known of the other side of a TLS connection.
#[derive(Clone, Debug)]
pub struct TlsPeer {
    /// Its address.
    pub address: SocketAddr,
    /// The node that it has proven to be; none for one that is to join.
    pub certificate: Option<NodeCertificate>,
}

impl Address for TlsPeer {
    fn peer(&self) -> Peer {
        Peer {
            identity: self.certificate.clone(),
            confidential: self.certificate.is_some(),
        }
    }
}

/// Takes connections and lets none wait for the handshake of another.
#[derive(Debug)]
pub struct TlsListener {
    taken: mpsc::Receiver<(TlsConnection, TlsPeer)>,
    local: SocketAddr,
    _accepting: JoinSet<()>,
}

impl TlsListener {
    /// Serves what `listener` takes under this configuration.
    pub fn new(listener: TcpListener, config: Arc<ServerConfig>) -> io::Result<Self> {
        let local = listener.local_addr()?;
        let (hand_on, taken) = mpsc::channel(limits::ACCEPTED_AHEAD);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, TlsAcceptor::from(config), hand_on));
        Ok(Self {
            taken,
            local,
            _accepting: accepting,
        })
    }
}

impl Listener for TlsListener {
    type Io = TlsConnection;
    type Addr = TlsPeer;

    async fn accept(&mut self) -> (Self::Io, TlsPeer) {
        match self.taken.recv().await {
            Some(taken) => taken,
            // The task that accepts never ends before this does.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<TlsPeer> {
        Ok(TlsPeer {
            address: self.local,
            certificate: None,
        })
    }
}

async fn accept(mut listener: TcpListener, acceptor: TlsAcceptor, hand_on: mpsc::Sender<(TlsConnection, TlsPeer)>) {
    let unproven = Unproven::default();
    let mut handshakes = JoinSet::new();
    loop {
        // This one goes on after errors such as too many open files, as axum's does.
        let (stream, address) = Listener::accept(&mut listener).await;
        while handshakes.try_join_next().is_some() {}
        let Some(place) = unproven.enter(address.ip()) else {
            tracing::debug!(%address, "a connection is not taken: there are too many that have proven nothing");
            continue;
        };
        let (acceptor, hand_on) = (acceptor.clone(), hand_on.clone());
        handshakes.spawn(async move {
            // Where that cannot be had, frames are slow, not lost.
            let _ = stream.set_nodelay(true);
            match timeout(limits::HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let certificate = proven(&stream);
                    let place = certificate.is_none().then_some(place);
                    let connection = TlsConnection { stream, place };
                    // The receiver is gone when the listener is.
                    let _ = hand_on.send((connection, TlsPeer { address, certificate })).await;
                }
                Ok(Err(error)) => tracing::debug!(%address, %error, "a handshake failed"),
                Err(_) => tracing::debug!(%address, "a handshake took longer than {:?}", limits::HANDSHAKE),
            }
        });
    }
}

fn proven(stream: &server::TlsStream<TcpStream>) -> Option<NodeCertificate> {
    let certificate: &CertificateDer<'_> = stream.get_ref().1.peer_certificates()?.first()?;
    NodeCertificate::read(certificate).ok()
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub struct TlsConnection {
    stream: server::TlsStream<TcpStream>,
    /// Of one that has proven nothing: given back when the connection is dropped.
    #[cfg_attr(not(test), expect(dead_code, reason = "held, not read"))]
    place: Option<Place>,
}

impl AsyncRead for TlsConnection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, read: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, read)
    }
}

impl AsyncWrite for TlsConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// How many connections have proven nothing, by address.
#[derive(Clone, Debug, Default)]
struct Unproven(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A place among them.
#[derive(Debug)]
struct Place {
    unproven: Unproven,
    address: IpAddr,
}

impl Unproven {
    fn enter(&self, address: IpAddr) -> Option<Place> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = places.values().sum();
        let here = places.get(&address).copied().unwrap_or_default();
        if all >= limits::UNPROVEN || here >= limits::UNPROVEN_PER_ADDRESS {
            return None;
        }
        places.insert(address, here + 1);
        Some(Place {
            unproven: self.clone(),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.unproven.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(here) = places.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                places.remove(&self.address);
            }
        }
    }
}

/// Dials over TLS, with whatever certificate the node has at that time.
#[derive(Clone, Debug)]
pub struct TlsDialer {
    address: String,
    config: watch::Receiver<Arc<ClientConfig>>,
}

impl TlsDialer {
    /// Dials this `host:port`; the name is resolved anew each time.
    pub fn new(address: impl Into<String>, config: watch::Receiver<Arc<ClientConfig>>) -> Self {
        Self {
            address: address.into(),
            config,
        }
    }
}

impl Dialer for TlsDialer {
    type Io = client::TlsStream<TcpStream>;

    fn host(&self) -> &str {
        &self.address
    }

    async fn dial(&self) -> io::Result<Self::Io> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(self.config.borrow().clone());
        let name = ServerName::try_from(MANAGER).map_err(io::Error::other)?;
        connector.connect(name, stream).await
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use jiff::{SignedDuration, Timestamp};
    use rustls::time_provider::DefaultTimeProvider;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::identity::{
        Authority, NodeKey,
        trust::{Trust, manager_config, node_config},
    };

    const LIFETIME: SignedDuration = SignedDuration::from_hours(24);

    async fn listen(authority: &Authority) -> TlsListener {
        let manager = authority.issue_manager(Timestamp::now()).unwrap();
        let config = manager_config(authority, manager, LIFETIME, Arc::new(DefaultTimeProvider)).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        TlsListener::new(listener, Arc::new(config)).unwrap()
    }

    /// A dialer of the node `edge-1`; the sender gives it another identity.
    fn node(authority: &Authority, manager: SocketAddr) -> (watch::Sender<Arc<ClientConfig>>, TlsDialer) {
        let (told, config) = watch::channel(Arc::new(config(authority, "edge-1")));
        (told, TlsDialer::new(manager.to_string(), config))
    }

    fn config(authority: &Authority, node: &str) -> ClientConfig {
        let key = NodeKey::generate().unwrap();
        let request = key.request().unwrap();
        let certificate = authority.issue(node, &request, Timestamp::now(), LIFETIME).unwrap();
        let trust = Trust::Authority(authority.certificate().clone());
        node_config(trust, Some((certificate, &key))).unwrap()
    }

    fn named(peer: &TlsPeer) -> Option<String> {
        peer.peer().identity.map(|certificate| certificate.node)
    }

    #[tokio::test]
    async fn a_connection_is_known_by_its_certificate_and_the_next_by_that_of_then() {
        let authority = Authority::new("test", Timestamp::now()).unwrap();
        let mut listener = listen(&authority).await;
        let address = listener.local_addr().unwrap().address;
        let (told, dialer) = node(&authority, address);
        for name in ["edge-1", "edge-2"] {
            told.send(Arc::new(config(&authority, name))).unwrap();
            let (mut here, (mut there, peer)) = tokio::join!(async { dialer.dial().await.unwrap() }, listener.accept());
            assert_eq!(named(&peer).as_deref(), Some(name));
            assert!(peer.peer().confidential);
            here.write_all(b"frame").await.unwrap();
            here.flush().await.unwrap();
            let mut read = [0; 5];
            there.read_exact(&mut read).await.unwrap();
            assert_eq!(&read, b"frame");
        }
    }

    #[tokio::test]
    async fn whoever_says_nothing_holds_nobody_up() {
        let authority = Authority::new("test", Timestamp::now()).unwrap();
        let mut listener = listen(&authority).await;
        let address = listener.local_addr().unwrap().address;
        let silent = TcpStream::connect(address).await.unwrap();
        let mut garbled = TcpStream::connect(address).await.unwrap();
        garbled.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let (_told, dialer) = node(&authority, address);
        let (_, (_, peer)) = tokio::join!(async { dialer.dial().await.unwrap() }, listener.accept());
        assert_eq!(named(&peer).as_deref(), Some("edge-1"));
        drop(silent);
    }

    #[tokio::test]
    async fn a_connection_without_a_certificate_holds_itsplace_to_its_end() {
        let authority = Authority::new("test", Timestamp::now()).unwrap();
        let mut listener = listen(&authority).await;
        let address = listener.local_addr().unwrap().address;
        let config = node_config(Trust::Fingerprint(authority.fingerprint()), None).unwrap();
        let dialer = TlsDialer::new(address.to_string(), watch::channel(Arc::new(config)).1);
        let (_here, (there, peer)) = tokio::join!(async { dialer.dial().await.unwrap() }, listener.accept());
        assert_eq!(named(&peer), None);
        let unproven = there.place.as_ref().unwrap().unproven.clone();
        assert_eq!(unproven.0.lock().unwrap().len(), 1);
        drop(there);
        assert!(unproven.0.lock().unwrap().is_empty());
    }

    #[test]
    fn unproven_connections_are_few_from_one_address_and_in_all() {
        let unproven = Unproven::default();
        let from = |address: usize| IpAddr::from(Ipv4Addr::from(u32::try_from(address).unwrap()));
        let mut places = vec![];
        for address in 0.. {
            let here: Vec<_> = std::iter::from_fn(|| unproven.enter(from(address))).collect();
            let left = limits::UNPROVEN - places.len();
            assert_eq!(here.len(), limits::UNPROVEN_PER_ADDRESS.min(left), "from {address}");
            if here.is_empty() {
                break;
            }
            places.extend(here);
        }
        places.pop();
        assert!(
            unproven.enter(from(0)).is_none(),
            "one address alone does not get what is left"
        );
        places.clear();
        assert!(unproven.0.lock().unwrap().is_empty());
    }
}
