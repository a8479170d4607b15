//! The node's end of a session, without I/O: what the local controller's store and outbox have to be able to do, and
//! the state machine that tells them.

pub mod store;

pub use store::{Batch, Change, Outgoing};
