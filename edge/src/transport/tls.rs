//! TLS underneath the WebSocket: the manager's listener, which knows who has proven what, and the node's dialer.
//!
//! Whoever has not proven to be a node costs little: [`super::doors`] counts them.

use std::{io, net::SocketAddr, sync::Arc};

use axum::serve::Listener;
use rustls::{
    ClientConfig, ServerConfig,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::{mpsc, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server::TlsStream};

use super::{
    client::Dialer,
    doors::{Doors, Place, Proof, Turned},
    server::Address,
};
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
    place: Option<Arc<Place>>,
}

impl Address for TlsPeer {
    fn peer(&self) -> Peer {
        Peer {
            identity: self.certificate.clone(),
            confidential: self.certificate.is_some(),
        }
    }

    fn place(&self) -> Option<Arc<Place>> {
        self.place.clone()
    }
}

/// Takes connections as far as there is room for them, and lets none wait for the handshake of another.
#[derive(Debug)]
pub struct TlsListener<Io> {
    taken: mpsc::Receiver<(TlsStream<Io>, TlsPeer)>,
    local: SocketAddr,
    _accepting: JoinSet<()>,
}

impl<Io: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsListener<Io> {
    /// Serves what `listener` takes under this configuration.
    pub fn new<L>(listener: L, config: Arc<ServerConfig>, doors: Doors) -> io::Result<Self>
    where
        L: Listener<Io = Io, Addr = SocketAddr>,
    {
        let local = listener.local_addr()?;
        let (hand_on, taken) = mpsc::channel(limits::ACCEPTED_AHEAD);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, TlsAcceptor::from(config), doors, hand_on));
        Ok(Self {
            taken,
            local,
            _accepting: accepting,
        })
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin + Send + 'static> Listener for TlsListener<Io> {
    type Io = TlsStream<Io>;
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
            place: None,
        })
    }
}

async fn accept<L: Listener<Addr = SocketAddr>>(
    mut listener: L,
    acceptor: TlsAcceptor,
    doors: Doors,
    hand_on: mpsc::Sender<(TlsStream<L::Io>, TlsPeer)>,
) {
    let mut handshakes = JoinSet::new();
    loop {
        // This one goes on after errors such as too many open files, as axum's does.
        let (stream, address) = listener.accept().await;
        while handshakes.try_join_next().is_some() {}
        let Ok(place) = doors.enter(address.ip()) else { continue };
        let (acceptor, doors, hand_on) = (acceptor.clone(), doors.clone(), hand_on.clone());
        handshakes.spawn(async move {
            let stream = match timeout(limits::HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return doors.turn("handshake", &address, &error),
                Err(_) => {
                    let why = format!("no TLS handshake within {} s", limits::HANDSHAKE.as_secs());
                    return doors.turn("handshake", &address, &why);
                }
            };
            let certificate = proven(&stream);
            let taken = certificate
                .as_ref()
                .map_or(Ok(()), |certificate| place.prove(&certificate.node, Proof::Certificate));
            if let Err(turned) = taken {
                return turn_away(stream, &turned).await;
            }
            let peer = TlsPeer {
                address,
                certificate,
                place: Some(Arc::new(place)),
            };
            // The receiver is gone when the listener is.
            let _ = hand_on.send((stream, peer)).await;
        });
    }
}

fn proven<Io>(stream: &TlsStream<Io>) -> Option<NodeCertificate> {
    let certificate: &CertificateDer<'_> = stream.get_ref().1.peer_certificates()?.first()?;
    NodeCertificate::read(certificate).ok()
}

/// Tells a node why it is not taken, in the answer to whatever it asks.
async fn turn_away<Io: AsyncRead + AsyncWrite + Unpin>(mut stream: TlsStream<Io>, turned: &Turned) {
    let sentence = format!("{turned}: try again later\n");
    let answer = format!(
        "HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{sentence}",
        sentence.len()
    );
    let telling = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // What was closed before the question was read would take the answer with it.
        let mut question = [0; 512];
        while stream.read(&mut question).await? > 0 {}
        io::Result::Ok(())
    };
    // Whether it hears it or not, it is not taken.
    let _ = timeout(limits::CLOSE, telling).await;
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
    use tokio::net::TcpListener;

    use super::*;
    use crate::identity::{
        Authority, NodeKey,
        trust::{Trust, manager_config, node_config},
    };

    const LIFETIME: SignedDuration = SignedDuration::from_hours(24);

    async fn listen(authority: &Authority) -> TlsListener<TcpStream> {
        listen_with(authority, Doors::default()).await
    }

    async fn listen_with(authority: &Authority, doors: Doors) -> TlsListener<TcpStream> {
        let manager = authority.issue_manager(Timestamp::now()).unwrap();
        let config = manager_config(authority, manager, LIFETIME, Arc::new(DefaultTimeProvider)).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        TlsListener::new(listener, Arc::new(config), doors).unwrap()
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
    async fn a_connection_without_a_certificate_holds_its_place_to_its_end() {
        let authority = Authority::new("test", Timestamp::now()).unwrap();
        let doors = Doors::default();
        let mut listener = listen_with(&authority, doors.clone()).await;
        let address = listener.local_addr().unwrap().address;
        let config = node_config(Trust::Fingerprint(authority.fingerprint()), None).unwrap();
        let stranger = TlsDialer::new(address.to_string(), watch::channel(Arc::new(config)).1);
        let (_here, (_there, peer)) = tokio::join!(async { stranger.dial().await.unwrap() }, listener.accept());
        assert_eq!((named(&peer), doors.present()), (None, (1, 0)));
        drop(peer);
        assert_eq!(doors.present(), (0, 0));
        let (_told, dialer) = node(&authority, address);
        let (_here, (_there, peer)) = tokio::join!(async { dialer.dial().await.unwrap() }, listener.accept());
        assert_eq!((named(&peer).as_deref(), doors.present()), (Some("edge-1"), (0, 1)));
    }

    #[tokio::test]
    async fn so_many_wait_to_be_taken_up_and_the_others_for_them() {
        let authority = Authority::new("test", Timestamp::now()).unwrap();
        let doors = Doors::default();
        let mut listener = listen_with(&authority, doors.clone()).await;
        let (told, dialer) = node(&authority, listener.local_addr().unwrap().address);
        let nodes: Vec<_> = (0..limits::ACCEPTED_AHEAD + 5)
            .map(|node| format!("edge-{node}"))
            .collect();
        let mut here = Vec::new();
        for name in &nodes {
            told.send(Arc::new(config(&authority, name))).unwrap();
            here.push(dialer.dial().await.unwrap());
        }
        while doors.present() != (0, nodes.len()) {
            tokio::task::yield_now().await;
        }
        assert_eq!(listener.taken.len(), limits::ACCEPTED_AHEAD);
        let mut taken = Vec::new();
        for _ in &nodes {
            taken.extend(named(&listener.accept().await.1));
        }
        taken.sort();
        let mut nodes = nodes;
        nodes.sort();
        assert_eq!(taken, nodes, "each is taken up in the end");
    }
}
