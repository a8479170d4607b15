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

/// Bytes that one side reads at once, and that it gathers before it writes; what is larger grows the buffer.
struct Buffers {
    read: usize,
    write: usize,
}

impl Buffers {
    /// Of the manager: it has thousands of connections, and keeps what each has read of for as long as that is there. What
    /// nodes say is short.
    const MANAGER: Self = Self {
        read: 1024,
        write: 4096,
    };
    /// Of a node, which has one connection.
    const NODE: Self = Self {
        read: 4096,
        write: 4096,
    };
}
