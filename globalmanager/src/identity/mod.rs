//! Who is who on the edge link, as far as that takes a cluster: keeps the authority and the join tokens in Secrets, knows
//! from `EdgeNode` resources whose certificates are revoked, and serves nodes over mutual TLS.
//!
//! ```text
//!   Secret skerry-edge-authority ──▶ Authority ──▶ the listener's own certificate
//!   Secrets skerry-join-<id>  ◀──▶ /join ──▶ certificate ──▶ EdgeNode <node>, status
//!   EdgeNodes, spec.revokedBefore ──▶ hub, /renew
//!   hub ──▶ EdgeNodes, status.session
//! ```
//!
//! What counts as proof is decided by [`skerry_edge::identity`]. Every manager serves this, leader or not: nothing is kept
//! in memory that another one would have to know.

mod authority;
mod nodes;
pub mod operator;
mod revoked;
mod routes;
pub mod sessions;
mod tokens;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::serve::Listener;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use rustls::time_provider::DefaultTimeProvider;
use skerry_edge::{
    identity::{Authority, AuthorityError, Revoked, TokenRefusal, trust::manager_config},
    transport::{server, tls::TlsListener},
};
use thiserror::Error;
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    hub::{Hub, nodelay},
    metrics::Metrics,
};

/// How long the API server is given between two attempts to get the authority.
const RETRY: Duration = Duration::from_secs(2);

/// For how long certificates are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// From issue to expiry.
    pub lifetime: SignedDuration,
    /// How long after its expiry a certificate can still be renewed: for nodes that were away.
    pub grace: SignedDuration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            lifetime: SignedDuration::from_hours(24 * 90),
            grace: SignedDuration::from_hours(24 * 30),
        }
    }
}

/// Why a certificate was not issued, or the authority is not there.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The API server did not do it.
    #[error("the API server did not {what}: {source}")]
    Api {
        /// What was asked for.
        what: &'static str,
        /// Why.
        source: kube::Error,
    },
    /// A Secret is not what we put there.
    #[error("the Secret {name} has no usable {field}: {why}")]
    Secret {
        /// Its name.
        name: String,
        /// The key in its data.
        field: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The authority, or what it was to sign.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The join token.
    #[error(transparent)]
    Token(#[from] TokenRefusal),
    /// The node was turned away.
    #[error(transparent)]
    Revoked(#[from] Revoked),
    /// The node is turned away until later.
    #[error("node {node} was turned away until {before}: it can join after that", node = .0.node, before = .0.before)]
    Until(Revoked),
    /// The Lease names nobody.
    #[error("no manager leads now")]
    NoLeader,
    /// The listener cannot be set up.
    #[error("TLS cannot be served: {0}")]
    Tls(String),
}

fn api(what: &'static str) -> impl Fn(kube::Error) -> IdentityError {
    move |source| IdentityError::Api { what, source }
}

/// What serves nodes over TLS.
pub struct Identity {
    /// Of the API server.
    pub client: Client,
    /// Of the API server, for the watch of who is revoked alone. Where the network drops all connections, each that another
    /// request had left in the pool would have to be found dead first.
    pub watches: Client,
    /// Where Secrets and `EdgeNode`s are.
    pub namespace: String,
    /// The uid of the cluster: the authority is called after it.
    pub cluster: String,
    /// For how long certificates are good.
    pub terms: Terms,
    /// Counts what is asked for.
    pub metrics: Arc<Metrics>,
}

impl Identity {
    /// Serves nodes of `hub` on `listener` until `stop`. Before that, gets the authority, for as long as that takes.
    pub async fn serve(self, hub: Hub, listener: TcpListener, stop: CancellationToken) -> Result<(), IdentityError> {
        self.serve_on(hub, nodelay(listener), stop).await
    }

    /// As [`Identity::serve`], on any listener.
    pub async fn serve_on(
        self,
        hub: Hub,
        listener: impl Listener<Addr = SocketAddr>,
        stop: CancellationToken,
    ) -> Result<(), IdentityError> {
        let Some(authority) = stop.run_until_cancelled(self.authority()).await else {
            return Ok(());
        };
        let tls = |error: &dyn std::fmt::Display| IdentityError::Tls(error.to_string());
        let own = authority.issue_manager(Timestamp::now())?;
        let config = manager_config(&authority, own, self.terms.grace, Arc::new(DefaultTimeProvider))
            .map_err(|error| tls(&error))?;
        let listener = TlsListener::new(listener, Arc::new(config), hub.doors()).map_err(|error| tls(&error))?;
        tracing::info!(authority = %authority.fingerprint(), "nodes can connect over TLS");
        let revocations = revoked::watch(nodes::resources(&self.watches, &self.namespace), hub.clone());
        let told = sessions::tell(self.client.clone(), self.namespace.clone(), hub.clone());
        let router = routes::router(self, authority, &hub);
        tokio::select! {
            () = server::serve(listener, router, stop) => {}
            () = revocations => {}
            () = told => {}
        }
        Ok(())
    }

    async fn authority(&self) -> Authority {
        loop {
            match authority::get(&self.client, &self.namespace, &self.cluster).await {
                Ok(authority) => return authority,
                Err(error) => tracing::warn!(%error, "there is no authority yet, so no node can connect over TLS"),
            }
            sleep(RETRY).await;
        }
    }
}
