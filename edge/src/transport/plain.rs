//! The manager's listener without TLS: for loopback, and for networks that are trusted as a whole.

use std::{io, net::SocketAddr, sync::Arc};

use axum::serve::Listener;

use super::{
    doors::{Doors, Place},
    server::Address,
};
use crate::cloud::Peer;

/// Takes connections as far as there is room for them.
#[derive(Debug)]
pub struct PlainListener<L> {
    listener: L,
    doors: Doors,
}

impl<L> PlainListener<L> {
    /// Takes what `listener` takes.
    pub fn new(listener: L, doors: Doors) -> Self {
        Self { listener, doors }
    }
}

impl<L: Listener<Addr = SocketAddr>> Listener for PlainListener<L> {
    type Io = L::Io;
    type Addr = PlainPeer;

    async fn accept(&mut self) -> (L::Io, PlainPeer) {
        loop {
            let (io, address) = self.listener.accept().await;
            if let Ok(place) = self.doors.enter(address.ip()) {
                let place = Some(Arc::new(place));
                return (io, PlainPeer { address, place });
            }
        }
    }

    fn local_addr(&self) -> io::Result<PlainPeer> {
        let address = self.listener.local_addr()?;
        Ok(PlainPeer { address, place: None })
    }
}

/// What is known of the other side of a connection: where it comes from.
#[derive(Clone, Debug)]
pub struct PlainPeer {
    address: SocketAddr,
    place: Option<Arc<Place>>,
}

impl Address for PlainPeer {
    fn peer(&self) -> Peer {
        self.address.peer()
    }

    fn place(&self) -> Option<Arc<Place>> {
        self.place.clone()
    }
}
