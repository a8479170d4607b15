//! Where a node's store stands, and which manager it may still listen to.
//!
//! Decides fencing: whether a manager of this cluster uid and epoch is the present one, a new one, or one that has
//! been deposed. It never looks at the objects.

use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits;

/// Which run of the manager speaks: the Lease that it holds and how often that changed hands.
///
/// The Lease is held under an identity that is unique to each process start, so no two runs share an epoch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Epoch {
    /// The Lease's uid.
    pub lease: String,
    /// The Lease's `spec.leaseTransitions`.
    pub transitions: u64,
    /// The Lease's `metadata.creationTimestamp`, in whole seconds: which of two Leases is the older. Older managers do not
    /// say, and older nodes do not remember.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Timestamp>,
}

/// Whether it is known when the Lease was made makes no other epoch.
impl PartialEq for Epoch {
    fn eq(&self, other: &Self) -> bool {
        (&self.lease, self.transitions) == (&other.lease, other.transitions)
    }
}

impl Eq for Epoch {}

impl Hash for Epoch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.lease, self.transitions).hash(state);
    }
}

impl Epoch {
    /// Whether it is known that its Lease was made before that of `other`.
    pub fn is_of_older_lease_than(&self, other: &Self) -> bool {
        let both = self.made.zip(other.made);
        self.lease != other.lease && both.is_some_and(|(made, other)| made < other)
    }

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
    /// A manager of another Lease counts as a new one, also where that is the older, since somebody may have put it back;
    /// see `Retired` for what a node does about that.
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

/// The Leases that a node does not listen to for a while. A manager that holds one hangs, and will notice within
/// [`limits::RETIRED`] that it does not hold it any more; one that is there after that is the present one (somebody has put a
/// Lease back).
#[derive(Debug, Default)]
pub(crate) struct Retired(VecDeque<(String, Duration)>);

impl Retired {
    /// `before` was superseded by `after`, if those are two Leases.
    pub(crate) fn supersede(&mut self, now: Duration, before: &Epoch, after: &Epoch) {
        self.0.retain(|(lease, until)| now < *until && *lease != after.lease);
        // Of one that is known to be older the while begins when its manager is met, however late that is.
        if before.lease != after.lease && !before.is_of_older_lease_than(after) {
            self.retire(now, before);
        }
    }

    /// Whether a manager of the epoch `theirs` hangs, which a node meets that has heard `ours`.
    pub(crate) fn hangs(&mut self, now: Duration, ours: &Epoch, theirs: &Epoch) -> bool {
        let until = self.0.iter().find(|(lease, _)| *lease == theirs.lease);
        match until {
            Some((_, until)) => now < *until,
            None if theirs.is_of_older_lease_than(ours) => {
                self.retire(now, theirs);
                true
            }
            None => false,
        }
    }

    fn retire(&mut self, now: Duration, epoch: &Epoch) {
        self.0.push_back((epoch.lease.clone(), now + limits::RETIRED));
        if self.0.len() > limits::RETIRED_LEASES {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a Lease of which nobody says when it was made.
    fn epoch(lease: usize) -> Epoch {
        Epoch {
            lease: format!("lease-{lease}"),
            transitions: 0,
            made: None,
        }
    }

    /// Of one that was made in this second.
    fn made(lease: usize, second: i64) -> Epoch {
        Epoch {
            made: Timestamp::from_second(second).ok(),
            ..epoch(lease)
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
        let mut remembered = |now| {
            let mut hangs = |lease: &usize| retired.hangs(now, &epoch(present), &epoch(*lease));
            (0..=present).filter(&mut hangs).collect::<Vec<_>>()
        };
        assert_eq!(remembered(now), (3..present).collect::<Vec<_>>());
        assert_eq!(remembered(now + limits::RETIRED), Vec::<usize>::new());
    }

    #[test]
    fn an_older_lease_is_known_by_its_age_and_refused_for_a_while_from_when_it_is_met() {
        let ours = made(1, 100);
        for (theirs, hangs) in [
            (made(2, 99), true),
            (made(2, 100), false),
            (made(2, 101), false),
            (epoch(2), false),
            (made(1, 99), false),
        ] {
            let mut retired = Retired::default();
            let met = Duration::from_secs(3600);
            assert_eq!(retired.hangs(met, &ours, &theirs), hangs, "{theirs:?}");
            assert!(
                !retired.hangs(met + limits::RETIRED, &ours, &theirs),
                "it was put back: {theirs:?}"
            );
        }
    }

    #[test]
    fn a_lease_that_was_superseded_by_a_newer_one_is_refused_however_late_its_manager_wakes_up() {
        let (older, newer) = (made(1, 100), made(2, 200));
        let mut retired = Retired::default();
        retired.supersede(Duration::ZERO, &older, &newer);
        assert!(retired.hangs(Duration::from_secs(3600), &newer, &older));
    }

    #[test]
    fn one_that_was_put_back_supersedes_the_newer_one() {
        let (older, newer) = (made(1, 100), made(2, 200));
        let mut retired = Retired::default();
        let now = Duration::from_secs(7);
        retired.supersede(now, &newer, &older);
        assert!(retired.hangs(now, &older, &newer));
        assert!(!retired.hangs(now + limits::RETIRED, &older, &newer));
    }

    #[test]
    fn an_epoch_is_the_same_whether_or_not_it_is_known_when_its_lease_was_made() {
        assert_eq!(made(1, 100), epoch(1));
        assert_ne!(made(1, 100), made(2, 100));
    }
}
