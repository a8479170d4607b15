//! A manager on a network in memory, so that hours pass in no time, and a wire over which any bytes can be sent.

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
use serde_json::{Value, json};
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
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex},
    sync::{Semaphore, mpsc},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::common::first_term;

/// Bytes that are on their way.
pub(crate) const PIPE: usize = 4096;

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

/// A report on a Dataset.
pub(crate) fn report(seq: u64, name: &str, uid: &str) -> String {
    json!({"report": {"settled": 0, "report": {
        "seq": seq,
        "key": {"kind": "dataset", "namespace": "default", "name": name},
        "uid": uid,
        "observed_at": "2026-01-01T00:00:00Z",
        "payload": {"dataset-samples": {"count": 1}},
    }}})
    .to_string()
}

/// A hello.
pub(crate) fn hello(node: &str) -> String {
    hello_of_start(node, "boot")
}

/// A hello of this start of the node's local controller.
pub(crate) fn hello_of_start(node: &str, boot: &str) -> String {
    json!({"hello": {"node": node, "boot": boot, "protocol": 1, "agent": "test", "holds": 0}}).to_string()
}

/// The head of an upgrade.
pub(crate) const UPGRADE: &str = "GET / HTTP/1.1\r\nhost: manager\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
     sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
     sec-websocket-protocol: skerry.v1\r\n\r\n";

pub(crate) const CONTINUED: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const PING: u8 = 9;
const CLOSE: u8 = 8;
const FINAL: u8 = 0x80;

/// The head of a frame that says how much it brings. The mask is zero, so that it changes nothing.
pub(crate) fn head(code: u8, last: bool, length: u64) -> Vec<u8> {
    let mut head = vec![code | if last { FINAL } else { 0 }];
    match length {
        0..126 => head.push(0x80 | u8::try_from(length).unwrap()),
        126..65_536 => {
            head.push(0x80 | 0x7e);
            head.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        _ => {
            head.push(0x80 | 0x7f);
            head.extend(length.to_be_bytes());
        }
    }
    head.extend([0; 4]);
    head
}

/// A whole frame.
pub(crate) fn whole(code: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = head(code, true, payload.len() as u64);
    frame.extend(payload);
    frame
}

/// What comes over a wire.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    Frame(Value),
    /// A ping or a pong.
    Sign,
    Close,
    Gone,
}

/// One end of a connection, whatever is sent over it.
pub(crate) struct Wire<Io>(pub(crate) Io);

impl<Io: AsyncRead + AsyncWrite + Unpin> Wire<Io> {
    /// Asks for a WebSocket; the head of the answer.
    pub(crate) async fn upgrade(&mut self) -> String {
        self.ask(UPGRADE).await
    }

    /// Sends this head; that of the answer.
    pub(crate) async fn ask(&mut self, head: &str) -> String {
        self.send(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            match self.0.read_u8().await {
                Ok(byte) => answer.push(byte),
                Err(_) => break,
            }
        }
        String::from_utf8(answer).unwrap()
    }

    /// Begins a session, and answers its digest: nothing is held.
    pub(crate) async fn begin(&mut self, node: &str) {
        self.begin_by(&hello(node)).await;
    }

    /// The same with this hello.
    pub(crate) async fn begin_by(&mut self, hello: &str) {
        assert!(self.upgrade().await.starts_with("HTTP/1.1 101"));
        self.text(hello).await.unwrap();
        let welcome = self.frame().await;
        let chunks = welcome["welcome"]["start"]["digest"]["chunks"]
            .as_array()
            .unwrap()
            .len();
        let all: Vec<_> = (0..chunks).collect();
        self.text(&json!({"rows": {"chunks": all, "rows": [], "more": false}}).to_string())
            .await
            .unwrap();
        let synced = self.frame().await;
        assert!(synced["synced"].is_object(), "{synced}");
    }

    pub(crate) async fn text(&mut self, text: &str) -> io::Result<()> {
        self.send(&whole(TEXT, text.as_bytes())).await
    }

    /// Sends these bytes, also what TLS would keep for later.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }

    /// What comes next.
    pub(crate) async fn next(&mut self) -> Said {
        self.read().await.unwrap_or(Said::Gone)
    }

    async fn read(&mut self) -> io::Result<Said> {
        let (code, short) = (self.0.read_u8().await? & 0x0f, self.0.read_u8().await?);
        let length = match short {
            126 => u64::from(self.0.read_u16().await?),
            127 => self.0.read_u64().await?,
            short => u64::from(short),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut payload).await?;
        Ok(match code {
            TEXT => Said::Frame(serde_json::from_slice(&payload).unwrap()),
            CLOSE => Said::Close,
            _ => Said::Sign,
        })
    }

    /// The next frame.
    pub(crate) async fn frame(&mut self) -> Value {
        loop {
            match self.next().await {
                Said::Frame(frame) => return frame,
                Said::Sign => {}
                said => panic!("{said:?}"),
            }
        }
    }

    /// The next answer to a report: its number, and why it was refused, if it was.
    pub(crate) async fn answer(&mut self) -> (u64, Option<String>) {
        let frame = self.frame().await;
        let answer = &frame["report-result"];
        let seq = answer["seq"].as_u64().unwrap_or_else(|| panic!("{frame}"));
        let reason = answer["result"]["refused"]["reason"].as_str();
        (seq, reason.map(str::to_owned))
    }

    /// What the manager says before it closes: why it refuses, if it does.
    pub(crate) async fn refused(&mut self) -> Option<String> {
        let mut hint = None;
        loop {
            match self.next().await {
                Said::Frame(frame) => {
                    hint = frame["refused"]["hint"].as_str().map(str::to_owned).or(hint);
                }
                Said::Sign => {}
                Said::Close | Said::Gone => return hint,
            }
        }
    }

    /// Sends these bytes one by one, one a second, over and over, until the other side has had enough; how long that
    /// took. What comes meanwhile is read.
    pub(crate) async fn trickle(&mut self, bytes: &[u8]) -> Duration {
        let began = tokio::time::Instant::now();
        let mut heard = [0; PIPE];
        for byte in bytes.iter().cycle() {
            let wait = tokio::time::sleep(Duration::from_secs(1));
            tokio::pin!(wait);
            loop {
                tokio::select! {
                    () = &mut wait => break,
                    read = self.0.read(&mut heard) => if read.unwrap_or_default() == 0 {
                        return began.elapsed();
                    },
                }
            }
            if self.0.write_all(&[*byte]).await.is_err() || self.0.flush().await.is_err() {
                return began.elapsed();
            }
            assert!(began.elapsed() < Duration::from_secs(3600), "it is let go on for ever");
        }
        unreachable!()
    }
}

/// Whether this took about so long.
pub(crate) fn about(took: Duration, limit: Duration) {
    let most = limit + limits::CLOSE + Duration::from_secs(1);
    assert!(
        (limit..=most).contains(&took),
        "it took {took:?}, and should take {limit:?}"
    );
}
