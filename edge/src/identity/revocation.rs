//! Which certificates and join tokens count no more.

use std::collections::BTreeMap;

use jiff::Timestamp;
use thiserror::Error;

/// By node, a time: the certificates that were issued before it, and the tokens that were made before it, count no more. A
/// node that joins again has later ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations(BTreeMap<String, Timestamp>);

/// A certificate counts no more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("node {node} was turned away: what it got before {before} is revoked; it can join again with a new join token")]
pub struct Revoked {
    /// The node.
    pub node: String,
    /// What it got before this time is revoked.
    pub before: Timestamp,
}

impl Revocations {
    /// Whether a certificate of `node` that was issued then, or a token that was made for it then, still counts.
    pub fn judge(&self, node: &str, then: Timestamp) -> Result<(), Revoked> {
        match self.0.get(node) {
            Some(before) if then < *before => Err(Revoked {
                node: node.to_owned(),
                before: *before,
            }),
            _ => Ok(()),
        }
    }

    /// From when on certificates of `node` count.
    pub fn before(&self, node: &str) -> Option<Timestamp> {
        self.0.get(node).copied()
    }

    /// Sets from when on certificates of `node` count; all of them where there is no such time.
    pub fn set(&mut self, node: &str, before: Option<Timestamp>) {
        match before {
            Some(before) => self.0.insert(node.to_owned(), before),
            None => self.0.remove(node),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: u32) -> Timestamp {
        format!("2026-01-01T{hour:02}:00:00Z").parse().unwrap()
    }

    #[test]
    fn what_was_issued_before_is_revoked_and_what_came_after_or_is_of_another_is_not() {
        let mut revocations = Revocations::default();
        assert_eq!(revocations.judge("edge-1", at(1)), Ok(()));
        revocations.set("edge-1", Some(at(12)));
        let refused = revocations.judge("edge-1", at(11)).unwrap_err();
        assert!(refused.to_string().contains("new join token"), "{refused}");
        assert_eq!(revocations.judge("edge-1", at(12)), Ok(()));
        assert_eq!(revocations.judge("edge-2", at(11)), Ok(()));
        revocations.set("edge-1", None);
        assert_eq!(revocations.judge("edge-1", at(11)), Ok(()));
    }
}
