//! The edge protocol of Skerry, both ends: what travels between the global manager and the local controllers, how a
//! session goes, and how its bytes get across.
//!
//! The protocol is state-based and acknowledged end to end. The manager holds, for each node, the set of objects that
//! the node should have; the session brings the node's store to that set. Reports go the other way, from the node's
//! durable outbox, and leave it when the manager says what became of them.
//!
//! | module | what it holds | I/O |
//! |---|---|---|
//! | [`object`] | what a node holds: objects, credentials, their keys | none |
//! | [`hash`] | by what both ends compare it | none |
//! | [`report`] | what a node says about a resource | none |
//! | [`position`] | where a node's store stands, and which manager it may still listen to | none |
//! | [`identity`] | who is who: certificates, join tokens | none |
//! | [`message`] | the frames, one enum per direction, and their JSON | none |
//! | [`digest`] | how both ends find what differs between two sets | none |
//! | [`cloud`] | the manager's end of a session | none |
//! | [`node`] | the node's end of a session | none |
//! | [`sedna`] | Sedna's own protocol, either way | gateways, sockets |
//! | [`transport`] | how frames get across | sockets |
//! | [`link`] | carries out what a node's session says | sockets |
//! | [`limits`] | every bound, with its reason | none |
//! | [`rate`] | how often each of many may do something | a clock |
//! | [`seldom`] | log lines that strangers can cause | none |

pub mod cloud;
pub mod digest;
pub mod hash;
pub mod identity;
pub mod limits;
pub mod link;
pub mod message;
pub mod node;
pub mod object;
pub mod position;
pub mod rate;
pub mod report;
pub mod sedna;
pub mod seldom;
mod tagged;
pub mod transport;

pub use hash::ContentHash;
pub use message::{Downstream, Upstream};
pub use object::{Body, Credential, Item, ItemKey, Object, ObjectKey, Row};
pub use position::{Epoch, Position};
pub use report::{Report, ReportId, ReportPayload, ReportResult, boot, store_of};
