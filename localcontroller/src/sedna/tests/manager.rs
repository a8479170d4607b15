//! Sedna's manager as a node sees it: what it writes is written as Go does, and of what it reads it answers pings alone.

use std::{io, net::SocketAddr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use skerry_edge::{ObjectKey, transport::client::Dialer};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_tungstenite::{
    WebSocketStream, accept_async, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
    },
};

use super::PATIENCE;

pub(super) struct SednaGm(TcpListener);

/// What a node reports.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) key: ObjectKey,
    pub(super) content: Value,
}

pub(super) struct Connection {
    wire: WebSocketStream<TcpStream>,
    pub(super) node: String,
    pub(super) path: String,
}

impl SednaGm {
    pub(super) async fn listen() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(super) fn address(&self) -> String {
        let address: SocketAddr = self.0.local_addr().unwrap();
        address.to_string()
    }

    async fn take(&self) -> TcpStream {
        let taken = timeout(PATIENCE, self.0.accept()).await;
        taken.expect("nobody has dialled").unwrap().0
    }

    pub(super) async fn accept(&self) -> Connection {
        let (mut node, mut path) = (String::new(), String::new());
        #[expect(clippy::result_large_err, reason = "it is the library's")]
        let read = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
            let header = |name: &str| {
                request
                    .headers()
                    .get(name)
                    .map(|value| value.to_str().unwrap().to_owned())
            };
            assert_eq!(header("Sec-WebSocket-Protocol"), None, "it has none");
            node = header("Node-Name").unwrap();
            path = request.uri().path().to_owned();
            Ok(response)
        };
        let wire = accept_hdr_async(self.take().await, read).await.unwrap();
        Connection { wire, node, path }
    }

    /// Takes a connection and answers this instead of an upgrade.
    pub(super) async fn accept_and_answer(&self, answer: &str) {
        let mut io = self.take().await;
        let mut request = [0; 1024];
        assert!(io.read(&mut request).await.unwrap() > 0);
        io.write_all(answer.as_bytes()).await.unwrap();
    }
}

impl Connection {
    pub(super) async fn tell(&mut self, operation: &str, key: &ObjectKey, content: &Value) {
        let ObjectKey { kind, namespace, name } = key;
        let header =
            json!({"namespace": namespace, "resourceKind": kind, "resourceName": name, "operation": operation});
        let message = json!({"header": header, "content": STANDARD.encode(content.to_string())});
        self.say(&format!("{message}\n")).await;
    }

    pub(super) async fn say(&mut self, text: &str) {
        self.wire.send(Message::text(text)).await.unwrap();
    }

    /// The other side may hang up meanwhile.
    pub(super) async fn say_if_read(&mut self, text: &str) {
        let _ = self.wire.send(Message::text(text)).await;
    }

    pub(super) async fn say_bytes(&mut self, bytes: Vec<u8>) {
        self.wire.send(Message::Binary(bytes.into())).await.unwrap();
    }

    async fn next(&mut self) -> Option<Message> {
        let next = timeout(PATIENCE, self.wire.next()).await.expect("nothing comes");
        next.and_then(Result::ok)
    }

    /// The next report; pings before it are read over.
    pub(super) async fn status(&mut self) -> Status {
        loop {
            let Message::Text(text) = self.next().await.expect("the node has hung up") else {
                continue;
            };
            let message: Value = serde_json::from_str(&text).unwrap();
            let header = |field: &str| message["header"][field].as_str().unwrap();
            assert_eq!(header("operation"), "status");
            let key = ObjectKey::new(header("resourceKind"), header("namespace"), header("resourceName"));
            let content = STANDARD.decode(message["content"].as_str().unwrap()).unwrap();
            let content = serde_json::from_slice(&content).unwrap();
            return Status { key, content };
        }
    }

    /// Reads a ping, and answers it.
    pub(super) async fn read_ping(&mut self) {
        let next = self.next().await;
        assert!(matches!(next, Some(Message::Ping(_))), "{next:?}");
        self.wire.flush().await.unwrap();
    }

    /// Reads until the node closes the connection.
    pub(super) async fn closed(&mut self) {
        while self.next().await.is_some() {}
    }
}

/// Dials managers that take the upgrade and then neither read nor write; when each was dialled.
pub(super) fn silent() -> (SilentDialer, mpsc::UnboundedReceiver<Instant>) {
    let (sender, dialled) = mpsc::unbounded_channel();
    (SilentDialer(sender), dialled)
}

pub(super) struct SilentDialer(mpsc::UnboundedSender<Instant>);

impl Dialer for SilentDialer {
    type Io = DuplexStream;

    fn host(&self) -> &'static str {
        "gm.sedna:9000"
    }

    async fn dial(&self) -> io::Result<DuplexStream> {
        let (near, far) = duplex(1 << 20);
        let _ = self.0.send(Instant::now());
        tokio::spawn(async move {
            let wire = accept_async(far).await.unwrap();
            std::future::pending::<()>().await;
            drop(wire);
        });
        Ok(near)
    }
}
