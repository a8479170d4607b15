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
//! A connection that has proven nothing may bring so many bytes, and then has to be a node's.

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
    /// Of nodes.
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

/// Counts the connections of all listeners that share it; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Doors(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    capacity: Capacity,
    counts: Mutex<Counts>,
    line: Seldom,
}

#[derive(Debug, Default)]
struct Counts {
    unproven: usize,
    by_address: HashMap<IpAddr, usize>,
    nodes: usize,
    by_node: HashMap<Arc<str>, usize>,
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
        (counts.unproven, counts.nodes)
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
}

#[derive(Clone, Debug)]
enum Holds {
    Unproven(IpAddr),
    Node(Arc<str>),
}

impl Place {
    /// The connection is this node's. Where the node cannot have another, it stays among those that have proven nothing.
    pub fn prove(&self, node: &str) -> Result<(), Turned> {
        let mut holds = self.holds();
        let Holds::Unproven(address) = *holds else {
            return Ok(());
        };
        let Capacity { nodes, per_node, .. } = self.doors.0.capacity;
        let mut counts = self.doors.counts();
        let name: Arc<str> = node.into();
        let turned = if counts.nodes >= nodes {
            Turned::Nodes(nodes)
        } else if add(&mut counts.by_node, name.clone(), per_node) {
            counts.nodes += 1;
            counts.unproven -= 1;
            remove(&mut counts.by_address, &address);
            *holds = Holds::Node(name);
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
            Holds::Node(node) => node.to_string(),
        }
    }

    /// The connection has brought so many bytes; false where those are too many for one that has proven nothing.
    pub(super) fn brought(&self, bytes: usize) -> bool {
        if matches!(*self.holds(), Holds::Node(_)) {
            return true;
        }
        self.left
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes))
            .is_ok()
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let holds = self.holds().clone();
        let mut counts = self.doors.counts();
        match holds {
            Holds::Unproven(address) => {
                counts.unproven -= 1;
                remove(&mut counts.by_address, &address);
            }
            Holds::Node(node) => {
                counts.nodes -= 1;
                remove(&mut counts.by_node, &node);
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
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn from(address: usize) -> IpAddr {
        Ipv4Addr::from(u32::try_from(address).unwrap()).into()
    }

    /// As many places as there are from one address.
    fn all(doors: &Doors, address: usize) -> Vec<Place> {
        std::iter::from_fn(|| doors.enter(from(address)).ok()).collect()
    }

    #[test]
    fn those_that_have_proven_nothing_are_few_from_one_address_and_in_all() {
        let doors = Doors::default();
        let mut places = vec![];
        for address in 0.. {
            let here = all(&doors, address);
            let left = limits::UNPROVEN - places.len();
            assert_eq!(here.len(), limits::UNPROVEN_PER_ADDRESS.min(left), "from {address}");
            if here.is_empty() {
                break;
            }
            places.extend(here);
        }
        places.pop();
        let refused = doors.enter(from(0)).unwrap_err();
        assert_eq!(
            refused,
            Turned::Address(limits::UNPROVEN_PER_ADDRESS),
            "one address alone does not get what is left"
        );
        places.clear();
        let counts = doors.counts();
        assert_eq!((counts.unproven, counts.by_address.len()), (0, 0), "nothing is kept");
        let words: Vec<_> = counts.turned.keys().copied().collect();
        assert_eq!(words, ["address", "unproven"], "each was counted");
    }

    #[test]
    fn whoever_has_a_whole_network_comes_from_one_address() {
        let doors = Doors::default();
        let enter = |address: String| doors.enter(address.parse().unwrap());
        let places: Vec<_> = (0..limits::UNPROVEN_PER_ADDRESS)
            .map(|i| enter(format!("2001:db8:0:7:{i:x}::1")).unwrap())
            .collect();
        let refused = Turned::Address(limits::UNPROVEN_PER_ADDRESS);
        assert_eq!(enter("2001:db8:0:7::".to_owned()).unwrap_err(), refused);
        assert!(enter("2001:db8:0:8::1".to_owned()).is_ok(), "another network");
        drop(places);
        assert!(doors.counts().by_address.is_empty(), "nothing is kept");

        // Where one socket takes both, IPv4 comes as this; its addresses are not one network.
        let all: Vec<_> = (0..=limits::UNPROVEN_PER_ADDRESS)
            .map(|i| enter(format!("::ffff:10.0.{}.{}", i / 256, i % 256)).unwrap())
            .collect();
        assert_eq!(doors.present(), (all.len(), 0));
    }

    #[test]
    fn a_node_takes_no_place_of_those_that_have_proven_nothing_and_has_few_itself() {
        let doors = Doors::default();
        let prove = |node: &str| {
            let place = doors.enter(from(0)).unwrap();
            place.prove(node).map(|()| place)
        };
        // More than may come from one address without proof.
        let nodes: Vec<_> = (0..2 * limits::UNPROVEN_PER_ADDRESS)
            .map(|i| prove(&format!("edge-{i}")).unwrap())
            .collect();
        assert_eq!(doors.present(), (0, nodes.len()));
        let more: Vec<_> = (1..limits::CONNECTIONS_PER_NODE)
            .map(|_| prove("edge-0").unwrap())
            .collect();
        assert_eq!(prove("edge-0").unwrap_err(), Turned::Node(limits::CONNECTIONS_PER_NODE));
        assert!(prove("edge-1").is_ok(), "another node");
        drop(more);
        assert!(prove("edge-0").is_ok(), "when the others are gone");
        drop(nodes);
        assert_eq!(doors.present(), (0, 0));
        assert!(doors.counts().by_node.is_empty(), "nothing is kept");
    }

    #[test]
    fn nodes_are_so_many_in_all() {
        let doors = Doors::default();
        let prove = |i: usize| {
            let place = doors.enter(from(0)).unwrap();
            place.prove(&i.to_string()).map(|()| place)
        };
        let mut nodes: Vec<_> = (0..limits::CONNECTIONS).map(|i| prove(i).unwrap()).collect();
        assert_eq!(
            prove(limits::CONNECTIONS).unwrap_err(),
            Turned::Nodes(limits::CONNECTIONS)
        );
        nodes.pop();
        assert!(prove(limits::CONNECTIONS).is_ok());
    }

    #[test]
    fn who_has_proven_nothing_brings_few_bytes() {
        let doors = Doors::default();
        let place = doors.enter(from(0)).unwrap();
        assert!(place.brought(limits::BEFORE_HELLO));
        assert!(!place.brought(1));
        place.prove("edge-1").unwrap();
        assert!(place.brought(usize::MAX), "a node may");
    }
}
