//! The link over a connection whose other end is held by hand.

use std::{convert::Infallible, io};

use axum::http::header::SEC_WEBSOCKET_PROTOCOL;
use futures::{SinkExt as _, StreamExt as _};
use tokio::{
    io::{DuplexStream, duplex},
    sync::mpsc,
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
    limits,
    message::{Received, RefusedReason},
};

/// Holds nothing.
struct Empty;

impl Store for Empty {
    type Error = Infallible;

    async fn store(&self, _: Batch) -> Result<u64, Infallible> {
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

/// Hands the manager its ends of the connections.
struct ByHand(mpsc::UnboundedSender<DuplexStream>);

impl Dialer for ByHand {
    type Io = DuplexStream;

    fn host(&self) -> &'static str {
        "manager"
    }

    async fn dial(&self) -> io::Result<DuplexStream> {
        // So much that the manager never waits for the node.
        let (here, there) = duplex(2 * limits::MAX_DOWNSTREAM);
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

#[tokio::test(start_paused = true)]
async fn a_message_above_the_limit_is_not_read_and_the_manager_is_told_why() {
    let (dialled, mut connections) = mpsc::unbounded_channel();
    let identity = node::Identity {
        node: "edge-1".to_owned(),
        boot: "boot".to_owned(),
        agent: "0.1.0".to_owned(),
    };
    let signals = Signals::new(CancellationToken::new());
    let session = node::Session::new(identity, None, 0);
    let link = run(session, ByHand(dialled), Arc::new(Empty), signals.clone(), || 0.0);
    let link = tokio::spawn(link);

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
