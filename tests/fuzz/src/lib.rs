//! A fuzz target for every decoder: what reads bytes that came over a network, from a disk or from a user.
//!
//! A target is a function of bytes. It fails by a panic: that of the decoder, or of what the target asserts about what was
//! read: that it reads the same once written, that it keeps to the limits. What it returns says which way the input went, so
//! that a fuzzer without a compiler's help can tell inputs apart.
//!
//! | who runs them | how |
//! |---|---|
//! | `cargo test`, once over the committed corpus | `tests/corpus.rs` |
//! | `skerry-fuzz`, for so many seconds each, on any toolchain | [`campaign`] |
//! | `cargo fuzz`, with the coverage that a nightly compiler tells | `libfuzzer/` |

// A set-up that fails is the target's verdict.
#![allow(clippy::expect_used, clippy::missing_panics_doc, clippy::panic, clippy::unwrap_used)]

pub mod campaign;
mod fetching;
mod identity;
mod join_door;
mod kept;
mod link;
mod manager_doors;
pub mod mutate;
mod node;
mod node_door;
mod resources;
mod sedna;
mod sessions;
mod settings;
mod visits;
mod worker_door;

use std::{fmt, path::PathBuf};

/// Which way an input went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// It was read, as this.
    Taken(String),
    /// It was refused, in these words.
    Refused(String),
}

impl Came {
    fn taken(what: impl fmt::Display) -> Self {
        Self::Taken(what.to_string())
    }

    fn refused(why: impl fmt::Display) -> Self {
        Self::Refused(why.to_string())
    }

    /// The way, without what differs from input to input: numbers, and what is quoted of the input.
    pub fn way(&self) -> String {
        let (Self::Taken(words) | Self::Refused(words)) = self;
        // What is quoted may have quotes in it.
        let (first, last) = (words.find(['"', '`']), words.rfind(['"', '`']));
        let before = first.and_then(|at| words.get(..at)).unwrap_or(words);
        let after = last.and_then(|at| words.get(at..)).unwrap_or_default();
        let letters = before.chars().chain(after.chars());
        let letters = letters.filter(|letter| letter.is_ascii_alphabetic() || *letter == ' ');
        let taken = if matches!(self, Self::Taken(_)) { '+' } else { '-' };
        std::iter::once(taken).chain(letters.take(120)).collect()
    }
}

/// One decoder, or several that read the same.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called, here and as a folder of the corpus.
    pub name: &'static str,
    /// Whose bytes it reads.
    pub reads: &'static str,
    /// Reads some.
    pub run: fn(&[u8]) -> Came,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "upstream",
        reads: "a node's frame, at the manager",
        run: link::upstream,
    },
    Target {
        name: "downstream",
        reads: "the manager's frame, at a node",
        run: link::downstream,
    },
    Target {
        name: "sedna-told",
        reads: "a message of Sedna's own manager, at a node",
        run: sedna::told,
    },
    Target {
        name: "sedna-said",
        reads: "a message of Sedna's own local controller, at the manager",
        run: sedna::said,
    },
    Target {
        name: "manager-door",
        reads: "whatever comes to the manager's port for nodes",
        run: manager_doors::manager_door,
    },
    Target {
        name: "sedna-door",
        reads: "whatever comes to the manager's port for Sedna's own local controllers",
        run: manager_doors::sedna_door,
    },
    Target {
        name: "node-door",
        reads: "whatever answers a node that dials its manager, ours or Sedna's",
        run: node_door::node_door,
    },
    Target {
        name: "join-door",
        reads: "whatever comes to the manager's port for nodes over TLS, once that is there",
        run: join_door::join_door,
    },
    Target {
        name: "worker-door",
        reads: "whatever comes to a node's port for workers, and the routes that tell from where",
        run: worker_door::worker_door,
    },
    Target {
        name: "manager-session",
        reads: "a node's frames, one a line, in the manager's session",
        run: sessions::manager,
    },
    Target {
        name: "node-session",
        reads: "the manager's frames, one a line, in a node's session",
        run: sessions::node,
    },
    Target {
        name: "join-token",
        reads: "the file with a join token, at a node",
        run: identity::join_token,
    },
    Target {
        name: "join-request",
        reads: "a request to join or to renew, at the manager",
        run: identity::join_request,
    },
    Target {
        name: "certificate",
        reads: "a certificate in DER, at either end",
        run: identity::certificate,
    },
    Target {
        name: "authority",
        reads: "the Secret with the authority, at the manager: certificate and key",
        run: identity::authority,
    },
    Target {
        name: "token-record",
        reads: "the Secret of a join token, at the manager",
        run: identity::token_record,
    },
    Target {
        name: "identity-file",
        reads: "what a node has kept of its identity, or of its joining, or the manager's answer to a request to join",
        run: identity::identity_file,
    },
    Target {
        name: "resource",
        reads: "a resource of any of our kinds, from the API server, or what a manager says of its nodes",
        run: resources::resource,
    },
    Target {
        name: "plan",
        reads: "manifests in YAML, by `skerry plan`: all decisions",
        run: resources::plan,
    },
    Target {
        name: "report",
        reads: "a worker's message in a report, at the manager",
        run: resources::report,
    },
    Target {
        name: "worker-message",
        reads: "a worker's message, at the local controller",
        run: node::worker_message,
    },
    Target {
        name: "store-records",
        reads: "the texts in a node's database",
        run: node::store_records,
    },
    Target {
        name: "store-file",
        reads: "a node's database that a disk has damaged",
        run: node::store_file,
    },
    Target {
        name: "dataset",
        reads: "a Dataset's URL, format and samples, at the local controller",
        run: node::dataset,
    },
    Target {
        name: "manager-settings",
        reads: "the manager's configuration file",
        run: settings::manager,
    },
    Target {
        name: "node-settings",
        reads: "the local controller's variables, one a line",
        run: settings::node,
    },
    Target {
        name: "archive",
        reads: "an archive that was fetched for a worker",
        run: fetching::archive,
    },
    Target {
        name: "index",
        reads: "an index of what to fetch for a worker, and its settings",
        run: fetching::index,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The folder of the corpus of all targets, in the source tree.
pub fn corpus() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_the_same_whatever_the_input_says_of_itself() {
        let one = Came::refused("a message of 17 bytes is above 8: \"abc\" at line 1");
        let other = Came::refused("a message of 3 bytes is above 1: \"x\" at line 22");
        assert_eq!(one.way(), other.way());
        assert_ne!(one.way(), Came::taken("a message of  bytes is above :  at line ").way());
    }
}
