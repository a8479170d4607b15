//! The edge link: frames of both directions, and all that can come to the manager's port before and after an upgrade.

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use axum::serve::Listener;
use skerry_edge::{
    Downstream, Epoch, ObjectKey, ReportPayload, Upstream,
    cloud::Server,
    limits,
    message::{MessageError, Received},
};
use skerry_globalmanager::{
    engine::Taken,
    hub::{Answers, Hub, Reported, Reports},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    runtime::Builder,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::Came;

pub(crate) fn upstream(data: &[u8]) -> Came {
    let can_be_written = |frame: &Upstream| {
        // What a newer node says is refused, never sent on.
        let Upstream::Report { report, .. } = frame else {
            return true;
        };
        !matches!(report.payload, ReportPayload::Unknown { .. })
    };
    frame(data, limits::MAX_UPSTREAM, Upstream::decode, |frame| {
        (frame.name(), can_be_written(frame).then(|| frame.encode().unwrap()))
    })
}

pub(crate) fn downstream(data: &[u8]) -> Came {
    frame(data, limits::MAX_DOWNSTREAM, Downstream::decode, |frame| {
        (frame.name(), Some(frame.encode().unwrap()))
    })
}

/// Reads a frame; what was read is the same once it is written and read again.
fn frame<F: PartialEq + fmt::Debug>(
    data: &[u8],
    limit: usize,
    decode: impl Fn(&str) -> Result<Received<F>, MessageError>,
    encode: impl Fn(&F) -> (&'static str, Option<String>),
) -> Came {
    let Ok(text) = std::str::from_utf8(data) else {
        return Came::refused("not text");
    };
    let frame = match decode(text) {
        Err(error) => return Came::refused(error),
        Ok(Received::Unknown(_)) => return Came::taken("of a newer peer"),
        Ok(Received::Message(frame)) => frame,
    };
    assert!(text.len() <= limit, "a frame above the limit was read");
    assert!(nests(text) <= limits::MAX_DEPTH, "a frame that nests too deep was read");
    let (name, written) = encode(&frame);
    // One whose text grows at the limit is refused by the next one, as it should be.
    if let Some(written) = written.filter(|written| written.len() <= limit) {
        match decode(&written) {
            Ok(Received::Message(again)) => assert_eq!(frame, again, "read differently once written: {written}"),
            other => panic!("written as {written}, read as {other:?}"),
        }
    }
    Came::taken(name)
}

/// How deep a JSON text nests, counted in another way than the decoder's: by taking its strings away first.
fn nests(text: &str) -> usize {
    let (mut levels, mut most) = (0_usize, 0);
    let mut rest = text;
    while let Some(at) = rest.find(['"', '{', '[', '}', ']']) {
        let (_, from) = rest.split_at(at);
        rest = match from.as_bytes().first() {
            Some(b'"') => after_string(from),
            Some(b'{' | b'[') => {
                levels += 1;
                from.get(1..).unwrap_or_default()
            }
            _ => {
                levels = levels.saturating_sub(1);
                from.get(1..).unwrap_or_default()
            }
        };
        most = most.max(levels);
    }
    most
}

/// What follows the string that a text begins with.
fn after_string(text: &str) -> &str {
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '"' => return text.get(at + 1..).unwrap_or_default(),
            _ => {}
        }
    }
    ""
}

/// Whatever comes is answered with little, and its connection ends by itself.
pub(crate) fn manager_door(data: &[u8]) -> Came {
    const PATIENCE: Duration = Duration::from_secs(600);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let stop = CancellationToken::new();
        let hub = Hub::with_jitter(|| 0.0);
        hub.lead(term(), Arc::new(Engine));
        let (mut here, there) = duplex(data.len().max(1));
        let serving = tokio::spawn({
            let (hub, stop) = (hub.clone(), stop.clone());
            async move { hub.serve_on(Once(Some(there)), stop).await }
        });
        here.write_all(data).await.unwrap();
        let mut answer = Vec::new();
        let mut answers = here.take(1024 * 1024);
        // A connection that is broken off has been answered.
        let read = timeout(PATIENCE, answers.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "the connection is still there after {PATIENCE:?}");
        assert!(answer.len() < 64 * 1024, "{} bytes were answered", answer.len());
        stop.cancel();
        serving.await.unwrap();
        assert_eq!(hub.doors().present(), (0, 0), "its place is not free again");
        let answer = String::from_utf8_lossy(&answer);
        let words: String = answer.split(['{', '\r']).take(2).collect();
        match answer.strip_prefix("HTTP/1.1 101 ") {
            Some(frames) => {
                let said: Vec<_> = frames
                    .split("{\"")
                    .skip(1)
                    .filter_map(|frame| frame.split('"').next())
                    .collect();
                Came::taken(said.join(" "))
            }
            None => Came::refused(words),
        }
    })
}

/// A manager's first term in a cluster.
pub(crate) fn term() -> Server {
    let epoch = Epoch {
        lease: "lease".to_owned(),
        transitions: 0,
        made: None,
    };
    Server {
        cluster: "cluster".to_owned(),
        epoch,
    }
}

/// One connection, and then none.
struct Once(Option<DuplexStream>);

impl Listener for Once {
    type Io = DuplexStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (DuplexStream, SocketAddr) {
        match self.0.take() {
            Some(come) => (come, (Ipv4Addr::LOCALHOST, 40_000).into()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok((Ipv4Addr::LOCALHOST, 9000).into())
    }
}

/// Takes all reports.
struct Engine;

#[async_trait]
impl Reports for Engine {
    async fn take(&self, _: &ObjectKey, reports: &[Reported]) -> Answers {
        Answers {
            each: vec![Taken::Accepted; reports.len()],
            asked: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_do_not_nest() {
        for (text, levels) in [
            ("", 0),
            ("[]", 1),
            (r#"{"a":[1,{"b":2}]}"#, 3),
            (r#"["[[[","\"[[["]"#, 1),
            ("[\"[[", 1),
            ("]]][", 1),
        ] {
            assert_eq!(nests(text), levels, "{text}");
        }
    }
}
