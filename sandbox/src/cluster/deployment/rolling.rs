//! The rolling update: the new set grows as far as the surge allows, the old ones shrink as far as availability allows.
//!
//! Both need several passes: a set's status has to follow before the next step is safe.

use super::bounds;
use super::rollout::{Rollout, Set};

impl Rollout<'_> {
    pub(super) fn rolling(&mut self) {
        if self.new.is_none() {
            self.create_new_set();
            return;
        }
        if self.grow_new() || self.shrink_old() {
            return;
        }
        if self.complete(self.observed.status.as_ref()) {
            self.clean_up();
        }
    }

    fn grow_new(&mut self) -> bool {
        let Some((index, size)) = self.new.zip(self.new_set().map(Set::replicas)) else {
            return false;
        };
        let wanted = self.new_set_size();
        if size == wanted {
            return false;
        }
        self.resize(index, wanted);
        true
    }

    /// The size that the new set may have now.
    pub(super) fn new_set_size(&self) -> i32 {
        let wanted = bounds::replicas(&self.deployment);
        let size = self.new_set().map_or(0, Set::replicas);
        if size >= wanted || !bounds::rolling(&self.deployment) {
            return wanted;
        }
        let total: i32 = self.sets.iter().map(Set::replicas).sum();
        let room = (self.limit() - total).max(0);
        size + room.min(wanted - size)
    }

    fn shrink_old(&mut self) -> bool {
        let old: Vec<usize> = self
            .old()
            .into_iter()
            .filter(|index| self.sets.get(*index).is_some_and(|set| set.replicas() > 0))
            .collect();
        let total: i32 = self.sets.iter().map(Set::replicas).sum();
        let minimum = bounds::replicas(&self.deployment) - bounds::max_unavailable(&self.deployment);
        let new_unavailable = self.new_set().map_or(0, |set| set.replicas() - set.available());
        let removable = total - minimum - new_unavailable;
        if old.is_empty() || removable <= 0 {
            return false;
        }
        let cleaned = self.shrink(&old, removable, |set| set.replicas() - set.available());
        let available: i32 = self.sets.iter().map(Set::available).sum();
        let shrunk = self.shrink(&old, available - minimum, Set::replicas);
        cleaned + shrunk > 0
    }

    /// Takes at most `budget` from the given sets, the oldest first, and from each at most what `of` says.
    fn shrink(&mut self, sets: &[usize], budget: i32, of: impl Fn(&Set) -> i32) -> i32 {
        let mut taken = 0;
        for &index in sets {
            let Some(set) = self.sets.get(index) else { continue };
            let part = of(set).min(budget - taken);
            if part > 0 {
                let size = set.replicas() - part;
                self.resize(index, size);
                taken += part;
            }
        }
        taken
    }

    /// Deletes the oldest of the empty old sets beyond `revisionHistoryLimit`.
    pub(super) fn clean_up(&mut self) {
        let limit = self
            .deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.revision_history_limit)
            .unwrap_or(10);
        let mut old = self.old();
        old.retain(|index| {
            self.sets
                .get(*index)
                .is_some_and(|set| set.object.metadata.deletion_timestamp.is_none())
        });
        old.sort_by_key(|index| self.sets.get(*index).map(|set| super::revision::of(&set.object)));
        let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        for index in old.into_iter().take(excess) {
            if self.sets.get(index).is_some_and(settled_and_empty) {
                self.delete(index);
            }
        }
    }
}

/// Whether a set has no pods and knows that it should have none.
fn settled_and_empty(set: &Set) -> bool {
    let observed = set
        .object
        .status
        .as_ref()
        .and_then(|status| status.observed_generation)
        .unwrap_or_default();
    set.replicas() == 0 && set.actual() == 0 && set.object.metadata.generation.unwrap_or_default() <= observed
}
