//! What workers may use of a local controller, each bound with its reason. A small node has little memory, and a worker that
//! runs wild is to harm neither the others nor the disk.

use std::time::Duration;

/// Connections of this node's workers at once: one takes about 20 KiB, and a worker has one for as long as a message takes.
pub const CONNECTIONS: usize = 256;

/// Of these, from one address: a pod has its own, and those in the node's network share one.
pub const CONNECTIONS_PER_ADDRESS: usize = 64;

/// Connections of others, who may look at health and metrics: a few scrapers.
pub const OTHERS: usize = 16;

/// How long the head of a request may take; also how long a connection may be idle.
pub const HEAD: Duration = Duration::from_secs(10);

/// Bytes of a request's head.
pub const HEAD_BYTES: usize = 16 * 1024;

/// How long a request may take from its head to its answer. Workers are on this node, and the store is quick.
pub const REQUEST: Duration = Duration::from_secs(10);

/// For how long a connection is kept; then it ends, with an answer where a request is under way. Most end before: a worker
/// has one for each message, and a scraper leaves its own idle for longer than [`HEAD`].
pub const KEPT: Duration = Duration::from_secs(60);

/// How long that end may take: a head, an answer, and that somebody reads it. Whoever asks and does not read what he is
/// answered would otherwise have his place for ever.
pub const ENDING: Duration = Duration::from_secs(30);

/// Messages that one worker may send at once, when it has been quiet.
pub const BURST: u32 = 500;

/// And one more after each such time: a worker reports once a round or once in some seconds, and each message is a write to
/// the node's disk.
pub const EVERY: Duration = Duration::from_millis(20);

/// Workers whose messages are counted; a node has tens. Those that have been quiet are forgotten.
pub const COUNTED: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_documented_with_its_value() {
        let documented = include_str!("../../../docs/edge-limits.md");
        let seconds = |duration: Duration| format!("{} s", duration.as_secs());
        let values = [
            ("CONNECTIONS", CONNECTIONS.to_string()),
            ("CONNECTIONS_PER_ADDRESS", CONNECTIONS_PER_ADDRESS.to_string()),
            ("OTHERS", OTHERS.to_string()),
            ("HEAD", seconds(HEAD)),
            ("HEAD_BYTES", format!("{} KiB", HEAD_BYTES >> 10)),
            ("REQUEST", seconds(REQUEST)),
            ("KEPT", seconds(KEPT)),
            ("ENDING", seconds(ENDING)),
            ("BURST", BURST.to_string()),
            ("EVERY", format!("{} ms", EVERY.as_millis())),
            ("COUNTED", COUNTED.to_string()),
        ];
        let (_, ours) = documented.split_once("## Of workers").unwrap();
        for (name, value) in &values {
            let row = format!("| `{name}` | {value} |");
            assert!(ours.contains(&row), "docs/edge-limits.md has no row {row}");
        }
        assert_eq!(include_str!("limits.rs").matches("\npub const ").count(), values.len());
    }
}
