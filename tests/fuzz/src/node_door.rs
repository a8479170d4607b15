//! All that can come to a node from where it dials its manager: an answer to its upgrade, and what follows.

use std::{
    future::Future,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use skerry_edge::{
    Upstream, limits,
    link::{self, Signals},
    message::Received,
    node::State,
    sedna::{
        client::{self, Text},
        envelope::{Envelope, EnvelopeError},
        told::Told,
    },
    transport::{Event, client::Dialer},
};
use tokio::{
    io::{AsyncReadExt as _, DuplexStream, duplex},
    time::timeout,
};
use tokio_tungstenite::tungstenite::{handshake::derive_accept_key, protocol::Role};
use tokio_util::sync::CancellationToken;

use crate::{
    Came,
    kept::Shared,
    sessions::empty_node,
    visits::{BUFFER, PATIENCE, each_once, on_paused_time, visit, words},
};

/// The answer to the key that RFC 6455 has for an example. In an input it stands for the right one, which nobody can know before:
/// a node draws its key.
const SAMPLE: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// By the link with a manager of ours; and whatever does not answer as one, by that with Sedna's own.
pub(crate) fn node_door(data: &[u8]) -> Came {
    match on_paused_time(ours(data)) {
        Came::Refused(_) => on_paused_time(sednas(data)),
        came @ Came::Taken(_) => came,
    }
}

async fn ours(data: &[u8]) -> Came {
    let (dialer, here) = OnceDialer::new();
    let signals = Signals::new(CancellationToken::new());
    let linked = link::run(empty_node(), dialer, Arc::<Shared>::default(), signals.clone(), || 0.5);
    let managing = async {
        let ends = tokio::join!(manage(here, data), in_time(cause(&signals)));
        signals.stop.cancel();
        ends
    };
    let ((), (said, cause)) = tokio::join!(in_time(linked), managing);
    let said = words(Role::Client, &said, |text| match Upstream::decode(text) {
        Ok(Received::Message(frame)) => frame.name().to_owned(),
        other => panic!("the manager is told {text}, which is {other:?}"),
    });
    // A node that is let in begins with a hello.
    if said.is_empty() {
        return Came::refused(cause);
    }
    Came::taken(format!("{said} then {cause}"))
}

/// Why the first connection ended.
pub(crate) async fn cause(signals: &Signals) -> String {
    let mut states = signals.state.subscribe();
    loop {
        if let State::Waiting { cause: Some(cause), .. } = &*states.borrow_and_update() {
            return cause.clone();
        }
        states.changed().await.unwrap();
    }
}

/// As the link with Sedna's manager reads; what it stores and sends is no matter of what comes.
async fn sednas(data: &[u8]) -> Came {
    let (dialer, here) = OnceDialer::new();
    let reading = async {
        let mut socket = match client::connect(&dialer, "edge-1").await {
            Ok(socket) => socket,
            Err(error) => return Came::refused(error),
        };
        let mut heard = Vec::new();
        while let Ok(Ok(event)) = timeout(limits::IDLE, socket.next()).await {
            match event {
                Event::Frame(Ok(Received::Message(Text(text)))) => heard.push(means(&text).to_owned()),
                Event::Frame(Err(breach)) => {
                    heard.push(breach.to_string());
                    break;
                }
                Event::Pong(Some(_)) => heard.push("read".to_owned()),
                Event::Frame(Ok(Received::Unknown(_))) | Event::Heard | Event::Pong(None) => {}
            }
        }
        socket.close().await;
        Came::taken(each_once(heard))
    };
    let (came, _) = tokio::join!(in_time(reading), manage(here, data));
    came
}

fn means(text: &str) -> &'static str {
    match Envelope::decode(text).and_then(|envelope| envelope.told()) {
        Ok(Told::Put { .. }) => "put",
        Ok(Told::Delete(_)) => "delete",
        Err(error) => EnvelopeError::word(&error),
    }
}

async fn in_time<T>(ends: impl Future<Output = T>) -> T {
    // As long as two connections may last: that of the visit, and whatever is waited for behind it.
    let ended = timeout(2 * PATIENCE, ends).await;
    ended.unwrap_or_else(|_| panic!("the node is still busy after {:?}", 2 * PATIENCE))
}

/// Answers a node's upgrade with this; what the node says after that.
async fn manage(mut node: DuplexStream, data: &[u8]) -> Vec<u8> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(node.read_u8().await.unwrap());
    }
    let request = String::from_utf8(request).unwrap();
    let (_, key) = request.split_once("Sec-WebSocket-Key: ").unwrap();
    let (key, _) = key.split_once("\r\n").unwrap();
    visit(node, &answer_to(key, data)).await
}

/// An input, the right answer to this key in the place of the sample's.
fn answer_to(key: &str, data: &[u8]) -> Vec<u8> {
    let mut answer = data.to_vec();
    let (sample, accept) = (SAMPLE.as_bytes(), derive_accept_key(key.as_bytes()));
    if let Some(at) = data.windows(sample.len()).position(|bytes| bytes == sample) {
        answer.splice(at..at + sample.len(), accept.bytes());
    }
    answer
}

/// Dials once; after that nobody is there.
struct OnceDialer(Mutex<Option<DuplexStream>>);

impl OnceDialer {
    /// A dialer, and the manager's end of its connection.
    fn new() -> (Self, DuplexStream) {
        let (here, there) = duplex(BUFFER);
        (Self(Mutex::new(Some(there))), here)
    }
}

impl Dialer for OnceDialer {
    type Io = DuplexStream;

    fn host(&self) -> &'static str {
        "manager"
    }

    async fn dial(&self) -> io::Result<DuplexStream> {
        let there = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        there.ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_in_an_input_is_the_right_answer() {
        assert_eq!(derive_accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), SAMPLE);
        let answer = format!("accept: {SAMPLE}\r\n");
        assert_eq!(
            answer_to("dGhlIHNhbXBsZSBub25jZQ==", answer.as_bytes()),
            answer.as_bytes()
        );
        assert_ne!(
            answer_to("AAAAAAAAAAAAAAAAAAAAAA==", answer.as_bytes()),
            answer.as_bytes()
        );
    }
}
