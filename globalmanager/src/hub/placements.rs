//! Who places what on which node, and who may still claim what a node holds.
//!
//! Decides, for an object that a node holds and nobody has placed there, whether it may be deleted: its owner is gone
//! for certain, or has been planned and is not on that node. An owner that exists and was not planned yet (it does not
//! parse, an input is missing, its turn has not come) keeps what it has; so does every owner of a kind of which no list
//! has succeeded. Never touches a connection.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use skerry_edge::{Item, ItemKey, ObjectKey, cloud::Node, limits};

/// A node's name, shared by all that refer to it.
pub(super) type NodeName = Arc<str>;

/// Everything that nodes should hold.
#[derive(Default)]
pub(super) struct Placements {
    owners: BTreeMap<ObjectKey, Owner>,
    /// Kinds of which a consistent list has been seen, so that an owner that is not known is gone.
    listed: BTreeSet<String>,
    nodes: HashMap<NodeName, Node>,
    /// Which nodes hold something of an owner in excess.
    strays: BTreeMap<ObjectKey, BTreeSet<NodeName>>,
    /// The highest version of the nodes that were dropped.
    dropped: u64,
}

enum Owner {
    /// It exists, and nothing is known of where it belongs.
    Unplanned,
    /// It belongs on these nodes.
    Planned(Vec<NodeName>),
}

impl Placements {
    /// The node's state, if there is any.
    pub(super) fn node_mut(&mut self, name: &str) -> Option<&mut Node> {
        self.nodes.get_mut(name)
    }

    /// All nodes with state.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&NodeName, &Node)> {
        self.nodes.iter()
    }

    /// The node's state, made where there is none, beside the rule that says what may be deleted there.
    pub(super) fn node_with_rule(&mut self, name: &str) -> (&mut Node, impl Fn(&ObjectKey) -> bool) {
        let Self {
            owners,
            listed,
            nodes,
            dropped,
            ..
        } = self;
        let (owners, listed) = (&*owners, &*listed);
        (entry(nodes, &name.into(), *dropped), |key: &ObjectKey| {
            may_delete(owners, listed, key)
        })
    }

    /// Forgets a node of which there is nothing to keep.
    pub(super) fn release(&mut self, name: &str) {
        if let Some(node) = self.nodes.get(name).filter(|node| node.objects.is_empty()) {
            self.dropped = self.dropped.max(node.objects.version());
            self.nodes.remove(name);
        }
    }

    /// A node has gone.
    pub(super) fn left(&mut self, name: &str) {
        self.forget_strays(name);
        if let Some(node) = self.nodes.get_mut(name)
            && node.objects.counts().assigned == 0
        {
            node.objects.forget();
        }
        self.release(name);
    }

    /// A session of the node is over. What it said that it holds in excess is forgotten with it, since it may say what it
    /// likes: the next one begins with a digest, which tells anew.
    pub(super) fn forget_strays(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        if node.objects.counts().strays == 0 {
            return;
        }
        for key in node.objects.strays() {
            if let Some(nodes) = self.strays.get_mut(&key) {
                nodes.remove(name);
                if nodes.is_empty() {
                    self.strays.remove(&key);
                }
            }
        }
        node.objects.forget();
    }

    /// A node holds these in excess, and they may not be deleted yet.
    pub(super) fn strayed(&mut self, node: &NodeName, keys: &[ItemKey]) {
        for key in keys {
            self.strays.entry(key.object.clone()).or_default().insert(node.clone());
        }
    }

    /// The nodes that would hold more than one may, if `owner` placed this.
    pub(super) fn full(&self, owner: &ObjectKey, parts: &BTreeMap<NodeName, Vec<Item>>) -> BTreeSet<NodeName> {
        let full = |(name, items): &(&NodeName, &Vec<Item>)| {
            let node = self.nodes.get(*name);
            let all = node.map_or(0, |node| node.objects.counts().assigned) + items.len();
            let of_it = |node: &Node| node.objects.keys_of(owner).len();
            all > limits::MAX_ITEMS && all.saturating_sub(node.map_or(0, of_it)) > limits::MAX_ITEMS
        };
        parts.iter().filter(full).map(|(name, _)| name.clone()).collect()
    }

    /// Whether this is what `owner` places on nodes, whole, and no node holds anything else of it.
    pub(super) fn holds(&self, owner: &ObjectKey, parts: &BTreeMap<NodeName, Vec<Item>>) -> bool {
        let on_node = |(name, items): (&NodeName, &Vec<Item>)| {
            let node = self.nodes.get(name);
            node.is_some_and(|node| node.objects.holds(owner, items))
        };
        let planned = matches!(self.owners.get(owner), Some(Owner::Planned(nodes)) if nodes.iter().eq(parts.keys()));
        planned && !self.strays.contains_key(owner) && parts.iter().all(on_node)
    }

    /// What `owner` places on nodes, whole, but for those that are `full`: they keep what they have of it. The nodes for which
    /// that changes something.
    pub(super) fn set(
        &mut self,
        now: Duration,
        owner: &ObjectKey,
        mut parts: BTreeMap<NodeName, Vec<Item>>,
        full: &BTreeSet<NodeName>,
    ) -> Vec<NodeName> {
        let planned = Owner::Planned(parts.keys().cloned().collect());
        let before = self.owners.insert(owner.clone(), planned);
        for node in self.leaves(owner, before) {
            parts.entry(node).or_default();
        }
        parts.retain(|node, _| !full.contains(node));
        self.replace(now, owner, parts)
    }

    /// `owner` is not there; the nodes for which that changes something. Nothing changes where its kind is unknown.
    pub(super) fn gone(&mut self, now: Duration, owner: &ObjectKey) -> Vec<NodeName> {
        if !self.listed.contains(&owner.kind) {
            return Vec::new();
        }
        let before = self.owners.remove(owner);
        let parts = self
            .leaves(owner, before)
            .into_iter()
            .map(|node| (node, Vec::new()))
            .collect();
        self.replace(now, owner, parts)
    }

    /// A consistent list of `kind` named exactly these owners; the nodes for which that changes something.
    pub(super) fn listed(&mut self, now: Duration, kind: &str, mut named: BTreeSet<ObjectKey>) -> Vec<NodeName> {
        self.listed.insert(kind.to_owned());
        let known = of_kind(&self.owners, kind).chain(of_kind(&self.strays, kind));
        let gone: BTreeSet<_> = known.filter(|owner| !named.contains(*owner)).cloned().collect();
        named.retain(|owner| !self.owners.contains_key(owner));
        self.owners
            .extend(named.into_iter().map(|owner| (owner, Owner::Unplanned)));
        gone.iter().flat_map(|owner| self.gone(now, owner)).collect()
    }

    /// Nothing is known any more of which owners of `kind` there are.
    pub(super) fn unlisted(&mut self, kind: &str) {
        self.listed.remove(kind);
    }

    /// The nodes that hold something of an owner: where it was, and where it strayed.
    fn leaves(&mut self, owner: &ObjectKey, before: Option<Owner>) -> BTreeSet<NodeName> {
        let mut nodes = self.strays.remove(owner).unwrap_or_default();
        if let Some(Owner::Planned(planned)) = before {
            nodes.extend(planned);
        }
        nodes
    }

    fn replace(&mut self, now: Duration, owner: &ObjectKey, parts: BTreeMap<NodeName, Vec<Item>>) -> Vec<NodeName> {
        let mut changed = Vec::new();
        for (name, items) in parts {
            if entry(&mut self.nodes, &name, self.dropped)
                .objects
                .replace(now, owner, items)
            {
                changed.push(name);
            }
        }
        changed
    }
}

fn entry<'a>(nodes: &'a mut HashMap<NodeName, Node>, name: &NodeName, version: u64) -> &'a mut Node {
    nodes
        .entry(name.clone())
        .or_insert_with(|| Node::counting_from(version))
}

fn may_delete(owners: &BTreeMap<ObjectKey, Owner>, listed: &BTreeSet<String>, key: &ObjectKey) -> bool {
    match owners.get(key) {
        Some(Owner::Planned(_)) => true,
        Some(Owner::Unplanned) => false,
        None => listed.contains(&key.kind),
    }
}

/// The keys of one kind.
fn of_kind<'a, V>(map: &'a BTreeMap<ObjectKey, V>, kind: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
    let first = ObjectKey::new(kind, "", "");
    map.range((Bound::Included(first), Bound::Unbounded))
        .map(|(key, _)| key)
        .take_while(move |key| key.kind == kind)
}
