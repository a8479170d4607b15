//! What becomes of one object, given its owners and dependents. Pure.

use kube::api::PropagationPolicy;

use super::graph::{FOREGROUND, Item, ORPHAN, Uid};

/// How an owner that an object names is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// It exists and stays.
    Solid,
    /// It exists and waits for its dependents to be deleted.
    Waiting,
    /// There is no such object.
    Absent,
}

/// What to do with an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    Keep,
    /// Remove its references to these owners.
    Strip(Vec<Uid>),
    /// Delete it.
    Delete(PropagationPolicy),
    /// It is part of a circle: its references must no longer block before it is deleted.
    UnblockAndDelete,
    /// Nothing holds it any more: let it go.
    RemoveFinalizer(&'static str),
    /// Remove the references to it from these dependents, then let it go.
    SetFree(Vec<Uid>),
}

/// `owners` answers for each of the item's references, in their order.
pub(super) fn judge(item: &Item, owners: &[Owner], dependents: &[&Item]) -> Verdict {
    if item.orphans_dependents() {
        return Verdict::SetFree(dependents.iter().map(|dependent| dependent.uid.clone()).collect());
    }
    if item.deletes_dependents() {
        let blocked = dependents.iter().any(|dependent| dependent.blocks(&item.uid));
        return if blocked {
            Verdict::Keep
        } else {
            Verdict::RemoveFinalizer(FOREGROUND)
        };
    }
    if item.deleting || item.owners.is_empty() {
        return Verdict::Keep;
    }
    if owners.contains(&Owner::Solid) {
        let references = item.owners.iter().zip(owners);
        let dead: Vec<Uid> = references
            .filter(|(_, owner)| **owner != Owner::Solid)
            .map(|(reference, _)| reference.uid.clone())
            .collect();
        return if dead.is_empty() {
            Verdict::Keep
        } else {
            Verdict::Strip(dead)
        };
    }
    if owners.contains(&Owner::Waiting) && !dependents.is_empty() {
        let circle = dependents.iter().any(|dependent| dependent.deletes_dependents());
        return if circle {
            Verdict::UnblockAndDelete
        } else {
            Verdict::Delete(PropagationPolicy::Foreground)
        };
    }
    Verdict::Delete(if item.has(ORPHAN) {
        PropagationPolicy::Orphan
    } else if item.has(FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    })
}
