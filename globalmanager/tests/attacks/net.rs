//! A manager on a network in memory, so that hours pass in no time.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use axum::serve::Listener;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rustls::{ClientConfig, pki_types::ServerName, time_provider::DefaultTimeProvider};
use serde_json::json;
use skerry_edge::{
    Object, ObjectKey,
    identity::{
        Authority, MANAGER, NodeKey, Revocations,
        trust::{Trust, manager_config, node_config},
    },
    limits,
    transport::{server, tls::TlsListener},
};
use skerry_globalmanager::{
    engine::Taken,
    hub::{Answers, Hub, Part, Reported, Reports},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex},
    sync::{Semaphore, mpsc},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    common::first_term,
    wire::{PIPE, Said, Wire, report},
};

/// From where a connection comes where it does not matter.
pub(crate) const SOMEWHERE: [u8; 4] = [10, 0, 0, 1];

/// A connection, in plain or over TLS.
pub(crate) type Line = Box<dyn Io>;

pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// A manager that leads.
pub(crate) struct World {
    pub(crate) hub: Hub,
    pub(crate) engine: Arc<Engine>,
    pub(crate) authority: Authority,
    net: mpsc::UnboundedSender<(DuplexStream, SocketAddr)>,
    proves: bool,
    _stop: DropGuard,
}

/// Takes reports; those on [`STUCK`] and what begins with that when it is let.
pub(crate) struct Engine {
    pub(crate) taken: Mutex<Vec<(String, u64)>>,
    pub(crate) turns: Semaphore,
}

/// A Dataset whose reports the API server does not take for now.
pub(crate) const STUCK: &str = "stuck";

#[async_trait]
impl Reports for Engine {
    async fn take(&self, key: &ObjectKey, reports: &[Reported]) -> Answers {
        for Reported { node, report, .. } in reports {
            if key.name.starts_with(STUCK) {
                self.turns.acquire().await.unwrap().forget();
            }
            self.taken.lock().push((node.to_string(), report.seq));
        }
        Answers {
            each: vec![Taken::Accepted; reports.len()],
            asked: false,
        }
    }
}

/// Where its connections come from.
pub(crate) struct Net(mpsc::UnboundedReceiver<(DuplexStream, SocketAddr)>);

impl Listener for Net {
    type Io = DuplexStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (DuplexStream, SocketAddr) {
        match self.0.recv().await {
            Some(come) => come,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok((Ipv4Addr::LOCALHOST, 9000).into())
    }
}

impl World {
    /// One whose nodes come in plain.
    pub(crate) fn plain() -> Self {
        let (world, net, stop) = Self::new();
        let hub = world.hub.clone();
        tokio::spawn(async move { hub.serve_on(net, stop).await });
        world
    }

    /// One whose nodes prove who they are.
    pub(crate) fn tls() -> Self {
        let (mut world, net, stop) = Self::new();
        world.proves = true;
        let own = world.authority.issue_manager(Timestamp::now()).unwrap();
        let config = manager_config(
            &world.authority,
            own,
            SignedDuration::ZERO,
            Arc::new(DefaultTimeProvider),
        );
        let listener = TlsListener::new(net, Arc::new(config.unwrap()), world.hub.doors()).unwrap();
        world.hub.revoke(Revocations::default());
        tokio::spawn(server::serve(listener, world.hub.router(), stop));
        world
    }

    /// One that does not listen yet.
    pub(crate) fn new() -> (Self, Net, CancellationToken) {
        let (hub, stop) = (Hub::with_jitter(|| 0.0), CancellationToken::new());
        let engine = Arc::new(Engine {
            taken: Mutex::default(),
            turns: Semaphore::new(0),
        });
        hub.lead(first_term(), engine.clone());
        let (net, come) = mpsc::unbounded_channel();
        let world = Self {
            hub,
            engine,
            authority: Authority::new("test", Timestamp::now()).unwrap(),
            net,
            proves: false,
            _stop: stop.clone().drop_guard(),
        };
        (world, Net(come), stop)
    }

    /// A connection from this address.
    pub(crate) fn dial_from(&self, address: [u8; 4]) -> Wire<DuplexStream> {
        let (here, there) = duplex(PIPE);
        self.net
            .send((there, (Ipv4Addr::from(address), 40_000).into()))
            .unwrap();
        Wire(here)
    }

    /// A connection.
    pub(crate) fn dial(&self) -> Wire<DuplexStream> {
        self.dial_from(SOMEWHERE)
    }

    /// A configuration of TLS for this node.
    pub(crate) fn certified(&self, node: &str) -> Arc<ClientConfig> {
        let key = NodeKey::generate().unwrap();
        let lifetime = SignedDuration::from_hours(1);
        let certificate = self
            .authority
            .issue(node, &key.request().unwrap(), Timestamp::now(), lifetime)
            .unwrap();
        let trust = Trust::Authority(self.authority.certificate().clone());
        Arc::new(node_config(trust, Some((certificate, &key))).unwrap())
    }

    /// A configuration of TLS that proves nothing.
    pub(crate) fn stranger(&self) -> Arc<ClientConfig> {
        Arc::new(node_config(Trust::Fingerprint(self.authority.fingerprint()), None).unwrap())
    }

    /// A connection over TLS.
    pub(crate) async fn dial_tls(&self, config: Arc<ClientConfig>) -> io::Result<Wire<TlsStream<DuplexStream>>> {
        let name = ServerName::try_from(MANAGER).unwrap();
        TlsConnector::from(config).connect(name, self.dial().0).await.map(Wire)
    }

    /// A connection of this node as this manager has it: in plain, or over TLS with the node's certificate.
    pub(crate) async fn come(&self, node: &str) -> Wire<Line> {
        if self.proves {
            let wire = self.dial_tls(self.certified(node)).await.unwrap();
            return Wire(Box::new(wire.0));
        }
        Wire(Box::new(self.dial().0))
    }

    /// A session whose digest is done.
    pub(crate) async fn live(&self, node: &str) -> Wire<Line> {
        let mut wire = self.come(node).await;
        wire.begin(node).await;
        wire
    }

    /// This node should hold a Dataset of this name.
    pub(crate) fn place(&self, node: &str, name: &str, edit: i64) {
        let object = Object {
            key: key(name),
            uid: uid(name),
            generation: edit,
            body: json!({"edit": edit}).into(),
        };
        let part = Part {
            object,
            credentials: Vec::new(),
        };
        self.hub.set(&key(name), BTreeMap::from([(node.to_owned(), part)]));
    }

    /// Whoever means well is served as ever: it connects, gets what it should hold, and reports.
    pub(crate) async fn serves_others(&self) {
        let name = format!("honest-{}", self.hub.snapshot().connections);
        let mut wire = self.live(&name).await;
        self.place(&name, &name, 1);
        let put = wire.frame().await;
        wire.text(&json!({"ack": {"version": put["put"]["version"]}}).to_string())
            .await
            .unwrap();
        assert_eq!(put["put"]["object"]["key"]["name"], json!(name), "{put}");
        wire.text(&report(1, &name, &uid(&name))).await.unwrap();
        assert_eq!(wire.answer().await, (1, None));
        wire.0.shutdown().await.unwrap();
        while !matches!(wire.next().await, Said::Gone) {}
    }

    /// Waits until as many sessions are there.
    pub(crate) async fn sessions(&self, sessions: usize) {
        while self.hub.snapshot().sessions != sessions {
            tokio::task::yield_now().await;
        }
    }
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("dataset", "default", name)
}

pub(crate) fn uid(name: &str) -> String {
    format!("uid-{name}")
}

/// Whether this took about so long.
pub(crate) fn about(took: Duration, limit: Duration) {
    let most = limit + limits::CLOSE + Duration::from_secs(1);
    assert!(
        (limit..=most).contains(&took),
        "it took {took:?}, and should take {limit:?}"
    );
}
