//! A wire over which any bytes can be sent to a manager, and what nodes say over it.

use std::{io, time::Duration};

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Bytes that are on their way.
pub(crate) const PIPE: usize = 4096;

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

/// An object that nobody has heard of.
fn claim(number: usize) -> Value {
    let object = json!({"kind": "invented", "namespace": "default", "name": format!("i{number}")});
    json!({"key": {"object": object}, "uid": "u", "generation": 1, "hash": "0".repeat(64)})
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
        let synced = self.claim(hello, 0).await;
        assert!(synced["synced"].is_object(), "{synced}");
    }

    /// Begins a session with this hello, and claims to hold so many objects, of a kind that nobody has heard of; what is said to
    /// that.
    pub(crate) async fn claim(&mut self, hello: &str, claimed: usize) -> Value {
        const AT_ONCE: usize = 1_000;
        assert!(self.upgrade().await.starts_with("HTTP/1.1 101"));
        self.text(hello).await.unwrap();
        let welcome = self.frame().await;
        let digest = welcome["welcome"]["start"]["digest"]["chunks"].as_array();
        let mut chunks: Vec<_> = (0..digest.unwrap().len()).collect();
        let mut said = 0;
        loop {
            let to = claimed.min(said + AT_ONCE);
            let rows: Vec<_> = (said..to).map(claim).collect();
            let rows = json!({"rows": {"chunks": chunks, "rows": rows, "more": to < claimed}});
            // Whoever has claimed too much is told so before the end.
            if self.text(&rows.to_string()).await.is_err() || to == claimed {
                return self.frame().await;
            }
            chunks.clear();
            said = to;
        }
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
