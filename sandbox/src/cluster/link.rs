//! A node's connection to something in the cloud, which a test or a demo can cut, delay and restore.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::forward::reset;

/// How much is on its way at most, in pieces of this size each.
const PIECE: usize = 16 * 1024;
const PIECES: usize = 64;

/// A TCP forwarder. It ends, and its connections with it, when this is dropped.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    state: watch::Sender<State>,
    _task: JoinSet<()>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct State {
    cut: bool,
    delay: Duration,
}

impl Link {
    /// Listens on `listen` (port 0 for any) and leads to `target`.
    pub async fn open(listen: SocketAddr, target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let (state, seen) = watch::channel(State::default());
        let mut task = JoinSet::new();
        task.spawn(accept(listener, target, seen));
        Ok(Self {
            address,
            state,
            _task: task,
        })
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resets all connections, and new ones at once, until [`Link::restore`].
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cut = true);
    }

    /// Makes everything arrive so much later, in either direction.
    pub fn delay(&self, delay: Duration) {
        self.state.send_modify(|state| state.delay = delay);
    }

    /// Ends a cut and a delay.
    pub fn restore(&self) {
        self.state.send_replace(State::default());
    }

    /// Whether it is cut.
    pub fn is_cut(&self) -> bool {
        self.state.borrow().cut
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, state: watch::Receiver<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((connection, _)) if state.borrow().cut => reset(connection),
                Ok((connection, _)) => drop(connections.spawn(carry(connection, target, state.clone()))),
                // Out of file descriptors, say: some may be free in a moment.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries one connection until it ends or the link is cut.
async fn carry(mut near: TcpStream, target: SocketAddr, mut state: watch::Receiver<State>) {
    let Ok(mut far) = TcpStream::connect(target).await else {
        return reset(near);
    };
    // Where this cannot be set, small messages wait a little.
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let done = {
        let (near_in, near_out) = near.split();
        let (far_in, far_out) = far.split();
        let (there, back) = (state.clone(), state.clone());
        let both = async { tokio::join!(pipe(near_in, far_out, there), pipe(far_in, near_out, back)) };
        tokio::select! {
            _ = both => true,
            // An error says that the link itself is gone.
            _ = state.wait_for(|state| state.cut) => false,
        }
    };
    if !done {
        reset(near);
        reset(far);
    }
}

/// Copies one direction, each piece as much later as the link's delay is when it comes in.
async fn pipe(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    state: watch::Receiver<State>,
) -> io::Result<()> {
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES);
    let read = async move {
        loop {
            let mut piece = vec![0; PIECE];
            let read = from.read(&mut piece).await?;
            piece.truncate(read);
            let due = Instant::now() + state.borrow().delay;
            if read == 0 || sender.send((due, piece)).await.is_err() {
                return Ok(());
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = pieces.recv().await {
            tokio::time::sleep_until(due).await;
            to.write_all(&piece).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = connection.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        address
    }

    async fn say(connection: &mut TcpStream, text: &str) -> io::Result<String> {
        connection.write_all(text.as_bytes()).await?;
        let mut heard = vec![0; text.len()];
        connection.read_exact(&mut heard).await?;
        Ok(String::from_utf8(heard).unwrap())
    }

    #[tokio::test]
    async fn a_cut_ends_what_is_open_and_refuses_what_is_new() {
        let link = Link::open("127.0.0.1:0".parse().unwrap(), echo().await).await.unwrap();
        let mut open = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(say(&mut open, "hello").await.unwrap(), "hello");
        link.cut();
        assert!(link.is_cut());
        assert_eq!(
            open.read(&mut [0]).await.unwrap_err().kind(),
            io::ErrorKind::ConnectionReset
        );
        let refused = async {
            let mut new = TcpStream::connect(link.address()).await?;
            say(&mut new, "hello").await
        };
        assert!(refused.await.is_err());
        link.restore();
        let mut new = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(say(&mut new, "again").await.unwrap(), "again");
    }

    #[tokio::test]
    async fn a_delay_holds_each_direction_and_a_close_passes_through() {
        let link = Link::open("127.0.0.1:0".parse().unwrap(), echo().await).await.unwrap();
        let mut open = TcpStream::connect(link.address()).await.unwrap();
        link.delay(Duration::from_millis(40));
        let start = Instant::now();
        assert_eq!(say(&mut open, "hello").await.unwrap(), "hello");
        assert!(start.elapsed() >= Duration::from_millis(80), "{:?}", start.elapsed());
        link.restore();
        open.shutdown().await.unwrap();
        assert_eq!(open.read(&mut [0]).await.unwrap(), 0, "the echo ends in order");
    }
}
