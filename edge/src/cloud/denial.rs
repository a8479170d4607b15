//! Why a node may not report something.
//!
//! Decides what is said of it, and by which word it is counted: the words are few, and a sentence is short, whatever a
//! node invents. A denial concerns its one report; the session goes on.

use thiserror::Error;

use crate::{
    limits,
    object::{KeyError, ObjectKey},
};

/// Why a report is refused before anybody looks at what it says.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Denial {
    /// It is about something that Kubernetes cannot have: a path, mostly.
    #[error("a report is about a resource, and {0}")]
    NoName(#[from] KeyError),
    /// It is about a resource of another node, or of none.
    #[error("{0} is not placed on this node")]
    NotPlaced(ObjectKey),
    /// It is about a resource of that name that is no more, or is not yet.
    #[error("{0} of that uid is not placed on this node: it was deleted, and made again")]
    OtherUid(ObjectKey),
    /// It has a form of a newer node.
    #[error("this manager does not know reports of the form {0:?}")]
    Form(String),
    /// What it says of the start of the local controller that made it is none's name.
    #[error("the start of a local controller has a name of at most {max} visible ASCII characters", max = limits::MAX_NAME)]
    Boot,
}

impl Denial {
    /// One word, for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::NoName(_) => "no_name",
            Self::NotPlaced(_) => "not_placed",
            Self::OtherUid(_) => "other_uid",
            Self::Form(_) => "form",
            Self::Boot => "boot",
        }
    }

    /// For a report of this form.
    pub(super) fn form(variant: &str) -> Self {
        Self::Form(variant.chars().take(limits::QUOTED).collect())
    }
}
