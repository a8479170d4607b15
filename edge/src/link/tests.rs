//! The link over a connection whose other end is held by hand.

use std::{convert::Infallible, io};

use axum::http::header::SEC_WEBSOCKET_PROTOCOL;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, DuplexStream, duplex},
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
    },
};

use super::*;
use crate::{
    Object, ObjectKey, limits,
    message::{Downstream, Received, RefusedReason, Start},
    position::{Epoch, Position},
};

/// Holds nothing, and takes as many batches as it is let.
struct Empty(Semaphore);

impl Store for Empty {
    type Error = Infallible;

    async fn store(&self, _: Batch) -> Result<u64, Infallible> {
        self.0.acquire().await.unwrap().forget();
        Ok(0)
    }

    async fn rows(&self) -> Result<Vec<Row>, Infallible> {
        Ok(Vec::new())
    }

    async fn fetch(&self, _: Wanted) -> Result<Vec<Outgoing>, Infallible> {
        Ok(Vec::new())
    }

    async fn settle(&self, _: u64, _: ReportResult) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Hands the manager its ends of the connections, each with room for so many bytes on their way.
struct ByHand(mpsc::UnboundedSender<DuplexStream>, usize);

impl Dialer for ByHand {
    type Io = DuplexStream;

    fn host(&self) -> &'static str {
        "manager"
    }

    async fn dial(&self) -> io::Result<DuplexStream> {
        let (here, there) = duplex(self.1);
        self.0.send(there).map_err(io::Error::other)?;
        Ok(here)
    }
}

#[expect(
    clippy::result_large_err,
    clippy::unnecessary_wraps,
    reason = "the library has it so"
)]
fn agree(request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    let offered = request.headers()[SEC_WEBSOCKET_PROTOCOL].clone();
    response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, offered);
    Ok(response)
}

fn session(position: Option<Position>) -> node::Session {
    let identity = node::Identity {
        node: "edge-1".to_owned(),
        boot: "boot".to_owned(),
        agent: "0.1.0".to_owned(),
    };
    node::Session::new(identity, position, 0)
}

#[tokio::test(start_paused = true)]
async fn a_message_above_the_limit_is_not_read_and_the_manager_is_told_why() {
    let (dialled, mut connections) = mpsc::unbounded_channel();
    let signals = Signals::new(CancellationToken::new());
    // So much that the manager never waits for the node.
    let dialer = ByHand(dialled, 2 * limits::MAX_DOWNSTREAM);
    let store = Arc::new(Empty(Semaphore::const_new(0)));
    let link = tokio::spawn(run(session(None), dialer, store, signals.clone(), || 0.0));

    let mut socket = accept_hdr_async(connections.recv().await.unwrap(), agree)
        .await
        .unwrap();
    let mut heard = async |bytes: usize| {
        // Of a newer manager, so that it changes nothing, and as long as this.
        let frame = r#"{"teleport":{}}"#;
        let text = format!("{frame}{}", " ".repeat(bytes - frame.len()));
        socket.send(Message::text(text)).await.unwrap();
        socket.send(Message::Ping("".into())).await.unwrap();
        loop {
            match socket.next().await.unwrap().unwrap() {
                Message::Pong(_) => return None,
                Message::Text(text) => {
                    if let Received::Message(Upstream::Refused { reason, hint }) = Upstream::decode(&text).unwrap() {
                        return Some((reason, hint));
                    }
                }
                _ => {}
            }
        }
    };
    assert_eq!(heard(limits::MAX_DOWNSTREAM).await, None);
    let hint = "a message of 2097153 bytes is above the limit of 2097152".to_owned();
    assert_eq!(
        heard(limits::MAX_DOWNSTREAM + 1).await,
        Some((RefusedReason::Violation, hint))
    );
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
    // And it comes back.
    assert!(connections.recv().await.is_some());
    signals.stop.cancel();
    link.await.unwrap();
}

/// What a store cannot take yet stays on its way, where it costs the node nothing; what the node has to say still goes.
#[tokio::test(start_paused = true)]
async fn nothing_is_read_while_the_store_is_behind() {
    let (dialled, mut connections) = mpsc::unbounded_channel();
    let signals = Signals::new(CancellationToken::new());
    let store = Arc::new(Empty(Semaphore::const_new(0)));
    let epoch = Epoch {
        lease: "lease".to_owned(),
        transitions: 0,
        made: None,
    };
    let session = session(Some(Position::start("cluster", epoch.clone())));
    let link = run(session, ByHand(dialled, 4096), store.clone(), signals.clone(), || 0.0);
    let link = tokio::spawn(link);
    let socket = accept_hdr_async(connections.recv().await.unwrap(), agree)
        .await
        .unwrap();
    let (mut to, mut from) = socket.split();
    let welcome = Downstream::Welcome {
        cluster: "cluster".to_owned(),
        epoch,
        start: Start::Resume {},
        reports_per_second: None,
    };
    to.send(Message::text(welcome.encode().unwrap())).await.unwrap();
    let mut version = 0;
    let mut put = async || {
        version += 1;
        let object = Object {
            key: ObjectKey::new("dataset", "default", "d"),
            uid: "u".to_owned(),
            generation: 1,
            body: json!("x".repeat(1024)).into(),
        };
        let put = Downstream::Put { version, object };
        let sent = to.send(Message::text(put.encode().unwrap()));
        timeout(Duration::from_secs(1), sent).await.is_ok()
    };
    let mut taken = 0;
    while taken < 4 * limits::READ_AHEAD && put().await {
        taken += 1;
    }
    let enough = limits::READ_AHEAD;
    // What is being stored, and what the library reads at a time, come on top of it.
    assert!((enough..enough + enough / 4).contains(&taken), "{taken} of {enough}");
    while !matches!(from.next().await.unwrap().unwrap(), Message::Ping(_)) {}
    store.0.add_permits(usize::from(u8::MAX));
    for _ in 0..enough {
        assert!(put().await, "it reads again");
    }
    signals.stop.cancel();
    link.await.unwrap();
}

/// As where something before the manager takes the connection and passes nothing on.
#[tokio::test(start_paused = true)]
async fn a_dial_that_is_never_answered_is_given_up_and_the_node_dials_again() {
    let (dialled, mut connections) = mpsc::unbounded_channel();
    let signals = Signals::new(CancellationToken::new());
    let store = Arc::new(Empty(Semaphore::const_new(0)));
    let mut state = signals.state.subscribe();
    let began = Instant::now();
    let link = run(session(None), ByHand(dialled, 4096), store, signals.clone(), || 0.5);
    let link = tokio::spawn(link);

    let mut unanswered = connections.recv().await.unwrap();
    let given_up = state.wait_for(|state| matches!(state, State::Waiting { cause: Some(_), .. }));
    let given_up = timeout(2 * limits::HANDSHAKE, given_up).await.unwrap();
    let State::Waiting { until, cause } = given_up.unwrap().clone() else {
        unreachable!()
    };
    assert_eq!(began.elapsed(), limits::HANDSHAKE);
    assert_eq!(cause.as_deref(), Some("manager did not answer within 10 s"));
    let mut asked = String::new();
    unanswered.read_to_string(&mut asked).await.unwrap();
    assert!(
        asked.starts_with("GET / HTTP/1.1\r\n"),
        "it has asked, and hung up: {asked}"
    );

    let again = connections.recv().await.unwrap();
    assert_eq!(began.elapsed(), until, "when it said");
    assert!(until <= limits::HANDSHAKE + limits::RECONNECT.0);
    let mut socket = accept_hdr_async(again, agree).await.unwrap();
    assert!(matches!(socket.next().await, Some(Ok(Message::Text(_)))), "its hello");
    signals.stop.cancel();
    link.await.unwrap();
}
