//! How far the nodes were heard, as a resource says it of itself.
//!
//! Decides that a report is carried out once, whoever sends it again, and why: a node that has lost the answer, or one
//! whose store of before was put back. What a report changes and that it was heard are one write, so that neither is ever
//! there without the other, however many managers have led in between.
//!
//! A report is known by the start of the local controller that made it and by its number. Of one start, the reports on one
//! resource are carried out in the order of their numbers (the link lets none overtake), so the last of them says it of
//! all before.
//!
//! Starts that are no longer named are known by one number together, all of one store: that counts on from start to start.
//! What is made after an old copy was put back may count on from less, so whatever the present start says is new until it is
//! named itself. Figures are worth nothing once newer ones were heard: those of another start count as heard then, also
//! where they never were.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use skerry_crds::sedna::v1alpha1::ReportedUpTo;
use skerry_edge::{ReportId, boot, store_of};
use skerry_workloads::REPORTED_UP_TO;

use super::{NodeReport, Start};

/// Starts that are named of each node, those that were heard last. A local controller starts anew a few times a month; a copy
/// of its store that is older than so many starts, each of which reported on the same resource, is one of many months ago, or of
/// before it failed again and again.
const STARTS: usize = 16;

/// Stores of each node of which starts are known that are no longer named: one that is reinstalled has another.
const STORES: usize = 4;

/// What the starts of a store that are no longer named are called after it.
const EARLIER: &str = "*";

/// And entries of all nodes together, at 150 bytes each: a job has a trainer on each of a thousand nodes at most, and an object
/// has 1.5 MiB.
const ALL: usize = 2_000;

/// What `status.reportedUpTo` says. Whoever was heard last stands last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Heard(Vec<ReportedUpTo>);

impl Heard {
    /// As this resource says. What nobody could have written there counts for nothing.
    pub(super) fn of(resource: &Value) -> Self {
        let said = resource
            .pointer("/status")
            .and_then(|status| status.get(REPORTED_UP_TO));
        let read = said.and_then(|said| Vec::deserialize(said).ok());
        Self(read.unwrap_or_default())
    }

    /// Whether this was carried out, or is worth nothing any more. Of nodes that do not say which report it is, none ever was.
    pub(super) fn has(&self, said: &NodeReport) -> bool {
        let (node, Some(id)) = (&said.report.node, &said.id) else {
            return false;
        };
        let up_to = |boot: &str| {
            let last = self.0.iter().find(|last| last.is_of(node, boot))?;
            Some(number_of(last))
        };
        let last = match said.from {
            Start::Present => up_to(&id.boot),
            Start::Another { figures: true } => {
                let of_node = self.0.iter().filter(|last| last.node == *node);
                of_node.map(number_of).max()
            }
            Start::Another { figures: false } => up_to(&id.boot).or_else(|| up_to(&earlier(&id.boot)?)),
        };
        last.is_some_and(|last| id.number <= last)
    }

    /// It is carried out now.
    pub(super) fn add(&mut self, node: &str, ReportId { boot, number }: &ReportId) {
        self.0.retain(|last| !last.is_of(node, boot));
        self.0.push(ReportedUpTo {
            node: node.to_owned(),
            boot: boot.clone(),
            number: i64::try_from(*number).unwrap_or(i64::MAX),
        });
        while self.entries(node, names_start) > STARTS {
            self.forget_start(node);
        }
        while self.0.len() > ALL {
            self.make_room();
        }
    }

    fn entries(&self, node: &str, of: fn(&ReportedUpTo) -> bool) -> usize {
        self.0.iter().filter(|last| last.node == node && of(last)).count()
    }

    /// Takes the first of these of the node.
    fn take(&mut self, node: &str, of: fn(&ReportedUpTo) -> bool) -> Option<(usize, ReportedUpTo)> {
        let at = self.0.iter().position(|last| last.node == node && of(last))?;
        Some((at, self.0.remove(at)))
    }

    /// Names the start of the node no longer that was not heard for longest.
    fn forget_start(&mut self, node: &str) {
        let Some((at, forgotten)) = self.take(node, names_start) else {
            return;
        };
        let Some(boot) = earlier(&forgotten.boot) else {
            return;
        };
        if let Some(earlier) = self.0.iter_mut().find(|last| last.is_of(node, &boot)) {
            earlier.number = earlier.number.max(forgotten.number);
            return;
        }
        self.0.insert(at, ReportedUpTo { boot, ..forgotten });
        if self.entries(node, names_store) > STORES {
            self.take(node, names_store);
        }
    }

    /// Leaves a node less that has most; where none has more than its last start and all before it, whoever was not heard for
    /// longest has nothing any more.
    fn make_room(&mut self) {
        let mut entries = BTreeMap::<&str, usize>::new();
        for last in &self.0 {
            *entries.entry(&last.node).or_default() += 1;
        }
        let most = entries.into_iter().max_by_key(|(_, entries)| *entries);
        let Some((node, 3..)) = most.map(|(node, entries)| (node.to_owned(), entries)) else {
            self.0.remove(0);
            return;
        };
        if self.entries(&node, names_start) > 1 {
            self.forget_start(&node);
        } else {
            self.take(&node, names_store);
        }
    }

    /// Has a status say it.
    pub(super) fn tell(&self, status: &mut Map<String, Value>) {
        if !self.0.is_empty() {
            status.insert(REPORTED_UP_TO.to_owned(), serde_json::json!(self.0));
        }
    }
}

/// What all starts are called that are no longer named and had the store of this one, if it says which.
fn earlier(start: &str) -> Option<String> {
    store_of(start).map(|store| boot(store, EARLIER))
}

fn names_start(last: &ReportedUpTo) -> bool {
    earlier(&last.boot).is_none_or(|earlier| last.boot != earlier)
}

fn names_store(last: &ReportedUpTo) -> bool {
    !names_start(last)
}

fn number_of(last: &ReportedUpTo) -> u64 {
    u64::try_from(last.number).unwrap_or_default()
}

#[cfg(test)]
mod tests;
