//! One connection to something that serves or dials, over bytes in memory and on paused time: whatever is brought, the other side
//! ends it by itself, with a short answer, and breaks down nowhere.

use std::{
    cell::Cell,
    future::{Future, pending},
    io,
    panic::{set_hook, take_hook},
    sync::Once,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    runtime::Builder,
    time::{sleep, timeout},
};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{Role, WebSocket},
};

use crate::Came;

/// How long the other side is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Bytes that one side is ahead of the other at most.
pub(crate) const BUFFER: usize = 4096;

/// The longest answer.
pub(crate) const ANSWER: usize = 64 * 1024;

/// Where an input has this, a second passes: some of what is said answers what was said before.
const PAUSE: &[u8] = b"\n!\n";

/// So many times at most.
const PAUSES: usize = 64;

/// Runs this on paused time. A task that panics, which its runtime keeps to itself, is a panic of the target's.
pub(crate) fn on_paused_time<T>(run: impl Future<Output = T>) -> T {
    thread_local! {
        static PANICS: Cell<u32> = const { Cell::new(0) };
    }
    static COUNTED: Once = Once::new();
    COUNTED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            before(panic);
        }));
    });
    let before = PANICS.get();
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let ran = runtime.unwrap().block_on(run);
    assert_eq!(PANICS.get(), before, "a task broke down");
    ran
}

/// Brings these bytes over a connection until the other side ends it; what came of it.
pub(crate) async fn visit(connection: impl AsyncRead + AsyncWrite, data: &[u8]) -> Vec<u8> {
    visit_for(connection, data, ANSWER).await
}

/// The same, with an answer of so many bytes at most.
pub(crate) async fn visit_for(connection: impl AsyncRead + AsyncWrite, data: &[u8], most: usize) -> Vec<u8> {
    let (answers, mut brought) = split(connection);
    let bring = async {
        for (number, piece) in pieces(data).into_iter().enumerate() {
            if number > 0 {
                sleep(Duration::from_secs(1)).await;
            }
            // Whoever was sent away is listened to no longer.
            if brought.write_all(piece).await.is_err() || brought.flush().await.is_err() {
                break;
            }
        }
        pending::<()>().await;
    };
    let mut answer = Vec::new();
    let mut answers = answers.take(2 * most as u64);
    let read = async {
        tokio::select! {
            // A connection that is broken off has been answered.
            _ = answers.read_to_end(&mut answer) => {}
            () = bring => {}
        }
    };
    let ended = timeout(PATIENCE, read).await;
    assert!(ended.is_ok(), "the connection is still there after {PATIENCE:?}");
    assert!(answer.len() < most, "{} bytes were answered", answer.len());
    answer
}

/// An input, divided where a second passes.
fn pieces(mut data: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while pieces.len() < PAUSES
        && let Some(at) = data.windows(PAUSE.len()).position(|bytes| bytes == PAUSE)
    {
        let (piece, rest) = data.split_at(at);
        pieces.push(piece);
        data = rest.get(PAUSE.len()..).unwrap_or_default();
    }
    pieces.push(data);
    pieces
}

/// What the texts of a side were, `word` for each; the rest of what it said after the upgrade needs no words.
pub(crate) fn words(by: Role, frames: &[u8], word: impl Fn(&str) -> String) -> String {
    // Whoever hears has the other role.
    let role = match by {
        Role::Server => Role::Client,
        Role::Client => Role::Server,
    };
    let mut wire = WebSocket::from_raw_socket(Heard(frames), role, None);
    let mut words = Vec::new();
    // The connection may have been broken off in the middle of one.
    while let Ok(message) = wire.read() {
        if let Message::Text(text) = message {
            words.push(word(&text));
        }
    }
    each_once(words)
}

/// These words in the order in which they were first said.
pub(crate) fn each_once(words: Vec<String>) -> String {
    let mut each: Vec<String> = Vec::new();
    for word in words {
        if !each.contains(&word) {
            each.push(word);
        }
    }
    each.join(" ")
}

/// Which way an input went that was answered with this: by the words for what was said, or by the answer's head where nothing was.
pub(crate) fn answered(answer: &[u8], word: impl Fn(&str) -> String) -> Came {
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    match head {
        Some(head) if answer.starts_with(b"HTTP/1.1 101 ") => {
            let frames = answer.get(head + 4..).unwrap_or_default();
            Came::taken(words(Role::Server, frames, word))
        }
        _ => {
            let answer = String::from_utf8_lossy(answer);
            Came::refused(answer.split(['{', '\r']).take(2).collect::<String>())
        }
    }
}

/// What a side has said; nobody hears what is said back.
struct Heard<'a>(&'a [u8]);

impl io::Read for Heard<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        io::Read::read(&mut self.0, into)
    }
}

impl io::Write for Heard<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_passes_where_an_input_says_so() {
        assert_eq!(pieces(b"a\n!\nb\n!\n"), [&b"a"[..], b"b", b""]);
        assert_eq!(pieces(b"\n!!\n"), [b"\n!!\n"]);
        assert_eq!(pieces(&PAUSE.repeat(1000)).len(), PAUSES + 1);
    }

    #[test]
    #[should_panic(expected = "a task broke down")]
    fn a_task_that_breaks_down_is_a_failure() {
        on_paused_time(async {
            let task = tokio::spawn(async { panic!("in a task") });
            let _ = task.await;
        });
    }

    #[test]
    #[should_panic(expected = "the connection is still there")]
    fn a_connection_that_nobody_ends_is_a_failure() {
        on_paused_time(async {
            let (here, _there) = tokio::io::duplex(BUFFER);
            visit(here, b"hello").await;
        });
    }
}
