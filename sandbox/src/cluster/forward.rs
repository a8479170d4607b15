//! Copies bytes between two TCP connections until either ends.

use std::io;

use tokio::net::{TcpStream, ToSocketAddrs};

/// Connects to `target` and copies both ways.
pub(super) async fn forward(mut from: TcpStream, target: impl ToSocketAddrs) -> io::Result<()> {
    let mut to = TcpStream::connect(target).await?;
    // Small messages of a protocol in dialogue should not wait for each other.
    from.set_nodelay(true)?;
    to.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut from, &mut to).await?;
    Ok(())
}

/// Ends a connection as a dead peer does: the other end sees a reset rather than an orderly close.
pub(super) fn reset(connection: TcpStream) {
    // Where that cannot be set, it is closed in order.
    let _ = connection.set_zero_linger();
    drop(connection);
}
