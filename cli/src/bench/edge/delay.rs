//! A proxy that stands for distance: whatever goes through it arrives later, in order and whole.
//!
//! It limits nothing else. Only the connection to it is made at once; the handshakes that follow are as late as all else.
//! It can also lose what goes over the connections that there are, at both ends of which nobody is told.

use std::{
    future::pending,
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::failure::Failure;

/// Bytes that are read at once.
const CHUNK: usize = 8 * 1024;
/// Chunks under way in one direction: more than any window of the protocol, so that this never holds anything up.
const UNDER_WAY: usize = 64 * 1024;

/// The proxy. It and all connections through it end when this is dropped.
pub(super) struct Delay {
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// How often connections were silenced: those that began before the last time are.
    silenced: watch::Sender<u32>,
    _serving: JoinSet<()>,
}

impl Delay {
    /// Stands before `target`, so far away in each direction.
    pub(super) async fn before(target: SocketAddr, one_way: Duration) -> Result<Self, Failure> {
        let unusable = |error: io::Error| Failure::new(error, "no port of 127.0.0.1 is free");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let mut serving = JoinSet::new();
        let (silenced, silence) = watch::channel(0);
        serving.spawn(serve(listener, target, one_way, silence));
        Ok(Self {
            address,
            silenced,
            _serving: serving,
        })
    }

    /// Carries nothing more over the connections that there are, and leaves them open.
    pub(super) fn silence(&self) {
        self.silenced.send_modify(|silenced| *silenced += 1);
    }
}

async fn serve(listener: TcpListener, target: SocketAddr, one_way: Duration, silence: watch::Receiver<u32>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((near, _)) = listener.accept().await else {
            continue;
        };
        while connections.try_join_next().is_some() {}
        let way = Way {
            late: one_way,
            began: *silence.borrow(),
            silence: silence.clone(),
        };
        connections.spawn(async move {
            // One that breaks is broken at both ends: they are dropped together.
            if let Err(error) = connect(near, target, &way).await {
                tracing::debug!(%error, "a delayed connection ended");
            }
        });
    }
}

/// What the way of a connection is like.
struct Way {
    late: Duration,
    silence: watch::Receiver<u32>,
    /// How often there was silence when the connection began.
    began: u32,
}

impl Way {
    fn is_silent(&self) -> bool {
        *self.silence.borrow() > self.began
    }
}

async fn connect(near: TcpStream, target: SocketAddr, way: &Way) -> io::Result<()> {
    let far = TcpStream::connect(target).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
    tokio::try_join!(carry(from_near, to_far, way), carry(from_far, to_near, way))?;
    Ok(())
}

/// Carries one direction to its end.
async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, way: &Way) -> io::Result<()> {
    let (hand_on, mut under_way) = mpsc::channel::<(Instant, Vec<u8>)>(UNDER_WAY);
    let read = async move {
        loop {
            let mut chunk = vec![0; CHUNK];
            let bytes = match from.read(&mut chunk).await {
                // That one end has given up is not told to the other.
                Err(_) if way.is_silent() => 0,
                read => read?,
            };
            chunk.truncate(bytes);
            chunk.shrink_to_fit();
            let over = bytes == 0;
            // An end is late, too.
            if hand_on.send((Instant::now() + way.late, chunk)).await.is_err() || over {
                return Ok::<_, io::Error>(());
            }
        }
    };
    let write = async move {
        while let Some((due, chunk)) = under_way.recv().await {
            sleep_until(due).await;
            match (way.is_silent(), chunk.is_empty()) {
                (true, true) => return pending().await,
                (true, false) => {}
                (false, true) => return to.shutdown().await,
                (false, false) => to.write_all(&chunk).await?,
            }
        }
        Ok::<_, io::Error>(())
    };
    tokio::try_join!(read, write)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::{io::duplex, time::timeout};

    use super::*;

    fn way() -> (watch::Sender<u32>, Way) {
        let (silenced, silence) = watch::channel(0);
        let way = Way {
            late: Duration::from_millis(100),
            silence,
            began: 0,
        };
        (silenced, way)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_sent_together_arrives_together_and_late() {
        let (mut sender, near) = duplex(1024);
        let (far, mut receiver) = duplex(1024);
        let (_silenced, way) = way();
        let one_way = way.late;
        tokio::spawn(async move { carry(near, far, &way).await });
        let begun = Instant::now();
        sender.write_all(b"one").await.unwrap();
        sender.write_all(b"two").await.unwrap();
        drop(sender);
        let mut all = Vec::new();
        receiver.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"onetwo");
        let took = begun.elapsed();
        assert!(took >= one_way && took < one_way * 2, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silenced_connection_stays_open_and_carries_nothing() {
        let (mut sender, near) = duplex(1024);
        let (far, mut receiver) = duplex(1024);
        let (silenced, way) = way();
        tokio::spawn(async move { carry(near, far, &way).await });
        sender.write_all(b"heard").await.unwrap();
        let mut read = [0; 5];
        receiver.read_exact(&mut read).await.unwrap();
        silenced.send_modify(|silenced| *silenced += 1);
        sender.write_all(b"lost").await.unwrap();
        drop(sender);
        let never = timeout(Duration::from_secs(3600), receiver.read(&mut read)).await;
        assert!(never.is_err(), "{never:?}");
    }
}
