//! Wires the manager: client, lease, engine, edge hub, admin server.
//!
//! A term begins when the lease is held and ends when it is lost; each has an epoch of its own. Between terms the process
//! goes on watching and planning, so that it takes over warm.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use skerry_crds::sedna::v1alpha1::{Dataset, FederatedLearningJob, JointInferenceService, Model};
use skerry_edge::{Epoch, cloud::Server};
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    admin::{self, Readiness},
    client,
    config::Config,
    engine::{Engine, Kinds, Pace, Parts},
    hub::{Hub, OldAgents, nodelay},
    identity::{Identity, Terms},
    lease::{self, Claim},
    metrics::Metrics,
};

/// The name of the Lease that the manager holds which leads.
pub const LEASE: &str = "skerry-globalmanager";
/// How long the API server is given between two attempts to learn which cluster it is.
const CLUSTER_RETRY: Duration = Duration::from_secs(2);

/// The kinds that the manager looks after, one line each.
pub fn kinds() -> Kinds {
    Kinds::default()
        .with::<Dataset>()
        .with::<FederatedLearningJob>()
        .with::<JointInferenceService>()
        .with::<Model>()
}

/// Runs the manager until `stop`, then drains it.
pub async fn run(config: Config, stop: CancellationToken) -> anyhow::Result<()> {
    let metrics = Metrics::new();
    let Listeners {
        edge,
        tls,
        agents,
        admin,
    } = Listeners::bind(&config).await?;
    let client = client::connect(&config, metrics.clone()).await?;
    let instance = instance();
    let hub = Hub::default();
    metrics.count_hub(hub.clone());
    let (leads, leader) = watch::channel(false);
    let engine = Engine::new(
        Parts {
            client: client.clone(),
            namespace: config.namespace.clone(),
            settings: config.settings.clone(),
            leader,
            nodes: Arc::new(hub.clone()),
            metrics: metrics.clone(),
            instance: instance.clone(),
            clock: Arc::new(Timestamp::now),
            pace: Pace::default(),
        },
        kinds(),
    );
    let (epochs, epoch) = watch::channel(None);
    let claim = Claim {
        namespace: config.lease_namespace.clone(),
        name: LEASE.to_owned(),
        claimant: instance,
    };
    let lease_stop = CancellationToken::new();
    let (troubles, trouble) = watch::channel(None);
    let lease = format!("Lease {}/{}", claim.namespace, claim.name);
    let holder = tokio::spawn(lease::hold(client.clone(), claim, epochs, troubles, lease_stop.clone()));

    let mut tasks = JoinSet::new();
    let readiness = Readiness {
        engine: engine.clone(),
        lease,
        trouble,
        hub: hub.clone(),
        tls: tls.is_some(),
    };
    let asked = admin::serve(nodelay(admin), admin::router(readiness, metrics.clone()), stop.clone());
    tasks.spawn(async move {
        asked.await;
        anyhow::Ok(())
    });
    if tls.is_some() {
        // Before anybody can come in plain.
        hub.expect_proof();
    }
    let plain = Plain {
        hub: hub.clone(),
        edge,
        agents,
    };
    tasks.spawn(plain.serve(stop.clone()));
    if let Some((listener, terms)) = tls {
        let tls = Tls {
            hub: hub.clone(),
            listener,
            only: config.namespace.clone(),
            identity: Identity {
                client: client.clone(),
                watches: client::connect(&config, metrics.clone()).await?,
                namespace: config.lease_namespace.clone(),
                cluster: String::new(),
                terms,
                metrics: metrics.clone(),
            },
        };
        tasks.spawn(tls.serve(stop.clone()));
    }
    let term = Term {
        engine: engine.clone(),
        hub,
        leads,
        metrics,
    };
    let ended = lease_stop.clone();
    tasks.spawn(async move {
        tokio::join!(
            terms(client, config.namespace, term, epoch, stop.clone()),
            engine.run(stop)
        );
        // Nothing is written any more, so whoever takes over need not wait for what else ends here.
        ended.cancel();
        anyhow::Ok(())
    });
    let outcome = all_end(&mut tasks).await;
    lease_stop.cancel();
    holder.await.context("the lease's task broke down")?;
    outcome
}

/// Waits until all parts have ended, or one has failed.
async fn all_end(parts: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(ended) = parts.join_next().await {
        ended.context("a part of the manager broke down").flatten()?;
    }
    Ok(())
}

/// Where the manager listens.
struct Listeners {
    edge: TcpListener,
    tls: Option<(TcpListener, Terms)>,
    /// And whether credentials go over it.
    agents: Option<(TcpListener, bool)>,
    admin: TcpListener,
}

impl Listeners {
    async fn bind(config: &Config) -> anyhow::Result<Self> {
        let edge = bind(&config.edge_address, "websocket.address and websocket.port").await?;
        let tls = match &config.edge_tls {
            Some(tls) => Some((bind(&tls.address, "edgeTlsAddress").await?, tls.terms)),
            None => None,
        };
        if tls.is_some() && !edge.local_addr()?.ip().is_loopback() {
            tracing::warn!(
                address = config.edge_address,
                "nodes can connect in plain, too, under any name: set websocket.address to 127.0.0.1"
            );
        }
        let agents = match &config.sedna_agents {
            Some(agents) => Some((bind(&agents.address, "sednaAgentsAddress").await?, agents.credentials)),
            None => None,
        };
        if let Some((listener, credentials)) = &agents {
            let address = listener.local_addr()?;
            tracing::warn!(%address, credentials, "Sedna's local controllers can connect, in clear and under any name");
        }
        let admin = bind(&config.admin_address, "adminAddress").await?;
        Ok(Self {
            edge,
            tls,
            agents,
            admin,
        })
    }
}

/// Nodes that prove nothing.
struct Plain {
    hub: Hub,
    edge: TcpListener,
    agents: Option<(TcpListener, bool)>,
}

impl Plain {
    async fn serve(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { hub, edge, agents } = self;
        let agents = async {
            if let Some((listener, credentials)) = agents {
                let old = OldAgents { credentials };
                hub.serve_old_agents(old, listener, stop.clone()).await;
            }
        };
        tokio::join!(hub.serve(edge, stop.clone()), agents);
        Ok(())
    }
}

/// Nodes over TLS.
struct Tls {
    hub: Hub,
    listener: TcpListener,
    /// The one namespace that the manager looks after.
    only: Option<String>,
    identity: Identity,
}

impl Tls {
    async fn serve(self, stop: CancellationToken) -> anyhow::Result<()> {
        let cluster = cluster_uid(&self.identity.client, self.only.as_deref());
        let Some(cluster) = stop.run_until_cancelled(cluster).await else {
            return Ok(());
        };
        let identity = Identity {
            cluster,
            ..self.identity
        };
        Ok(identity.serve(self.hub, self.listener, stop).await?)
    }
}

/// What begins and ends with a term.
struct Term {
    engine: Engine,
    hub: Hub,
    leads: watch::Sender<bool>,
    metrics: Arc<Metrics>,
}

impl Term {
    fn begin(&self, cluster: &str, epoch: Epoch) {
        tracing::info!(
            lease = epoch.lease,
            transitions = epoch.transitions,
            "this manager holds the lease"
        );
        // The hub first: what the engine places from now on is placed under this epoch.
        self.hub.lead(
            Server {
                cluster: cluster.to_owned(),
                epoch,
            },
            Arc::new(self.engine.clone()),
        );
        self.metrics.leads(true);
        self.leads.send_replace(true);
    }

    fn end(&self) {
        self.leads.send_replace(false);
        self.metrics.leads(false);
        self.hub.stand_down();
    }
}

/// Begins and ends terms as the lease comes and goes.
async fn terms(
    client: Client,
    namespace: Option<String>,
    term: Term,
    mut epoch: watch::Receiver<Option<Epoch>>,
    stop: CancellationToken,
) {
    let Some(cluster) = stop
        .run_until_cancelled(cluster_uid(&client, namespace.as_deref()))
        .await
    else {
        return;
    };
    loop {
        let held = epoch.borrow_and_update().clone();
        match held {
            Some(epoch) => term.begin(&cluster, epoch),
            None => term.end(),
        }
        match stop.run_until_cancelled(epoch.changed()).await {
            Some(Ok(())) => {}
            Some(Err(_)) | None => break,
        }
    }
    term.end();
    term.hub.shut_down().await;
}

/// The uid by which nodes know whose word they heed: that of the cluster's `kube-system` namespace, which lives as long as
/// the cluster does. A manager of one namespace may read no other, and speaks for that one alone.
async fn cluster_uid(client: &Client, namespace: Option<&str>) -> String {
    let api: Api<Namespace> = Api::all(client.clone());
    let name = namespace.unwrap_or("kube-system");
    loop {
        match api.get(name).await {
            Ok(Namespace { metadata, .. }) if metadata.uid.is_some() => return metadata.uid.unwrap_or_default(),
            Ok(_) => tracing::warn!("the namespace {name} has no uid"),
            Err(error) => tracing::warn!(%error, "the uid of the namespace {name} cannot be read yet"),
        }
        sleep(CLUSTER_RETRY).await;
    }
}

async fn bind(address: &str, key: &str) -> anyhow::Result<TcpListener> {
    let hint = || format!("{address} ({key}) cannot be listened on; give a free address and port");
    TcpListener::bind(address).await.with_context(hint)
}

/// What people know this process by: the pod's name, or the host's.
fn instance() -> String {
    std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "skerry-globalmanager".to_owned())
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A client of an API server that answers for one namespace, and forbids everything else.
    fn only(namespace: &'static str) -> Client {
        let answer = move |request: Request<Body>| async move {
            let allowed = request.uri().path() == format!("/api/v1/namespaces/{namespace}");
            let (code, body) = if allowed {
                (
                    200,
                    json!({"metadata": {"name": namespace, "uid": format!("uid of {namespace}")}}),
                )
            } else {
                (
                    403,
                    json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}),
                )
            };
            let body = Body::from(body.to_string().into_bytes());
            anyhow::Ok(Response::builder().status(code).body(body)?)
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test]
    async fn a_manager_of_one_namespace_reads_no_other() {
        assert_eq!(cluster_uid(&only("edge"), Some("edge")).await, "uid of edge");
        assert_eq!(cluster_uid(&only("kube-system"), None).await, "uid of kube-system");
    }
}
