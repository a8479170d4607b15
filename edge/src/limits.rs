//! Every bound of the protocol, each with its reason. What a bound protects is memory or time of the side that
//! receives; the side that sends keeps to it, so that only a faulty or hostile peer ever meets one.

use std::time::Duration;

/// The WebSocket subprotocol, and with it the version of everything in [`crate::message`].
pub const SUBPROTOCOL: &str = "skerry.v1";

/// [`crate::message::Hello::protocol`]: raised by a change that both ends can bridge within `skerry.v1`.
pub const PROTOCOL: u32 = 1;

/// Bytes of one message to a node. etcd keeps objects of at most 1.5 MiB; the rest is room for escapes and envelope.
pub const MAX_DOWNSTREAM: usize = 2 * 1024 * 1024;

/// Bytes of one object's body or one Secret's fields, refused before it is placed on a node: what etcd can keep.
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

/// Of these, from one address: a site with many nodes has them behind one address, and all of them come back at once.
pub const UNPROVEN_PER_ADDRESS: usize = 512;

/// From a connection's first byte after TLS to its upgrade, or to the end of its last request: what a node asks for while
/// it has no session is answered in seconds, and then it hangs up.
pub const REQUEST: Duration = Duration::from_secs(20);

/// Bytes of a request to join or to renew: a token and a signing request have about 700.
pub const MAX_REQUEST: usize = 16 * 1024;

/// Requests to join or to renew that are worked on at once; the others wait. Each reads the API server.
pub const REQUESTS: usize = 8;

/// Connections whose handshake is done and that are not yet taken up.
pub const ACCEPTED_AHEAD: usize = 64;

/// From the completed upgrade to the first message, and from the hello to the welcome.
pub const FIRST_MESSAGE: Duration = Duration::from_secs(10);

/// How long a side that closes a connection waits for its last frames to arrive.
pub const CLOSE: Duration = Duration::from_secs(2);

/// A side that heard nothing for so long sends a ping.
pub const PING_AFTER: Duration = Duration::from_secs(15);

/// A side that heard nothing for so long, two pings included, takes the link for dead: this is how a half-open
/// connection is found.
pub const IDLE: Duration = Duration::from_secs(45);

/// How long the manager waits for an acknowledgement of what it sent: a store that takes longer is stuck, and a new
/// session may find it well.
pub const ACK_TIMEOUT: Duration = Duration::from_secs(120);

/// Changes in flight to a node before one is acknowledged: at 300 ms of round trip still 3,000 a second.
pub const WINDOW_FRAMES: usize = 1024;

/// Bytes in flight to a node; one larger object still goes when nothing else is in flight. Bounds what one stuck node
/// can hold in socket buffers.
pub const WINDOW_BYTES: usize = 4 * 1024 * 1024;

/// Changes that a node stores in one transaction: enough that the cost of the sync is shared, few enough that the
/// acknowledgement does not wait.
pub const BATCH_CHANGES: usize = 256;

/// Reports in flight to the manager before one is answered.
pub const REPORT_WINDOW: usize = 64;

/// The shortest and the longest wait before a report that could not be carried out is sent again.
pub const REPORT_RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

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

/// How long a node refuses managers of a Lease that was superseded by another one: well over the time within which a
/// manager notices that it has lost its Lease.
pub const RETIRED: Duration = Duration::from_secs(60);

/// Superseded Leases that a node remembers. One is enough unless somebody deletes Leases while managers hang.
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
