//! Who may have a connection at all.
//!
//! ```text
//!   accepted ── enter ──▶ unproven ── prove ──▶ of a node ── dropped ──▶
//!                  │                    │
//!                  ▼ too many in all,   ▼ too many of that node,
//!                    or from there        or in all
//! ```
//!
//! Decides by counting, before anything is read and by what the other side has proven; the numbers are all that is kept.
//! A connection that has proven nothing may bring so many bytes, and then has to be a node's. Those that are a node's by their word
//! alone have so many bytes of unfinished messages among them.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fmt,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use thiserror::Error;

use crate::{limits, seldom::Seldom};

/// How many connections there may be at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// That have proven nothing.
    pub unproven: usize,
    /// Of these, from one address, or one network of IPv6.
    pub unproven_per_address: usize,
    /// Of nodes that have shown a certificate, and as many of those that are taken at their word.
    pub nodes: usize,
    /// Of these, of one node.
    pub per_node: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            unproven: limits::UNPROVEN,
            unproven_per_address: limits::UNPROVEN_PER_ADDRESS,
            nodes: limits::CONNECTIONS,
            per_node: limits::CONNECTIONS_PER_NODE,
        }
    }
}

/// Why a connection is turned away.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Turned {
    /// Too many have proven nothing.
    #[error("there are {0} connections already that have proven nothing")]
    Unproven(usize),
    /// Too many of these come from there.
    #[error("there are {0} connections already from that address that have proven nothing")]
    Address(usize),
    /// Too many nodes.
    #[error("there are {0} connections of nodes already")]
    Nodes(usize),
    /// Too many of this node.
    #[error("this node has {0} connections already")]
    Node(usize),
}

impl Turned {
    /// One word, for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unproven(_) => "unproven",
            Self::Address(_) => "address",
            Self::Nodes(_) => "nodes",
            Self::Node(_) => "node",
        }
    }
}

/// What a node has shown for its name. They are counted apart, so that who invents names takes no place of those who prove theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// A certificate.
    Certificate,
    /// Nothing: it is taken at its word, on a listener that asks for no more.
    Word,
    /// The same, by Sedna's protocol, whose listener knows itself how many it takes and of what size.
    Agent,
}

/// Why a connection may bring no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum TooMuch {
    #[error("more than {} bytes came before a hello", limits::BEFORE_HELLO)]
    BeforeHello,
    #[error(
        "nodes without a certificate are in the midst of more than {} bytes already",
        limits::SAID_BYTES
    )]
    Unfinished,
}

/// Counts the connections of all listeners that share it; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Doors(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    capacity: Capacity,
    counts: Mutex<Counts>,
    /// Bytes of unfinished messages of those that are nodes by their word alone.
    unfinished: AtomicUsize,
    line: Seldom,
}

#[derive(Debug, Default)]
struct Counts {
    unproven: usize,
    by_address: HashMap<IpAddr, usize>,
    nodes: HashMap<Proof, usize>,
    by_node: HashMap<(Proof, Arc<str>), usize>,
    turned: BTreeMap<&'static str, u64>,
}

impl Doors {
    /// Doors for so many.
    pub fn new(capacity: Capacity) -> Self {
        Self(Arc::new(Inner {
            capacity,
            ..Inner::default()
        }))
    }

    /// A connection from this address has come.
    pub fn enter(&self, address: IpAddr) -> Result<Place, Turned> {
        let address = network(address);
        let Capacity {
            unproven,
            unproven_per_address,
            ..
        } = self.0.capacity;
        let mut counts = self.counts();
        let entered = if counts.unproven >= unproven {
            Err(Turned::Unproven(unproven))
        } else if add(&mut counts.by_address, address, unproven_per_address) {
            counts.unproven += 1;
            Ok(())
        } else {
            Err(Turned::Address(unproven_per_address))
        };
        drop(counts);
        match entered {
            Ok(()) => Ok(Place {
                doors: self.clone(),
                holds: Mutex::new(Holds::Unproven(address)),
                left: AtomicUsize::new(limits::BEFORE_HELLO),
                unfinished: AtomicUsize::new(0),
            }),
            Err(turned) => {
                self.turn(turned.word(), &address, &turned);
                Err(turned)
            }
        }
    }

    /// Counts, and now and then logs, that a connection came to nothing.
    pub(super) fn turn(&self, word: &'static str, who: &dyn fmt::Display, why: &dyn fmt::Display) {
        *self.counts().turned.entry(word).or_default() += 1;
        if let Some(left_out) = self.0.line.line() {
            tracing::warn!(%who, %why, left_out, "a connection was turned away");
        }
    }

    /// How many connections came to nothing, by why.
    pub fn turned(&self) -> BTreeMap<&'static str, u64> {
        self.counts().turned.clone()
    }

    /// How many connections there are that have proven nothing, and how many of nodes.
    pub fn present(&self) -> (usize, usize) {
        let counts = self.counts();
        (counts.unproven, counts.nodes.values().sum())
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place that a connection takes up until this is dropped.
#[derive(Debug)]
pub struct Place {
    doors: Doors,
    holds: Mutex<Holds>,
    /// Bytes that it may still bring while it has proven nothing.
    left: AtomicUsize,
    /// Bytes that it has brought since its last whole message, where it is a node's by its word alone.
    unfinished: AtomicUsize,
}

#[derive(Clone, Debug)]
enum Holds {
    Unproven(IpAddr),
    Node(Proof, Arc<str>),
}

impl Place {
    /// The connection is this node's. Where the node cannot have another, it stays among those that have proven nothing.
    pub fn prove(&self, node: &str, proof: Proof) -> Result<(), Turned> {
        let mut holds = self.holds();
        let Holds::Unproven(address) = *holds else {
            return Ok(());
        };
        let Capacity { nodes, per_node, .. } = self.doors.0.capacity;
        let mut counts = self.doors.counts();
        let name: Arc<str> = node.into();
        let turned = if counts.nodes.get(&proof).is_some_and(|present| *present >= nodes) {
            Turned::Nodes(nodes)
        } else if add(&mut counts.by_node, (proof, name.clone()), per_node) {
            add(&mut counts.nodes, proof, nodes);
            counts.unproven -= 1;
            remove(&mut counts.by_address, &address);
            *holds = Holds::Node(proof, name);
            return Ok(());
        } else {
            Turned::Node(per_node)
        };
        drop(counts);
        self.doors.turn(turned.word(), &node, &turned);
        Err(turned)
    }

    /// Who has it, as far as that is known: a node, or an address.
    pub fn holder(&self) -> String {
        match &*self.holds() {
            Holds::Unproven(address) => address.to_string(),
            Holds::Node(_, node) => node.to_string(),
        }
    }

    /// The connection has brought so many bytes; why it has to end, if it has.
    pub(super) fn brought(&self, bytes: usize) -> Result<(), TooMuch> {
        let proof = match *self.holds() {
            Holds::Unproven(_) => None,
            Holds::Node(proof, _) => Some(proof),
        };
        match proof {
            None => self
                .left
                .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes))
                .map(drop)
                .map_err(|_| TooMuch::BeforeHello),
            Some(Proof::Certificate | Proof::Agent) => Ok(()),
            Some(Proof::Word) => {
                let own = self.unfinished.fetch_add(bytes, Relaxed) + bytes;
                let all = self.doors.0.unfinished.fetch_add(bytes, Relaxed) + bytes;
                if all > limits::SAID_BYTES && own > limits::SAID_BYTES_EACH {
                    self.doors.turn("unfinished", &self.holder(), &TooMuch::Unfinished);
                    return Err(TooMuch::Unfinished);
                }
                Ok(())
            }
        }
    }

    /// So many of these bytes were a whole message, or all of them.
    pub(super) fn whole(&self, bytes: Option<usize>) {
        let bytes = bytes.unwrap_or(usize::MAX);
        let less = |unfinished: usize| Some(unfinished.saturating_sub(bytes));
        let before = self.unfinished.fetch_update(Relaxed, Relaxed, less).unwrap_or_default();
        self.doors.0.unfinished.fetch_sub(before.min(bytes), Relaxed);
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.whole(None);
        let holds = self.holds().clone();
        let mut counts = self.doors.counts();
        match holds {
            Holds::Unproven(address) => {
                counts.unproven -= 1;
                remove(&mut counts.by_address, &address);
            }
            Holds::Node(proof, node) => {
                remove(&mut counts.nodes, &proof);
                remove(&mut counts.by_node, &(proof, node));
            }
        }
    }
}

/// What an address counts as: of IPv6 its /64, since whoever has one of its addresses mostly has them all.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// Counts one more, unless there are so many.
fn add<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K, limit: usize) -> bool {
    let count = counts.entry(key).or_default();
    let room = *count < limit;
    *count += usize::from(room);
    room
}

/// Counts one less; of what there is none, nothing is kept.
fn remove<K: Hash + Eq + Clone>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Entry::Occupied(mut count) = counts.entry(key.clone()) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

#[cfg(test)]
mod tests;
