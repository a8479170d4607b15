//! How frames get across: WebSocket with the subprotocol `skerry.v1`, one text message per frame.
//!
//! Decides nothing about what is said. Sockets enter through [`client::Dialer`] and [`axum::serve::Listener`], so that
//! tests run on a simulated network and TLS is put underneath without a change here.

pub mod client;
pub mod doors;
pub mod plain;
pub mod server;
mod socket;
pub mod tls;

pub use socket::{Ended, Event, Frame, Socket, WireMessage};

/// Bytes that a connection reads and writes at once. Small, because a manager has thousands of connections that are
/// idle most of the time; what is larger grows the buffer.
const BUFFER: usize = 4096;
