//! What nodes say that they hold which are nodes by their word alone.
//!
//! Decides how much that may be, all together, since whoever invents names invents what they hold. Rows count from when they are
//! named until nothing is kept of them: what the manager has placed there is its own knowledge, and what nobody wants is kept until
//! the session ends. Who names more is asked to come back.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use skerry_edge::{cloud::Peer, limits};

/// Counts the rows that sessions keep; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims(Arc<AtomicUsize>);

impl Claims {
    /// Of a session that has named nothing yet.
    pub(super) fn of(&self, peer: &Peer) -> Claim {
        Claim {
            all: peer.identity.is_none().then(|| self.clone()),
            own: 0,
        }
    }

    /// How many rows are kept.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// What is kept of what one session has named, until this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    /// Nothing where the node has proven who it is.
    all: Option<Claims>,
    own: usize,
}

impl Claim {
    /// No more than so many are kept of those that were named.
    pub(super) fn keep(&mut self, rows: usize) {
        if let Some(Claims(all)) = &self.all {
            let gone = self.own.saturating_sub(rows);
            all.fetch_sub(gone, Relaxed);
            self.own -= gone;
        }
    }

    /// So many more are named; false where those are too many.
    pub(super) fn take(&mut self, rows: usize) -> bool {
        let Some(Claims(all)) = &self.all else { return true };
        let more = |all: usize| Some(all + rows).filter(|all| *all <= limits::SAID_ROWS);
        let taken = all.fetch_update(Relaxed, Relaxed, more).is_ok();
        self.own += if taken { rows } else { 0 };
        taken
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.keep(0);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use skerry_edge::identity::NodeCertificate;

    use super::*;

    #[test]
    fn those_who_prove_nothing_name_so_many_together_and_others_what_they_hold() {
        let claims = Claims::default();
        let stranger = Peer {
            identity: None,
            confidential: true,
        };
        let (mut first, mut second) = (claims.of(&stranger), claims.of(&stranger));
        assert!(first.take(limits::SAID_ROWS - 1) && second.take(1));
        assert!(!second.take(1), "one more");
        let proven = Peer {
            identity: Some(NodeCertificate {
                node: "edge-1".to_owned(),
                issued: Timestamp::UNIX_EPOCH,
                expires: Timestamp::MAX,
                key: skerry_edge::ContentHash::default(),
            }),
            ..stranger
        };
        assert!(claims.of(&proven).take(limits::SAID_ROWS));
        first.keep(1);
        assert!(second.take(limits::SAID_ROWS - 2));
        first.keep(2);
        assert!(!second.take(1), "what is forgotten does not come back");
        drop(first);
        assert!(second.take(1));
        drop(second);
        assert_eq!(claims.taken(), 0, "nothing is kept");
    }
}
