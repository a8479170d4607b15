//! A way between two parts that the test points at whom it likes, or cuts.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// Where a way leads.
#[derive(Clone, Debug)]
pub enum To {
    /// To one of these ports, in turn; to the next one where nobody listens.
    Ports(Vec<u16>),
    /// Nowhere: connections are accepted and stay open, and nothing is carried.
    Nowhere,
}

/// A way. It and all connections over it end when this is dropped.
pub struct Way {
    /// Where it begins.
    pub port: u16,
    to: watch::Sender<To>,
    /// Connections that got through so far.
    through: watch::Receiver<usize>,
    /// Of these, before it was pointed where it leads now.
    before: usize,
    _serving: JoinSet<()>,
}

impl Way {
    pub async fn new(to: To) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (to, pointed) = watch::channel(to);
        let (counted, through) = watch::channel(0);
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, pointed, counted));
        Self {
            port,
            to,
            through,
            before: 0,
            _serving: serving,
        }
    }

    /// Points it elsewhere: connections that there are end, or, where it leads nowhere now, carry nothing more.
    pub fn point(&mut self, to: To) {
        self.before = *self.through.borrow();
        self.to.send_replace(to);
    }

    /// Waits until so many connections have got through to where it leads now.
    pub async fn carries(&mut self, connections: usize) {
        let wanted = self.before + connections;
        self.through.wait_for(|through| *through >= wanted).await.unwrap();
    }
}

async fn serve(listener: TcpListener, to: watch::Receiver<To>, through: watch::Sender<usize>) {
    let mut connections = JoinSet::new();
    let turn = Arc::<AtomicUsize>::default();
    loop {
        let Ok((near, _)) = listener.accept().await else {
            continue;
        };
        while connections.try_join_next().is_some() {}
        connections.spawn(carry(near, to.clone(), turn.clone(), through.clone()));
    }
}

async fn carry(
    mut near: TcpStream,
    mut to: watch::Receiver<To>,
    turn: Arc<AtomicUsize>,
    through: watch::Sender<usize>,
) {
    let ports = loop {
        match to.borrow_and_update().clone() {
            To::Ports(ports) => break ports,
            To::Nowhere => {}
        }
        if to.changed().await.is_err() {
            return;
        }
    };
    let mut far = None;
    for _ in &ports {
        let port = ports[turn.fetch_add(1, Relaxed) % ports.len()];
        far = TcpStream::connect(("127.0.0.1", port)).await.ok();
        if far.is_some() {
            break;
        }
    }
    let Some(mut far) = far else { return };
    through.send_modify(|through| *through += 1);
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => return,
        _ = to.changed() => {}
    }
    // What is cut is not closed: neither end hears of the other until the way leads somewhere again.
    while matches!(&*to.borrow_and_update(), To::Nowhere) {
        if to.changed().await.is_err() {
            return;
        }
    }
}
