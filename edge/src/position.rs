//! Where a node's store stands, and which manager it may still listen to.
//!
//! Decides fencing: whether a manager of this cluster uid and epoch is the present one, a new one, or one that has
//! been deposed. It never looks at the objects.

use std::{collections::VecDeque, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits;

/// Which run of the manager speaks: the Lease that it holds and how often that changed hands.
///
/// The Lease is held under an identity that is unique to each process start, so no two runs share an epoch.
#[derive(Clone, Debug, Hash, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// The Lease's uid.
    pub lease: String,
    /// The Lease's `spec.leaseTransitions`.
    pub transitions: u64,
}

impl Epoch {
    /// Whether no other manager can have led between `before` and this one.
    pub fn follows(&self, before: &Self) -> bool {
        let next = before.transitions.saturating_add(1);
        self.lease == before.lease && (before.transitions..=next).contains(&self.transitions)
    }
}

/// Where a node's store stands: written in the same transaction as the changes that led there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The uid of the cluster that the node belongs to. Only joining anew changes it.
    pub cluster: String,
    /// The epoch of the manager that was last heard.
    pub epoch: Epoch,
    /// The last version stored, counted by that manager for this node alone.
    pub version: u64,
}

/// What a manager that says hello is to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The run of the manager that the node's position is counted by.
    Same,
    /// Another run: its versions mean nothing yet, a digest has to come first.
    New,
}

/// Why a node does not listen to a manager.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fenced {
    /// Nothing that another cluster says may touch what this one placed here.
    #[error("this node belongs to cluster {ours}, the manager speaks for {theirs}: join the node anew to move it")]
    OtherCluster {
        /// The cluster that the node belongs to.
        ours: String,
        /// The cluster that the manager speaks for.
        theirs: String,
    },
    /// A newer manager has been heard.
    #[error("this manager is deposed: it holds lease {} at transition {}, this node has heard lease {} at {}",
        .theirs.lease, .theirs.transitions, .ours.lease, .ours.transitions)]
    Deposed {
        /// The newest epoch that the node has heard.
        ours: Epoch,
        /// The manager's.
        theirs: Epoch,
    },
}

impl Position {
    /// A store that has heard of this manager and nothing else.
    pub fn start(cluster: impl Into<String>, epoch: Epoch) -> Self {
        Self {
            cluster: cluster.into(),
            epoch,
            version: 0,
        }
    }

    /// What a manager of this cluster and epoch is to a store that stands here.
    ///
    /// Of two Leases nothing says which is the older, so a manager of another Lease counts as a new one; see
    /// `Retired` for what a node does about that.
    pub fn judge(&self, cluster: &str, epoch: &Epoch) -> Result<Standing, Fenced> {
        if self.cluster != cluster {
            return Err(Fenced::OtherCluster {
                ours: self.cluster.clone(),
                theirs: cluster.to_owned(),
            });
        }
        if epoch.lease == self.epoch.lease && epoch.transitions < self.epoch.transitions {
            return Err(Fenced::Deposed {
                ours: self.epoch.clone(),
                theirs: epoch.clone(),
            });
        }
        Ok(if *epoch == self.epoch {
            Standing::Same
        } else {
            Standing::New
        })
    }
}

/// The Leases that a node has lately seen superseded. A manager that still holds one hangs, and will notice within
/// [`limits::RETIRED`]; one that is there after that is the present one (somebody has put a Lease back).
#[derive(Debug, Default)]
pub(crate) struct Retired(VecDeque<(String, Duration)>);

impl Retired {
    /// `before` was superseded by `after`, if those are two Leases.
    pub(crate) fn supersede(&mut self, now: Duration, before: &Epoch, after: &Epoch) {
        self.0.retain(|(lease, until)| now < *until && *lease != after.lease);
        if before.lease != after.lease {
            self.0.push_back((before.lease.clone(), now + limits::RETIRED));
            if self.0.len() > limits::RETIRED_LEASES {
                self.0.pop_front();
            }
        }
    }

    /// Whether a manager of this epoch hangs.
    pub(crate) fn contains(&self, now: Duration, epoch: &Epoch) -> bool {
        self.0
            .iter()
            .any(|(lease, until)| *lease == epoch.lease && now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(lease: usize) -> Epoch {
        Epoch {
            lease: format!("lease-{lease}"),
            transitions: 0,
        }
    }

    #[test]
    fn of_leases_that_were_superseded_the_last_are_remembered_for_a_while() {
        let now = Duration::from_secs(7);
        let present = limits::RETIRED_LEASES + 3;
        let mut retired = Retired::default();
        for lease in 0..present {
            retired.supersede(now, &epoch(lease), &epoch(lease + 1));
        }
        let remembered = |now| {
            let leases = (0..=present).filter(|lease| retired.contains(now, &epoch(*lease)));
            leases.collect::<Vec<_>>()
        };
        assert_eq!(remembered(now), (3..present).collect::<Vec<_>>());
        assert_eq!(remembered(now + limits::RETIRED), Vec::<usize>::new());
    }
}
