//! Reading frames, of which nothing is known before: what one may look like is decided before anything is allocated for it (size,
//! nesting, names).

use thiserror::Error;

use crate::{
    limits,
    object::{KeyError, Row},
    tagged::{self, Known, Tagged},
};

/// A message that was read from the wire.
#[derive(Clone, Debug, PartialEq)]
pub enum Received<M> {
    /// One that we know.
    Message(M),
    /// A variant of a newer peer: counted, not fatal.
    Unknown(String),
}

impl<M> Received<M> {
    /// The message, if we know it.
    pub fn known(self) -> Option<M> {
        match self {
            Self::Message(message) => Some(message),
            Self::Unknown(_) => None,
        }
    }
}

/// Why a message cannot be read.
#[derive(Debug, Error)]
pub enum MessageError {
    /// Above [`limits::MAX_DOWNSTREAM`] or [`limits::MAX_UPSTREAM`].
    #[error("a message of {bytes} bytes is above the limit of {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Not UTF-8.
    #[error("a message is not UTF-8 text")]
    NotText,
    /// Above [`limits::MAX_DEPTH`].
    #[error("a message nests deeper than {} levels", limits::MAX_DEPTH)]
    TooDeep,
    /// Not a message.
    #[error("not a message of this protocol: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A key that Kubernetes could not have given.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A uid that Kubernetes could not have given, above [`limits::MAX_NAME`]: a digest keeps those that it is told.
    #[error("a uid has {0} bytes: Kubernetes gives at most {max}", max = limits::MAX_NAME)]
    Uid(usize),
}

/// Reads one of at most so many bytes, and has its names checked.
pub(super) fn decode<M: Tagged>(
    text: &str,
    limit: usize,
    check: impl Fn(&M) -> Result<(), MessageError>,
) -> Result<Received<M>, MessageError> {
    if text.len() > limit {
        return Err(MessageError::TooLong {
            bytes: text.len(),
            limit,
        });
    }
    if depth(text.as_bytes()) > limits::MAX_DEPTH {
        return Err(MessageError::TooDeep);
    }
    Ok(match tagged::read(text)? {
        Known::No(variant) => Received::Unknown(variant),
        Known::Yes(message) => {
            check(&message)?;
            Received::Message(message)
        }
    })
}

pub(super) fn check_row(row: &Row) -> Result<(), MessageError> {
    row.key.check()?;
    check_uid(&row.uid)
}

pub(super) fn check_uid(uid: &str) -> Result<(), MessageError> {
    if uid.len() > limits::MAX_NAME {
        return Err(MessageError::Uid(uid.len()));
    }
    Ok(())
}

/// How deep a JSON text nests. Bodies are read as text, so the parser's own recursion limit does not see into them.
pub(crate) fn depth(text: &[u8]) -> usize {
    let (mut now, mut most, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text {
        match *byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                now += 1;
                most = most.max(now);
            }
            b'}' | b']' => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}
