//! Whether a node may have its session by what it has shown: a certificate that is not revoked, or nothing, which is enough
//! for nodes that have not joined. Where one has joined, whoever only says its name is somebody else.

use std::{collections::BTreeSet, future::pending};

use skerry_edge::{
    Downstream,
    cloud::Peer,
    identity::{NodeCertificate, Revocations, Revoked},
    message::RefusedReason,
};
use thiserror::Error;
use tokio::sync::watch;

use super::Hub;

/// Which nodes have to prove who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// None: there is no listener on which they could.
    Nobody,
    /// It is not known yet.
    NotKnown,
    /// Those of which there is an `EdgeNode`.
    These(BTreeSet<String>),
}

/// What one connection has shown, and what that is worth now.
pub(super) enum Standing {
    Certified(NodeCertificate, watch::Receiver<Option<Revocations>>),
    /// Nothing; and the name, once it was said.
    Unproven(Option<String>, watch::Receiver<Joined>),
}

/// What it is worth.
pub(super) enum Judgement {
    Counts,
    /// It is not known yet.
    Unknown,
    Lost(Lost),
}

/// Why it is worth nothing.
#[derive(Debug, Error)]
pub(super) enum Lost {
    #[error(transparent)]
    Revoked(#[from] Revoked),
    #[error("node {0} has joined: it has to prove who it is, over TLS")]
    Unproven(String),
}

impl Lost {
    /// One word, for metrics.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Revoked(_) => "revoked",
            Self::Unproven(_) => "proves",
        }
    }

    /// The frame that says so.
    pub(super) fn frame(&self) -> Downstream {
        Downstream::Refused {
            reason: RefusedReason::Node,
            hint: self.to_string(),
        }
    }
}

impl Standing {
    pub(super) fn new(hub: &Hub, peer: &Peer) -> Self {
        match peer.identity.clone() {
            Some(certificate) => Self::Certified(certificate, hub.shared.revocations.subscribe()),
            None => Self::Unproven(None, hub.shared.joined.subscribe()),
        }
    }

    /// The node says that this is its name.
    pub(super) fn says(&mut self, name: &str) {
        if let Self::Unproven(said, _) = self {
            *said = Some(name.to_owned());
        }
    }

    pub(super) fn judge(&mut self) -> Judgement {
        match self {
            Self::Certified(certificate, revocations) => match &*revocations.borrow_and_update() {
                None => Judgement::Unknown,
                Some(known) => match known.judge(&certificate.node, certificate.issued) {
                    Ok(()) => Judgement::Counts,
                    Err(revoked) => Judgement::Lost(revoked.into()),
                },
            },
            Self::Unproven(None, _) => Judgement::Counts,
            Self::Unproven(Some(name), joined) => match &*joined.borrow_and_update() {
                Joined::NotKnown => Judgement::Unknown,
                Joined::These(nodes) if nodes.contains(name) => Judgement::Lost(Lost::Unproven(name.clone())),
                Joined::Nobody | Joined::These(_) => Judgement::Counts,
            },
        }
    }

    /// Resolves when what was shown does not count any more.
    pub(super) async fn lost(&mut self) -> Lost {
        loop {
            if let Judgement::Lost(lost) = self.judge() {
                return lost;
            }
            let changed = match self {
                Self::Certified(_, revocations) => revocations.changed().await,
                Self::Unproven(_, joined) => joined.changed().await,
            };
            if changed.is_err() {
                return pending().await;
            }
        }
    }
}
