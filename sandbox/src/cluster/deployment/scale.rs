//! What happens when a Deployment's `replicas` changes, or while it is paused.

use std::cmp::Reverse;

use super::rollout::{Rollout, Set};
use super::{bounds, revision};

impl Rollout<'_> {
    /// Whether an active set was last scaled for another `replicas` than the present one.
    pub(super) fn replicas_changed(&self) -> bool {
        let wanted = bounds::replicas(&self.deployment);
        let mut active = self.sets.iter().filter(|set| set.replicas() > 0);
        active.any(|set| revision::desired(&set.object).is_some_and(|desired| desired != wanted))
    }

    /// Brings the sets to the Deployment's size without rolling anything out.
    pub(super) fn scale(&mut self) {
        let wanted = bounds::replicas(&self.deployment);
        match self.active_or_latest() {
            Active::None => {}
            Active::One(index) => {
                self.resize(index, wanted);
                // A set that has the wanted size by chance is told so too, or the change would never count as seen.
                self.refresh_size_annotations(index);
            }
            Active::Many if self.saturated() => {
                for index in self.old() {
                    self.resize(index, 0);
                }
            }
            Active::Many => {
                if bounds::rolling(&self.deployment) {
                    self.scale_in_proportion();
                }
            }
        }
        if self
            .deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.paused)
            .unwrap_or_default()
        {
            self.clean_up();
        }
    }

    fn active_or_latest(&self) -> Active {
        let active: Vec<usize> = (0..self.sets.len())
            .filter(|index| self.sets.get(*index).is_some_and(|set| set.replicas() > 0))
            .collect();
        match active.as_slice() {
            [] => self.new.or_else(|| self.old().pop()).map_or(Active::None, Active::One),
            [one] => Active::One(*one),
            _ => Active::Many,
        }
    }

    /// Whether the new set has all that it should have.
    fn saturated(&self) -> bool {
        let wanted = bounds::replicas(&self.deployment);
        self.new_set().is_some_and(|set| {
            set.replicas() == wanted && set.available() == wanted && revision::desired(&set.object) == Some(wanted)
        })
    }

    /// Shares what is to be added or removed among the active sets by their sizes; what rounding leaves over goes to
    /// the largest.
    fn scale_in_proportion(&mut self) {
        let total: i32 = self.sets.iter().map(Set::replicas).sum();
        let allowed = if bounds::replicas(&self.deployment) > 0 {
            self.limit()
        } else {
            0
        };
        let to_add = allowed - total;
        let order = self.by_size(to_add > 0);
        let mut added = 0;
        let mut sizes = vec![];
        for &index in &order {
            let Some(set) = self.sets.get(index) else { continue };
            let share = if to_add == 0 { 0 } else { self.share(set, to_add, added) };
            added += share;
            sizes.push((index, set.replicas() + share));
        }
        if let Some((_, largest)) = sizes.first_mut() {
            *largest = (*largest + to_add - added).max(0);
        }
        for (index, size) in sizes {
            self.resize(index, size);
            self.refresh_size_annotations(index);
        }
    }

    /// The active sets, largest first; among equals the newer first when growing, the older first when shrinking.
    fn by_size(&self, growing: bool) -> Vec<usize> {
        let mut active: Vec<(i32, usize)> = self
            .sets
            .iter()
            .enumerate()
            .filter(|(_, set)| set.replicas() > 0)
            .map(|(index, set)| (set.replicas(), index))
            .collect();
        // The sets are kept in the order of their age.
        if growing {
            active.sort_by_key(|(size, index)| (Reverse(*size), Reverse(*index)));
        } else {
            active.sort_by_key(|(size, index)| (Reverse(*size), *index));
        }
        active.into_iter().map(|(_, index)| index).collect()
    }

    fn share(&self, set: &Set, to_add: i32, added: i32) -> i32 {
        let fraction = self.fraction(set);
        let left = to_add - added;
        if to_add > 0 {
            fraction.min(left)
        } else {
            fraction.max(left)
        }
    }

    /// What the set would grow by if it kept its part of the Deployment.
    fn fraction(&self, set: &Set) -> i32 {
        if bounds::replicas(&self.deployment) == 0 {
            return -set.replicas();
        }
        let status = self.observed.status.as_ref();
        let before = revision::limit(&set.object)
            .or_else(|| status.and_then(|status| status.replicas))
            .unwrap_or_default();
        if before == 0 {
            return 0;
        }
        let (size, limit, before) = (i64::from(set.replicas()), i64::from(self.limit()), i64::from(before));
        let rounded = (2 * size * limit + before) / (2 * before);
        i32::try_from(rounded - size).unwrap_or_default()
    }
}

enum Active {
    None,
    One(usize),
    Many,
}
