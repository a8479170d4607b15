//! Counts what goes over the connections of all nodes.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use skerry_edge::transport::client::Dialer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::orders::Looked;

/// What went over all connections so far.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
    dials: AtomicU64,
}

impl Traffic {
    /// The totals; of other figures nothing.
    pub(super) fn so_far(&self) -> Looked {
        Looked {
            received: self.received.load(Relaxed),
            sent: self.sent.load(Relaxed),
            dials: self.dials.load(Relaxed),
            ..Looked::default()
        }
    }
}

/// Dials as another dialer does, and counts.
pub(super) struct Counting<D> {
    inner: D,
    traffic: Arc<Traffic>,
}

impl<D> Counting<D> {
    pub(super) fn new(inner: D, traffic: Arc<Traffic>) -> Self {
        Self { inner, traffic }
    }
}

impl<D: Dialer> Dialer for Counting<D> {
    type Io = Counted<D::Io>;

    fn host(&self) -> &str {
        self.inner.host()
    }

    async fn dial(&self) -> io::Result<Self::Io> {
        self.traffic.dials.fetch_add(1, Relaxed);
        Ok(Counted {
            inner: self.inner.dial().await?,
            traffic: self.traffic.clone(),
        })
    }
}

/// A connection whose bytes are counted.
pub(super) struct Counted<Io> {
    inner: Io,
    traffic: Arc<Traffic>,
}

impl<Io: AsyncRead + Unpin> AsyncRead for Counted<Io> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, read: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = read.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, read))?;
        let bytes = read.filled().len() - before;
        self.traffic.received.fetch_add(bytes as u64, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Counted<Io> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        self.traffic.sent.fetch_add(written as u64, Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    struct Pipe(parking_lot::Mutex<Option<DuplexStream>>);

    impl Dialer for Pipe {
        type Io = DuplexStream;

        fn host(&self) -> &'static str {
            "pipe"
        }

        async fn dial(&self) -> io::Result<DuplexStream> {
            self.0.lock().take().ok_or(io::ErrorKind::NotConnected.into())
        }
    }

    #[tokio::test]
    async fn bytes_are_counted_in_both_directions() {
        let (near, mut far) = duplex(16);
        let traffic = Arc::<Traffic>::default();
        let dialer = Counting::new(Pipe(Some(near).into()), traffic.clone());
        let mut near = dialer.dial().await.unwrap();
        near.write_all(b"abc").await.unwrap();
        far.write_all(b"defgh").await.unwrap();
        let mut read = [0; 5];
        near.read_exact(&mut read).await.unwrap();
        let so_far = traffic.so_far();
        assert_eq!((so_far.sent, so_far.received, so_far.dials), (3, 5, 1));
    }
}
