//! What a node holds of what Sedna's own manager has told it.
//!
//! Decides what a message changes. That manager tells all it has again every minute, in parts, and never what a node should
//! hold as a whole: what is told twice is stored once, and nothing goes but by a deletion.

use std::collections::BTreeMap;

use thiserror::Error;

use super::told::Told;
use crate::{
    limits,
    node::Change,
    object::{Item, ItemKey, ObjectKey, Row},
};

/// By what the items of the store are compared.
#[derive(Debug, Default)]
pub struct Holdings(BTreeMap<ItemKey, Row>);

/// A node holds no more.
#[derive(Debug, Error)]
#[error("the node holds {} items, which is the most that it may hold", limits::MAX_ITEMS)]
pub struct Full;

impl Holdings {
    /// What a store with these rows holds.
    pub fn new(rows: Vec<Row>) -> Self {
        Self(rows.into_iter().map(|row| (row.key.clone(), row)).collect())
    }

    /// What this changes, all of it in one transaction; nothing where it was told before.
    pub fn changes(&self, told: Told) -> Result<Vec<Change>, Full> {
        let (key, wanted) = match told {
            Told::Put { object, credential } => {
                let key = object.key.clone();
                let credential = credential.map(Item::Credential);
                (key, [Some(Item::Object(object)), credential])
            }
            Told::Delete(key) => (key, [None, None]),
        };
        let wanted: Vec<Item> = wanted.into_iter().flatten().collect();
        let gone = self
            .items(&key)
            .filter(|held| !wanted.iter().any(|item| item.key() == **held));
        let mut changes: Vec<_> = gone.cloned().map(Change::Delete).collect();
        let more = wanted.iter().filter(|item| !self.0.contains_key(&item.key())).count();
        if more > 0 && self.0.len() + more > limits::MAX_ITEMS + changes.len() {
            return Err(Full);
        }
        let new = wanted
            .into_iter()
            .filter(|item| self.0.get(&item.key()) != Some(&item.row()));
        changes.extend(new.map(|item| match item {
            Item::Object(object) => Change::Put(object),
            Item::Credential(credential) => Change::PutCredential(credential),
        }));
        Ok(changes)
    }

    /// These changes are stored.
    pub fn stored(&mut self, changes: &[Change]) {
        for change in changes {
            match change.row() {
                Some(row) => drop(self.0.insert(change.key(), row)),
                None => drop(self.0.remove(&change.key())),
            }
        }
    }

    /// The uid of the resource that is held under this key.
    pub fn uid(&self, key: &ObjectKey) -> Option<&str> {
        self.0.get(&ItemKey::from(key.clone())).map(|row| row.uid.as_str())
    }

    fn items<'a>(&'a self, key: &'a ObjectKey) -> impl Iterator<Item = &'a ItemKey> {
        let first = ItemKey::from(key.clone());
        let items = self.0.range(first..).map(|(item, _)| item);
        items.take_while(move |item| item.object == *key)
    }
}
