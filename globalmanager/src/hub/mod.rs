//! The edge hub: keeps every node told of its part, and hands on what nodes report.
//!
//! ```text
//!   engine ── set, gone, listed ──▶ Placements ◀── sessions, one task a connection ◀── nodes
//!   engine ◀── reports, one batch at a time a resource ────┘
//! ```
//!
//! Decides nothing about a kind, and nothing about the protocol: what goes over a connection is
//! [`skerry_edge::cloud::Session`]'s. All state is behind one lock that is held for map operations only; frames are
//! written outside of it. State is kept of nodes that are connected or should hold something, of no others.

mod appointments;
mod claims;
mod connection;
mod counters;
mod engine;
mod hello;
mod old_agents;
mod placements;
mod reports;
mod standing;
mod status;
mod stream;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use axum::{
    Router,
    serve::{Listener, ListenerExt as _},
};
use parking_lot::Mutex;
use skerry_edge::{
    Credential, Item, Object, ObjectKey,
    cloud::Server,
    identity::Revocations,
    limits,
    transport::{doors::Doors, plain::PlainListener, server},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use old_agents::OldAgents;
pub use reports::{Answers, Reports};
pub use status::{NodeStatus, Snapshot};
pub use stream::Reported;

use appointments::{Admissions, Appointments};
use claims::Claims;
use counters::{Counters, Lines};
use placements::{NodeName, Placements};
use reports::Streams;
use standing::Joined;

/// What one node holds of an owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The object; its key and uid are the owner's.
    pub object: Object,
    /// What the node needs to reach the data. Stored before the object.
    pub credentials: Vec<Credential>,
}

/// The hub; cheap to clone.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<Shared>,
}

struct Shared {
    origin: Instant,
    state: Mutex<State>,
    /// Which term the manager serves, if it leads.
    term: watch::Sender<Option<Term>>,
    /// Whose certificates are revoked; nothing where it is not known yet.
    revocations: watch::Sender<Option<Revocations>>,
    /// Which nodes have joined, or were turned away.
    joined: watch::Sender<Joined>,
    sessions: TaskTracker,
    admissions: Mutex<Admissions>,
    appointments: Mutex<Appointments>,
    doors: Doors,
    claims: Claims,
    counters: Counters,
    lines: Lines,
    jitter: Box<dyn Fn() -> f64 + Send + Sync>,
}

#[derive(Default)]
struct State {
    placements: Placements,
    connected: HashMap<NodeName, Connected>,
    streams: Streams,
}

/// What is known of a node's present connection.
struct Connected {
    /// Tells connections of one node apart.
    number: u64,
    wake: Arc<Notify>,
    since: Duration,
    agent: String,
}

/// A time during which this manager leads.
#[derive(Clone)]
struct Term {
    server: Arc<Server>,
    reports: Arc<dyn Reports>,
}

impl Default for Hub {
    fn default() -> Self {
        Self::with_jitter(rand::random)
    }
}

impl Hub {
    /// A hub that draws its random numbers, from [0, 1), here.
    pub fn with_jitter(jitter: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self {
            shared: Arc::new(Shared {
                origin: Instant::now(),
                state: Mutex::default(),
                term: watch::Sender::new(None),
                revocations: watch::Sender::new(None),
                joined: watch::Sender::new(Joined::Nobody),
                sessions: TaskTracker::new(),
                admissions: Mutex::default(),
                appointments: Mutex::default(),
                doors: Doors::default(),
                claims: Claims::default(),
                counters: Counters::default(),
                lines: Lines::default(),
                jitter: Box::new(jitter),
            }),
        }
    }

    /// Begins to serve nodes under this epoch; reports go to `reports`. What nodes should hold has to be said anew, since
    /// another manager may have said otherwise meanwhile, and what they hold is found out anew. Sessions of a term before
    /// are ended.
    pub fn lead(&self, server: Server, reports: Arc<dyn Reports>) {
        // Both under the lock: a session for which there is nothing any more has to find that its term is over.
        let mut state = self.shared.state.lock();
        state.placements = Placements::default();
        self.shared.term.send_replace(Some(Term {
            server: Arc::new(server),
            reports,
        }));
    }

    /// Ends all sessions and serves no node until [`Hub::lead`]: the epoch is over.
    pub fn stand_down(&self) {
        self.shared.term.send_replace(None);
    }

    /// Ends all sessions, tells the nodes when to come back, and waits until the last one knows.
    pub async fn shut_down(&self) {
        self.stand_down();
        self.shared.sessions.close();
        self.shared.sessions.wait().await;
    }

    /// Sets whose certificates are revoked, and ends the sessions that were begun with one of those. Until this is known,
    /// nodes with certificates are sent away for a while.
    pub fn revoke(&self, revocations: Revocations) {
        self.shared.revocations.send_if_modified(|known| {
            // All sessions look, so not for each certificate that is noted.
            let news = known.as_ref() != Some(&revocations);
            *known = Some(revocations);
            news
        });
    }

    /// Nodes can prove who they are: until it is known which ones do ([`Hub::set_joined`]), nobody is taken at his word.
    pub fn expect_proof(&self) {
        self.shared.joined.send_if_modified(|joined| {
            let news = *joined == Joined::Nobody;
            if news {
                *joined = Joined::NotKnown;
            }
            news
        });
    }

    /// Sets which nodes there is an `EdgeNode` of: whoever only says that he is one of those is none, and a session that he
    /// has is ended.
    pub fn set_joined(&self, nodes: BTreeSet<String>) {
        self.shared.joined.send_if_modified(|joined| {
            let nodes = Joined::These(nodes);
            let news = *joined != nodes;
            *joined = nodes;
            news
        });
    }

    /// Whether there is an `EdgeNode` of this node; nothing where that is not known yet.
    pub(crate) fn joined(&self, node: &str) -> Option<bool> {
        match &*self.shared.joined.borrow() {
            Joined::Nobody | Joined::NotKnown => None,
            Joined::These(nodes) => Some(nodes.contains(node)),
        }
    }

    /// On how many of these nodes nothing is placed.
    fn idle<'a>(&self, nodes: impl IntoIterator<Item = &'a str>) -> usize {
        let mut state = self.shared.state.lock();
        let placed = |node: &str| {
            state
                .placements
                .node_mut(node)
                .is_some_and(|node| node.objects.counts().assigned > 0)
        };
        nodes.into_iter().map(placed).filter(|placed| !placed).count()
    }

    /// Whether nodes are served.
    pub fn leads(&self) -> bool {
        self.shared.term.borrow().is_some()
    }

    /// Whether it is known whose certificates are revoked.
    pub fn knows_revocations(&self) -> bool {
        self.shared.revocations.borrow().is_some()
    }

    /// The routes that nodes connect to.
    pub fn router(&self) -> Router {
        let hub = self.clone();
        server::router(move |peer, socket| {
            hub.shared
                .sessions
                .track_future(connection::serve(hub.clone(), peer, socket))
        })
    }

    /// Serves nodes on this listener until `stop`; see [`Hub::shut_down`] for those that are connected then.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) {
        self.serve_on(nodelay(listener), stop).await;
    }

    /// As [`Hub::serve`], on any listener.
    pub async fn serve_on(&self, listener: impl Listener<Addr = SocketAddr>, stop: CancellationToken) {
        let listener = PlainListener::new(listener, self.doors());
        server::serve(listener, self.router(), stop).await;
    }

    /// Counts the connections over all listeners that nodes come by.
    pub fn doors(&self) -> Doors {
        self.shared.doors.clone()
    }

    /// What `owner` places on nodes, whole: a node that is not named holds nothing of it.
    pub fn set(&self, owner: &ObjectKey, parts: BTreeMap<String, Part>) {
        let parts = items(parts);
        if let Some(error) = parts.values().flatten().find_map(|item| item.check().err()) {
            // As for an owner that cannot be planned: its nodes keep what they have.
            self.shared.counters.oversize.fetch_add(1, Relaxed);
            tracing::error!(%owner, %error, "an object or a Secret of it is too large for its node");
            return;
        }
        self.change(|placements, now| {
            // One that held more could not say what it holds any more, and would have no session again.
            let full = placements.full(owner, &parts);
            for node in &full {
                self.shared.counters.oversize.fetch_add(1, Relaxed);
                tracing::error!(%owner, %node, limit = limits::MAX_ITEMS, "a node holds as many items as it may");
            }
            placements.set(now, owner, parts, &full)
        });
    }

    /// Whether this is what `owner` places on nodes, whole, as it was set last.
    pub fn holds(&self, owner: &ObjectKey, parts: BTreeMap<String, Part>) -> bool {
        let parts = items(parts);
        self.shared.state.lock().placements.holds(owner, &parts)
    }

    /// `owner` is not there. That counts once a list of its kind has been seen in this term; until then it may be that it
    /// is not known yet, and the list will tell.
    pub fn owner_gone(&self, owner: &ObjectKey) {
        self.change(|placements, now| placements.gone(now, owner));
    }

    /// A consistent list of `kind` (lower-case, singular) named exactly these owners; others of that kind are gone.
    pub fn kind_listed(&self, kind: &str, owners: BTreeSet<ObjectKey>) {
        self.change(|placements, now| placements.listed(now, kind, owners));
    }

    /// It is not known any more which owners of `kind` there are: none of them counts as gone until the next list.
    pub fn kind_unknown(&self, kind: &str) {
        self.shared.state.lock().placements.unlisted(kind);
    }

    fn now(&self) -> Duration {
        self.shared.origin.elapsed()
    }

    /// Changes placements, then wakes the sessions of the nodes for which that changes something.
    fn change(&self, change: impl FnOnce(&mut Placements, Duration) -> Vec<NodeName>) {
        let now = self.now();
        let mut state = self.shared.state.lock();
        for node in change(&mut state.placements, now) {
            match state.connected.get(&node) {
                Some(connected) => connected.wake.notify_one(),
                None => state.placements.release(&node),
            }
        }
    }
}

/// What each node holds of these parts.
fn items(parts: BTreeMap<String, Part>) -> BTreeMap<NodeName, Vec<Item>> {
    let items = |Part { object, credentials }: Part| {
        let credentials = credentials.into_iter().map(Item::Credential);
        credentials.chain([Item::Object(object)]).collect()
    };
    let parts = parts.into_iter();
    parts.map(|(node, part)| (node.into(), items(part))).collect()
}

/// A listener whose connections send at once.
pub(crate) fn nodelay(listener: TcpListener) -> impl Listener<Io = TcpStream, Addr = SocketAddr> {
    listener.tap_io(|stream| {
        // Frames are small and each is waited for. Where that cannot be had, they are slow, not lost.
        let _ = stream.set_nodelay(true);
    })
}

#[cfg(test)]
mod tests;
