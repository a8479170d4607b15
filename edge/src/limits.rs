//! Every bound of the protocol, each with its reason. What a bound protects is memory or time of the side that
//! receives; the side that sends keeps to it, so that only a faulty or hostile peer ever meets one.

use std::time::Duration;

/// The WebSocket subprotocol, and with it the version of everything in [`crate::message`].
pub const SUBPROTOCOL: &str = "skerry.v1";

/// [`crate::message::Hello::protocol`]: raised by a change that both ends can bridge within `skerry.v1`.
pub const PROTOCOL: u32 = 1;

/// Bytes of one message to a node. etcd keeps objects of at most 1.5 MiB; the rest is room for escapes and envelope.
pub const MAX_DOWNSTREAM: usize = 2 * 1024 * 1024;

/// Bytes of one object's body or one Secret's fields, as JSON: refused before they are placed on a node. What etcd can keep;
/// of a Secret that is no text, with six bytes for one, a sixth of that.
pub const MAX_BODY: usize = 1536 * 1024;

/// Bytes of one message to the manager, which has thousands of peers: a worker's report with its results fits
/// hundreds of times, and the rows of a digest are cut to fit ([`DIGEST_ROWS_BYTES`]).
pub const MAX_UPSTREAM: usize = 256 * 1024;

/// Bytes of one report's payload; the local controller refuses a worker's message above it.
pub const MAX_REPORT: usize = 128 * 1024;

/// Levels of nesting in a message. Kubernetes objects reach about 20; the envelope adds 3.
pub const MAX_DEPTH: usize = 64;

/// From the TCP connection to the completed upgrade: a handshake is two small messages, even over a satellite.
pub const HANDSHAKE: Duration = Duration::from_secs(10);

/// Connections at once that have proven nothing yet. A handshake holds some 30 KiB, so all together hold 60 MiB at most.
pub const UNPROVEN: usize = 2048;

/// Of these, from one address, or one /64 of IPv6, which is what one host may have: a site with many nodes has them behind one
/// address, and all of them come back at once.
pub const UNPROVEN_PER_ADDRESS: usize = 512;

/// Bytes that a connection may bring while it has proven nothing: an upgrade and a hello have 2 KiB, a request to join
/// [`MAX_REQUEST`] and its head. With what a handshake holds, [`UNPROVEN`] of them hold 130 MiB at most.
pub const BEFORE_HELLO: usize = 32 * 1024;

/// Bytes of messages that are not whole yet, from all those together that are nodes by their word alone: so many names as
/// somebody invents, they hold no more. 500 nodes may be in the midst of a [`DIGEST_ROWS_BYTES`].
pub const SAID_BYTES: usize = 64 * 1024 * 1024;

/// What each of them may have brought of one all the same, so that the others of them go on: an acknowledgement or a round.
/// With as many as there may be that is 80 MiB more.
pub const SAID_BYTES_EACH: usize = 4 * 1024;

/// Rows that those together may name in the answers to their digests, each until the manager has placed it there itself, or its
/// session ends: 5,000 nodes of 50 items each, when a manager that has just started knows of none of them. A row that is kept
/// takes 800 bytes.
pub const SAID_ROWS: usize = 250_000;

/// Connections of nodes at once: twice the 10,000 nodes that one manager is for, since those of before a cut are there
/// for a while beside those of after it. With TLS one takes 40 KiB.
pub const CONNECTIONS: usize = 20_000;

/// Of these, of one node: it has one session, one that is taking its place, and one over which it renews its certificate;
/// the rest are of before a cut, and last [`REQUEST`] at most where they have no session.
pub const CONNECTIONS_PER_NODE: usize = 16;

/// Frames that wait to be written to a node before nothing more is read from it, changes apart, which have their window: more
/// answers than a node that keeps to its own windows can cause. Whoever sends and does not read waits for itself.
pub const QUEUED_FRAMES: usize = 2048;

/// From a connection's first byte after TLS to its upgrade, or to the end of its last request: what a node asks for while
/// it has no session is answered in seconds, and then it hangs up.
pub const REQUEST: Duration = Duration::from_secs(20);

/// Bytes of a request to join or to renew: a token and a signing request have about 700. As long as it lacks its last byte
/// it is held beside its head and what TLS holds.
pub const MAX_REQUEST: usize = 4 * 1024;

/// Requests to join or to renew that are worked on at once; the others wait. Each reads the API server.
pub const REQUESTS: usize = 8;

/// Requests to join that come to nothing, from one address or one node at once, and one more after each such time: each of them
/// looks for a token in the API server. A site whose nodes have tokens that do not count has so many.
pub const JOINS: u32 = 64;
/// See [`JOINS`].
pub const JOINS_EVERY: Duration = Duration::from_millis(100);

/// Addresses and nodes of which such requests are counted. Those that have been quiet are forgotten.
pub const JOINERS: usize = 1024;

/// Connections whose handshake is done and that are not yet taken up.
pub const ACCEPTED_AHEAD: usize = 64;

/// From the completed upgrade to the first message, and from the hello to the welcome.
pub const FIRST_MESSAGE: Duration = Duration::from_secs(10);

/// How long a side that closes a connection waits for its last frames to arrive.
pub const CLOSE: Duration = Duration::from_secs(2);

/// A side that heard nothing for so long sends a ping.
pub const PING_AFTER: Duration = Duration::from_secs(15);

/// A live session pings at least so often, whatever comes meanwhile: by the answer the manager knows the round trip.
pub const MEASURE_EVERY: Duration = Duration::from_secs(60);

/// How often a node tells how much waits in its outbox, where that has changed: as often as anybody can see it.
pub const OUTBOX_EVERY: Duration = Duration::from_secs(30);

/// A side that heard nothing for so long, two pings included, takes the link for dead: this is how a half-open
/// connection is found.
pub const IDLE: Duration = Duration::from_secs(45);

/// How long the manager waits for an acknowledgement of what it sent: a store that takes longer is stuck, and a new
/// session may find it well.
pub const ACK_TIMEOUT: Duration = Duration::from_secs(120);

/// Changes in flight to a node before one is acknowledged: at 200 ms of round trip still 80,000 a second, which is what one
/// core can send and another take.
pub const WINDOW_FRAMES: u32 = 16 * 1024;

/// The same of a node that does not say in its hello how many it takes: those of before it was said take so many.
pub const WINDOW_UNSAID: u32 = 1024;

/// The same of an agent of Sedna's, which takes a message 50 ms after it has read the one before, and needs two for some
/// changes: where it answers within 3 s it reads all of them in less than [`ACK_TIMEOUT`].
pub const WINDOW_OF_AGENT: u32 = 16;

/// Bytes in flight to a node; one larger object still goes when nothing else is in flight. Bounds what one stuck node
/// can hold in socket buffers.
pub const WINDOW_BYTES: usize = 4 * 1024 * 1024;

/// Changes that a node stores in one transaction: enough that the cost of the sync is shared, few enough that the
/// acknowledgement does not wait.
pub const BATCH_CHANGES: usize = 256;

/// Changes that wait for a node's store before nothing more is read from the manager: the store has its next transactions
/// at hand, and the rest of a window waits in the socket rather than in the node's memory.
pub const READ_AHEAD: usize = 4 * BATCH_CHANGES;

/// Reports in flight to the manager before one is answered.
pub const REPORT_WINDOW: usize = 64;

/// Of these, on one resource: what is said of a busy one leaves room for what is said of others, and still goes in one write
/// of its status.
pub const REPORT_SHARE: usize = 48;

/// Reports that the manager lets a node send in a second, once [`REPORT_WINDOW`] of them have gone at once: as many as ten
/// workers at their fastest have to say, so that an outbox only grows under a flood, and few enough that one that comes back
/// with a full outbox leaves room for others. Of one resource, [`REPORT_SHARE`] go each [`STATUS_PACE`] at most.
pub const REPORTS_PER_SECOND: u32 = 500;

/// The shortest and the longest wait before a report that could not be carried out is sent again.
pub const REPORT_RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// From the end of one write of what nodes report on a resource to the next: what is reported meanwhile goes in one write.
/// A worker reports every few seconds, and nobody looks more often.
pub const STATUS_PACE: Duration = Duration::from_secs(1);

/// Items on one node. A digest of so many is about 1,500 chunk hashes.
pub const MAX_ITEMS: usize = 100_000;

/// Items per digest chunk that the manager aims at: the rows of a chunk that differs cost about 10 KiB.
pub const CHUNK_ITEMS: usize = 64;

/// Chunks of a digest at most: their hashes fill a tenth of a message.
pub const MAX_CHUNKS: usize = 4096;

/// Bytes of rows in one message of a digest's answer, well under [`MAX_UPSTREAM`].
pub const DIGEST_ROWS_BYTES: usize = 128 * 1024;

/// Deletions that wait for a node that is away. Above it the manager forgets what it knew of the node, which frees
/// them, and the next session starts with a digest.
pub const MAX_TOMBSTONES: usize = 10_000;

/// How long a node refuses managers of a Lease that was superseded by another one, or that is older than the one that it has
/// heard of: well over the time within which a manager notices that it has lost its Lease.
pub const RETIRED: Duration = Duration::from_secs(60);

/// Such Leases that a node remembers. One is enough unless somebody deletes Leases while managers hang.
pub const RETIRED_LEASES: usize = 8;

/// The first and the largest upper bound of the random wait before a node dials again.
pub const RECONNECT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// A session that lasted so long was sound: the wait before the next dial starts from the first bound again.
pub const SOUND_SESSION: Duration = Duration::from_secs(30);

/// The longest that a manager can ask a node to stay away.
pub const MAX_RECONNECT_AFTER: Duration = Duration::from_secs(600);

/// Characters that we repeat of what a peer has said and that is not what it should be: enough to know it again, and an
/// answer stays small, whatever was said.
pub const QUOTED: usize = 64;

/// Characters that we log of a sentence that a peer has sent.
pub const HINT: usize = 512;

/// Bytes of a node's, boot's or version's name in a hello.
pub const MAX_NAME: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(duration: Duration) -> String {
        match duration.subsec_millis() {
            0 => format!("{} s", duration.as_secs()),
            _ => format!("{} ms", duration.as_millis()),
        }
    }

    fn range((first, last): (Duration, Duration)) -> String {
        format!("{} to {}", seconds(first), seconds(last))
    }

    fn bytes(bytes: usize) -> String {
        match bytes {
            _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
            _ => format!("{} KiB", bytes >> 10),
        }
    }

    #[test]
    fn every_limit_is_documented_with_its_value() {
        let documented = include_str!("../../docs/edge-limits.md");
        let values = [
            ("MAX_DOWNSTREAM", bytes(MAX_DOWNSTREAM)),
            ("MAX_BODY", bytes(MAX_BODY)),
            ("MAX_UPSTREAM", bytes(MAX_UPSTREAM)),
            ("MAX_REPORT", bytes(MAX_REPORT)),
            ("MAX_DEPTH", MAX_DEPTH.to_string()),
            ("HANDSHAKE", seconds(HANDSHAKE)),
            ("UNPROVEN", UNPROVEN.to_string()),
            ("UNPROVEN_PER_ADDRESS", UNPROVEN_PER_ADDRESS.to_string()),
            ("BEFORE_HELLO", bytes(BEFORE_HELLO)),
            ("SAID_BYTES", bytes(SAID_BYTES)),
            ("SAID_BYTES_EACH", bytes(SAID_BYTES_EACH)),
            ("SAID_ROWS", SAID_ROWS.to_string()),
            ("CONNECTIONS", CONNECTIONS.to_string()),
            ("CONNECTIONS_PER_NODE", CONNECTIONS_PER_NODE.to_string()),
            ("QUEUED_FRAMES", QUEUED_FRAMES.to_string()),
            ("REQUEST", seconds(REQUEST)),
            ("MAX_REQUEST", bytes(MAX_REQUEST)),
            ("REQUESTS", REQUESTS.to_string()),
            ("JOINS", JOINS.to_string()),
            ("JOINS_EVERY", seconds(JOINS_EVERY)),
            ("JOINERS", JOINERS.to_string()),
            ("ACCEPTED_AHEAD", ACCEPTED_AHEAD.to_string()),
            ("FIRST_MESSAGE", seconds(FIRST_MESSAGE)),
            ("CLOSE", seconds(CLOSE)),
            ("PING_AFTER", seconds(PING_AFTER)),
            ("MEASURE_EVERY", seconds(MEASURE_EVERY)),
            ("OUTBOX_EVERY", seconds(OUTBOX_EVERY)),
            ("IDLE", seconds(IDLE)),
            ("ACK_TIMEOUT", seconds(ACK_TIMEOUT)),
            ("WINDOW_FRAMES", WINDOW_FRAMES.to_string()),
            ("WINDOW_UNSAID", WINDOW_UNSAID.to_string()),
            ("WINDOW_OF_AGENT", WINDOW_OF_AGENT.to_string()),
            ("WINDOW_BYTES", bytes(WINDOW_BYTES)),
            ("BATCH_CHANGES", BATCH_CHANGES.to_string()),
            ("READ_AHEAD", READ_AHEAD.to_string()),
            ("REPORT_WINDOW", REPORT_WINDOW.to_string()),
            ("REPORTS_PER_SECOND", REPORTS_PER_SECOND.to_string()),
            ("REPORT_SHARE", REPORT_SHARE.to_string()),
            ("REPORT_RETRY", range(REPORT_RETRY)),
            ("STATUS_PACE", seconds(STATUS_PACE)),
            ("MAX_ITEMS", MAX_ITEMS.to_string()),
            ("CHUNK_ITEMS", CHUNK_ITEMS.to_string()),
            ("MAX_CHUNKS", MAX_CHUNKS.to_string()),
            ("DIGEST_ROWS_BYTES", bytes(DIGEST_ROWS_BYTES)),
            ("MAX_TOMBSTONES", MAX_TOMBSTONES.to_string()),
            ("RETIRED", seconds(RETIRED)),
            ("RETIRED_LEASES", RETIRED_LEASES.to_string()),
            ("RECONNECT", range(RECONNECT)),
            ("SOUND_SESSION", seconds(SOUND_SESSION)),
            ("MAX_RECONNECT_AFTER", seconds(MAX_RECONNECT_AFTER)),
            ("QUOTED", QUOTED.to_string()),
            ("HINT", HINT.to_string()),
            ("MAX_NAME", MAX_NAME.to_string()),
        ];
        for (name, value) in &values {
            let row = format!("| `{name}` | {value} |");
            assert!(documented.contains(&row), "docs/edge-limits.md has no row {row}");
        }
        let here = include_str!("limits.rs").matches("\npub const ").count();
        assert_eq!(here, values.len() + 2, "all but the two names of the protocol");
    }
}
