//! Join tokens: once, for one node, for a while. The manager keeps the hash of the secret alone.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::hash::ContentHash;

/// What every token begins with, so that one that leaked can be found.
const PREFIX: &str = "skerry-join";
/// Hexadecimal digits of what names a token, and of its secret: 32 and 128 bits.
const ID: usize = 8;
const SECRET: usize = 32;

/// A text is not a join token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this is not a join token: it has to be what `skerry nodes join-token NODE` printed, {PREFIX}.… in one piece")]
pub struct TokenError;

/// What an operator gives to a node. Prints as `[redacted]` but through [`JoinToken::reveal`].
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Names the token to the manager.
    pub id: String,
    secret: String,
    /// The fingerprint of the authority of the manager that the node is to join: the SHA-256 of its certificate.
    pub authority: ContentHash,
}

impl JoinToken {
    /// A new one, under this authority.
    pub fn generate(authority: ContentHash) -> Self {
        Self {
            id: format!("{:0ID$x}", rand::random::<u32>()),
            secret: format!("{:0SECRET$x}", rand::random::<u128>()),
            authority,
        }
    }

    /// The token's text.
    pub fn reveal(&self) -> String {
        let Self { id, secret, authority } = self;
        format!("{PREFIX}.{id}.{secret}.{authority}")
    }

    /// What the manager is shown: the secret.
    pub fn secret(&self) -> &str {
        &self.secret
    }
}

impl FromStr for JoinToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let mut parts = text.trim().split('.');
        let (Some(PREFIX), Some(id), Some(secret), Some(authority), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError);
        };
        if !is_hex(id, ID) || !is_hex(secret, SECRET) {
            return Err(TokenError);
        }
        Ok(Self {
            id: id.to_owned(),
            secret: secret.to_owned(),
            authority: authority.parse().map_err(|_| TokenError)?,
        })
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({}, [redacted])", self.id)
    }
}

/// Whether a text may be a token's id: it is looked up by.
fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// What the manager keeps of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRecord {
    /// The node that may join.
    pub node: String,
    /// The SHA-256 of the secret.
    pub secret: ContentHash,
    /// From when on it counts: a revocation of the node after that ends it.
    pub created: Timestamp,
    /// Until when.
    pub expires: Timestamp,
    /// The SHA-256 of the key with which it was used, once it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<ContentHash>,
}

/// Why a token does not let a node in. What it says to the node tells nothing that a guess could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenRefusal {
    /// There is no such token, or its secret is another one.
    #[error("the join token is not known here: make another with `skerry nodes join-token`")]
    Unknown,
    /// It is for another node.
    #[error("the join token is for another node: each node needs one of its own")]
    OtherNode,
    /// It was valid until earlier.
    #[error("the join token has expired: make another with `skerry nodes join-token`")]
    Expired,
    /// A key has joined by it already, and it is not this one.
    #[error("the join token was used before: make another with `skerry nodes join-token`")]
    Used,
}

impl TokenRecord {
    /// What is kept of `token`.
    pub fn new(token: &JoinToken, node: &str, created: Timestamp, expires: Timestamp) -> Self {
        Self {
            node: node.to_owned(),
            secret: ContentHash::of(token.secret().as_bytes()),
            created,
            expires,
            used_by: None,
        }
    }

    /// Whether a node that shows this secret may have its key certified. The same key may come again, since the answer may
    /// have been lost on the way; another one may not.
    pub fn judge(&self, secret: &str, node: &str, key: &ContentHash, now: Timestamp) -> Result<(), TokenRefusal> {
        // Hashes of guesses are compared: how long that takes tells nothing about the secret.
        if self.secret != ContentHash::of(secret.as_bytes()) {
            return Err(TokenRefusal::Unknown);
        }
        if self.node != node {
            return Err(TokenRefusal::OtherNode);
        }
        if self.expires <= now {
            return Err(TokenRefusal::Expired);
        }
        match &self.used_by {
            Some(used) if used != key => Err(TokenRefusal::Used),
            _ => Ok(()),
        }
    }

    /// The record once the token was used by this key.
    #[must_use]
    pub fn used(self, key: &ContentHash) -> Self {
        Self {
            used_by: Some(*key),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(hour: u32) -> Timestamp {
        format!("2026-01-01T{hour:02}:00:00Z").parse().unwrap()
    }

    fn token() -> JoinToken {
        JoinToken::generate(ContentHash::of(b"authority"))
    }

    #[test]
    fn a_token_survives_being_copied() {
        let token = token();
        let copied = format!("  {}\n", token.reveal());
        assert_eq!(copied.parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains(token.secret()));
    }

    proptest! {
        #[test]
        fn whatever_is_no_token_is_refused(text in "(skerry-join\\.)?[0-9a-fé.]{0,120}") {
            if let Ok(token) = text.parse::<JoinToken>() {
                prop_assert_eq!(token.reveal(), text);
            }
        }
    }

    #[test]
    fn a_token_lets_one_key_of_one_node_in_for_a_while() {
        let (token, key, other) = (token(), ContentHash::of(b"key"), ContentHash::of(b"other"));
        let record = TokenRecord::new(&token, "edge-1", at(10), at(12));
        let judge = |record: &TokenRecord, secret: &str, node, key, hour| record.judge(secret, node, key, at(hour));
        assert_eq!(judge(&record, token.secret(), "edge-1", &key, 11), Ok(()));
        assert_eq!(judge(&record, "guess", "edge-1", &key, 11), Err(TokenRefusal::Unknown));
        assert_eq!(
            judge(&record, token.secret(), "edge-2", &key, 11),
            Err(TokenRefusal::OtherNode)
        );
        assert_eq!(
            judge(&record, token.secret(), "edge-1", &key, 12),
            Err(TokenRefusal::Expired)
        );
        let used = record.used(&key);
        assert_eq!(
            judge(&used, token.secret(), "edge-1", &key, 11),
            Ok(()),
            "the answer may have been lost"
        );
        assert_eq!(
            judge(&used, token.secret(), "edge-1", &other, 11),
            Err(TokenRefusal::Used)
        );
    }

    #[test]
    fn the_secret_is_not_kept() {
        let token = token();
        let kept = serde_json::to_string(&TokenRecord::new(&token, "edge-1", at(10), at(12))).unwrap();
        assert!(!kept.contains(token.secret()), "{kept}");
    }
}
