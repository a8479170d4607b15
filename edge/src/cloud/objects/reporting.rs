//! What the node may report on, and which figures of it are the newest.

use super::{
    super::{Denial, figures::Figures},
    NodeObjects, Want,
};
use crate::object::{ItemKey, ObjectKey};

impl NodeObjects {
    /// Whether the node may report on this resource: it is placed there, or its deletion is not acknowledged.
    pub fn may_report(&self, key: &ObjectKey, uid: &str) -> Result<(), Denial> {
        key.check()?;
        let Some(entry) = self.items.get(&ItemKey::from(key.clone())) else {
            return Err(Denial::NotPlaced(key.clone()));
        };
        let wanted = matches!(&entry.want, Want::Present(item) if item.uid() == uid);
        if wanted || entry.held.as_ref().is_some_and(|held| held.uid == uid) {
            return Ok(());
        }
        Err(match entry.want {
            Want::Present(_) => Denial::OtherUid(key.clone()),
            Want::Absent | Want::Stray => Denial::NotPlaced(key.clone()),
        })
    }

    /// The figures of this resource that were carried out last.
    pub(in crate::cloud) fn newest(&self, key: &ObjectKey) -> Option<&Figures> {
        self.items.get(&ItemKey::from(key.clone()))?.newest.as_deref()
    }

    /// Figures of this resource were carried out. Nothing is kept of what the node is no longer to hold, and does not.
    pub(in crate::cloud) fn carried_out(&mut self, key: &ObjectKey, figures: Figures) {
        if let Some(entry) = self.items.get_mut(&ItemKey::from(key.clone())) {
            entry.newest = Some(Box::new(figures));
        }
    }

    /// Whatever figures come are new.
    pub(in crate::cloud) fn forget_figures(&mut self) {
        for entry in self.items.values_mut() {
            entry.newest = None;
        }
    }
}
