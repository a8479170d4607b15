//! Connections within the process, from a gateway to the hub.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use axum::serve::Listener;
use tokio::{io::DuplexStream, sync::mpsc};

use crate::{
    cloud::Peer,
    transport::{client::Dialer, doors::Place, server::Address},
};

/// Bytes that one side of a pipe is ahead of the other at most.
const BUFFER: usize = 16 * 1024;

/// Both ends of where pipes are made. `confidential` says whether credentials may go through them, and on to the agent.
pub fn pipes(confidential: bool) -> (PipeDialer, PipeListener) {
    let (dialled, taken) = mpsc::channel(1);
    (
        PipeDialer(dialled),
        PipeListener {
            taken,
            peer: PipePeer { confidential },
        },
    )
}

/// The gateways' end.
#[derive(Clone, Debug)]
pub struct PipeDialer(mpsc::Sender<DuplexStream>);

impl Dialer for PipeDialer {
    type Io = DuplexStream;

    fn host(&self) -> &'static str {
        "hub"
    }

    async fn dial(&self) -> io::Result<DuplexStream> {
        let (near, far) = tokio::io::duplex(BUFFER);
        self.0.send(far).await.map_err(io::Error::other)?;
        Ok(near)
    }
}

impl PipeDialer {
    /// A dialer of one connection: whoever was admitted once is not admitted to another.
    pub fn once(&self) -> OnceDialer {
        OnceDialer(Mutex::new(Some(self.clone())))
    }
}

/// Dials once, and then never again.
#[derive(Debug)]
pub struct OnceDialer(Mutex<Option<PipeDialer>>);

impl Dialer for OnceDialer {
    type Io = DuplexStream;

    fn host(&self) -> &'static str {
        "hub"
    }

    async fn dial(&self) -> io::Result<DuplexStream> {
        let dialer = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match dialer {
            Some(dialer) => dialer.dial().await,
            None => Err(io::Error::other("an agent's connection has one session")),
        }
    }
}

/// The hub's end.
#[derive(Debug)]
pub struct PipeListener {
    taken: mpsc::Receiver<DuplexStream>,
    peer: PipePeer,
}

impl Listener for PipeListener {
    type Io = DuplexStream;
    type Addr = PipePeer;

    async fn accept(&mut self) -> (DuplexStream, PipePeer) {
        match self.taken.recv().await {
            Some(io) => (io, self.peer.clone()),
            // Nobody dials any more.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<PipePeer> {
        Ok(self.peer.clone())
    }
}

/// What is known of the other side of a pipe: nothing is proven.
#[derive(Clone, Debug)]
pub struct PipePeer {
    confidential: bool,
}

impl Address for PipePeer {
    fn peer(&self) -> Peer {
        Peer {
            identity: None,
            confidential: self.confidential,
        }
    }

    /// The agent's own connection has one.
    fn place(&self) -> Option<Arc<Place>> {
        None
    }
}
