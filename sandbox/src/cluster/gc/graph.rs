//! The graph of owners and dependents as the watches show it, and what a change of it asks to be looked at. No requests.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::super::meta::Id;
use super::super::served::{Meta, Served};

/// The finalizer of an object that waits for its dependents to be deleted.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object that waits for its dependents to be set free.
pub(super) const ORPHAN: &str = "orphan";

pub(super) type Uid = String;

/// What the collector knows of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub(super) kind: KindKey,
    pub(super) id: Id,
    pub(super) uid: Uid,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) deleting: bool,
    pub(super) finalizers: Vec<String>,
}

/// Group and kind: enough to tell kinds apart whatever version a reference names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KindKey {
    pub(super) group: String,
    pub(super) kind: String,
}

impl KindKey {
    pub(super) fn of(served: &Served) -> Self {
        Self {
            group: served.resource.group.clone(),
            kind: served.resource.kind.clone(),
        }
    }
}

impl Item {
    pub(super) fn new(kind: KindKey, meta: &Meta) -> Self {
        let meta = &meta.metadata;
        Self {
            kind,
            id: (
                meta.namespace.clone().unwrap_or_default(),
                meta.name.clone().unwrap_or_default(),
            ),
            uid: meta.uid.clone().unwrap_or_default(),
            owners: meta.owner_references.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
        }
    }

    pub(super) fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|known| known == finalizer)
    }

    /// Whether it is on its way out and takes its dependents along first.
    pub(super) fn deletes_dependents(&self) -> bool {
        self.deleting && self.has(FOREGROUND)
    }

    pub(super) fn orphans_dependents(&self) -> bool {
        self.deleting && self.has(ORPHAN)
    }

    /// Whether it keeps `owner` from being deleted in the foreground.
    pub(super) fn blocks(&self, owner: &str) -> bool {
        self.owners
            .iter()
            .any(|reference| reference.uid == owner && reference.block_owner_deletion == Some(true))
    }

    /// Whether a reference by one of its dependents, which is in `namespace`, means this object.
    pub(super) fn is_meant_by(&self, reference: &OwnerReference, namespace: &str) -> bool {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        reference.uid == self.uid
            && reference.name == self.id.1
            && reference.kind == self.kind.kind
            && group == self.kind.group
            && (self.id.0.is_empty() || self.id.0 == namespace)
    }
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    items: BTreeMap<Uid, Item>,
    /// By owner, existing or not.
    dependents: BTreeMap<Uid, BTreeSet<Uid>>,
}

impl Graph {
    pub(super) fn get(&self, uid: &str) -> Option<&Item> {
        self.items.get(uid)
    }

    pub(super) fn dependents(&self, owner: &str) -> impl Iterator<Item = &Item> {
        self.dependents
            .get(owner)
            .into_iter()
            .flatten()
            .filter_map(|uid| self.items.get(uid))
    }

    pub(super) fn of_kind(&self, kind: &KindKey) -> Vec<Uid> {
        self.items
            .values()
            .filter(|item| item.kind == *kind)
            .map(|item| item.uid.clone())
            .collect()
    }

    /// Takes in an object as it is; what to look at now.
    pub(super) fn observe(&mut self, item: Item) -> BTreeSet<Uid> {
        let (uid, before) = (item.uid.clone(), self.items.get(&item.uid).cloned());
        let mut ask = BTreeSet::new();
        let known = before
            .as_ref()
            .map(|before| before.owners.as_slice())
            .unwrap_or_default();
        for reference in known {
            let now = item.owners.iter().find(|owner| owner.uid == reference.uid);
            if now.is_none() {
                self.unlink(&reference.uid, &uid);
            }
            let blocked = reference.block_owner_deletion == Some(true);
            if blocked && now.is_none_or(|now| now.block_owner_deletion != Some(true)) {
                ask.insert(reference.uid.clone());
            }
        }
        for owner in &item.owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(uid.clone());
        }
        if item.owners != known {
            ask.insert(uid.clone());
        }
        let was = |question: fn(&Item) -> bool| before.as_ref().is_some_and(question);
        if item.deletes_dependents() && !was(Item::deletes_dependents) {
            ask.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
            ask.insert(uid.clone());
        }
        if item.orphans_dependents() && !was(Item::orphans_dependents) {
            ask.insert(uid.clone());
        }
        self.items.insert(uid, item);
        ask
    }

    /// Takes in that an object is gone; what to look at now.
    pub(super) fn forget(&mut self, uid: &str) -> BTreeSet<Uid> {
        let mut ask: BTreeSet<Uid> = self.dependents.get(uid).into_iter().flatten().cloned().collect();
        let Some(item) = self.items.remove(uid) else { return ask };
        for owner in &item.owners {
            self.unlink(&owner.uid, uid);
            if self.items.get(&owner.uid).is_some_and(Item::deletes_dependents) {
                ask.insert(owner.uid.clone());
            }
        }
        ask
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}
