//! Who may start a session. Nothing is kept of a node that may not.

use thiserror::Error;

use crate::{
    identity::NodeCertificate,
    limits,
    message::{Downstream, Hello, RefusedReason},
    object::is_dns_name,
    position::{Epoch, Fenced},
};

/// What the transport knows of the other side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The node's certificate; none where nothing was proven.
    pub identity: Option<NodeCertificate>,
    /// Whether credentials may be sent: over mTLS or loopback.
    pub confidential: bool,
}

/// Which manager this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The uid of the cluster, that of its `kube-system` namespace.
    pub cluster: String,
    /// Which run of the manager.
    pub epoch: Epoch,
}

/// Why a node is not welcome.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The hello's node is not a name.
    #[error("{0:?} is not a node name: lower-case letters, digits, '-' and '.', at most 253")]
    Name(String),
    /// The hello's node is not the certificate's.
    #[error("the certificate is that of node {proven}, the hello says {said}")]
    Identity {
        /// The certificate's.
        proven: String,
        /// The hello's.
        said: String,
    },
    /// A field of the hello is longer than [`limits::MAX_NAME`].
    #[error("{0} is longer than {max} bytes", max = limits::MAX_NAME)]
    TooLong(&'static str),
    /// A protocol that never was.
    #[error("protocol {0} is unknown, this manager speaks {ours}", ours = limits::PROTOCOL)]
    Protocol(u32),
    /// The node belongs to another cluster, or this manager is deposed.
    #[error(transparent)]
    Fenced(#[from] Fenced),
}

impl Refusal {
    /// One word, for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Name(_) => "no_name",
            Self::Identity { .. } => "other_name",
            Self::TooLong(_) => "violation",
            Self::Protocol(_) => "protocol",
            Self::Fenced(Fenced::OtherCluster { .. }) => "other_cluster",
            Self::Fenced(Fenced::Deposed { .. }) => "deposed",
        }
    }

    /// The frame that says so.
    pub fn frame(&self) -> Downstream {
        let reason = match self {
            Self::Name(_) | Self::Identity { .. } => RefusedReason::Node,
            Self::TooLong(_) => RefusedReason::Violation,
            Self::Protocol(_) => RefusedReason::Protocol,
            Self::Fenced(Fenced::OtherCluster { .. }) => RefusedReason::OtherCluster,
            Self::Fenced(Fenced::Deposed { .. }) => RefusedReason::Deposed,
        };
        Downstream::Refused {
            reason,
            hint: self.to_string(),
        }
    }
}

impl Server {
    /// Whether a node that says this may go on. Nothing is kept of one that may not.
    pub fn check(&self, peer: &Peer, hello: &Hello) -> Result<(), Refusal> {
        let Hello {
            node,
            boot,
            protocol,
            agent,
            stored,
            holds: _,
            window: _,
        } = hello;
        if !is_dns_name(node) {
            return Err(Refusal::Name(node.chars().take(limits::QUOTED).collect()));
        }
        if let Some(proven) = peer.identity.as_ref().filter(|proven| proven.node != *node) {
            return Err(Refusal::Identity {
                proven: proven.node.clone(),
                said: node.clone(),
            });
        }
        // These are repeated in what is answered and logged.
        let named = stored.as_ref().map(|position| {
            [
                ("stored.cluster", &position.cluster),
                ("stored.epoch.lease", &position.epoch.lease),
            ]
        });
        for (field, value) in [("boot", boot), ("agent", agent)]
            .into_iter()
            .chain(named.into_iter().flatten())
        {
            if value.len() > limits::MAX_NAME {
                return Err(Refusal::TooLong(field));
            }
        }
        if *protocol == 0 {
            return Err(Refusal::Protocol(*protocol));
        }
        if let Some(position) = stored {
            position.judge(&self.cluster, &self.epoch)?;
        }
        Ok(())
    }
}
