//! What the node may report on.

use super::{super::Denial, NodeObjects, Want};
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
}
