//! Starts the parts of a local controller, and ends them in the order in which nothing is lost: first who takes
//! reports, then what makes them, then the link that delivers them, then the store that keeps what was not.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use jiff::Timestamp;
use skerry_edge::{link::Signals, node, transport::client::TcpDialer};
use tokio::{
    net::TcpListener,
    time::{interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, Protocol},
    dataset::{Datasets, Timing},
    identity::Identity,
    link,
    metrics::Metrics,
    sedna,
    state::Effects,
    store::{self, OutboxLimits, Store, StoreError},
    worker_api::{self, Api, Origin, Port},
};

/// How long requests that are being answered may take at the end.
const DRAIN_REQUESTS: Duration = Duration::from_secs(5);

/// How long a connected manager may take to take what is in the outbox at the end. What it does not take stays there.
const DRAIN_OUTBOX: Duration = Duration::from_secs(3);

/// How often it is looked for reports that are too old: by so much they may be older than their limit.
const OLD: Duration = Duration::from_secs(3600);

/// How often the outbox is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// Runs a local controller until `shutdown`, or until its store fails.
///
/// A rustls provider has to be installed before.
pub async fn run(config: Config, shutdown: CancellationToken) -> anyhow::Result<()> {
    let speaks = Speaks::open(&config).context("the manager cannot know who this node is")?;
    let path = config.rootfs.join(store::PATH);
    let store = Store::open(&path, OutboxLimits::default())
        .await
        .context("the store cannot be opened")?;
    let milliseconds = || u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
    store
        .number_by(milliseconds)
        .await
        .context("the store cannot be used")?;
    let listener = TcpListener::bind(config.bind)
        .await
        .with_context(|| format!("workers cannot be served on {} (BIND_ADDRESS, BIND_PORT)", config.bind))?;
    tracing::info!(
        node = config.node_name, manager = config.gm_address, workers = %listener.local_addr()?,
        store = %path.display(), version = env!("CARGO_PKG_VERSION"), "the local controller runs"
    );

    let ended = run_parts(config, speaks, &store, listener, shutdown).await;
    store.close().await;
    tracing::info!("the local controller has ended");
    ended
}

async fn run_parts(
    config: Config,
    speaks: Speaks,
    store: &Store,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let Config {
        gm_address,
        protocol: _,
        node_name,
        bind: _,
        workers_from,
        rootfs,
    } = config;
    let metrics = Arc::<Metrics>::default();
    let signals = Signals {
        outbox: store.outbox_grew(),
        ..Signals::new(CancellationToken::new())
    };
    let stop_link = signals.stop.clone().drop_guard();
    if store.is_put_back() {
        metrics.store_out_of_step.inc();
        tracing::warn!("{}", link::OUT_OF_STEP);
        store.put_back_is_told().await;
    }
    let link = Link {
        node: node_name,
        manager: gm_address,
        store: store.clone(),
        metrics: metrics.clone(),
        signals: signals.clone(),
    };
    let mut link = tokio::spawn(link.run(speaks));
    let datasets = Datasets::new(store.clone(), rootfs, Timing::default(), metrics.clone());
    let effects = tokio::spawn(Effects::new(store.clone(), datasets).run());
    let stop_api = CancellationToken::new();
    let api = worker_api::router(Api {
        store: store.clone(),
        link: signals.state.subscribe(),
        metrics: metrics.clone(),
    });
    let mut api = tokio::spawn(Port::new(api, Origin::new(workers_from), metrics).serve(listener, stop_api.clone()));

    let ended = tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        error = store.failure() => Err(error).context("the store has failed"),
        linked = &mut link => linked.map_err(Into::into).and_then(|linked| linked.context("the link cannot be run")),
        served = &mut api => served.context("workers are no longer served"),
        () = give_up_old(store) => Ok(()),
    };
    stop_api.cancel();
    if timeout(DRAIN_REQUESTS, &mut api).await.is_err() {
        api.abort();
    }
    effects.abort();
    if ended.is_ok() {
        deliver_rest(store, &signals).await;
    }
    drop(stop_link);
    if !link.is_finished() {
        link.await?.context("the link cannot be run")?;
    }
    ended
}

/// Gives up what is too old, now and then; never ends.
async fn give_up_old(store: &Store) {
    let mut often = interval(OLD);
    loop {
        often.tick().await;
        match store.give_up_old().await {
            Ok(0) => {}
            Ok(count) => tracing::warn!(count, "figures that nobody has fetched were too old, and were given up"),
            Err(error) => tracing::warn!(%error, "it cannot be looked for reports that are too old"),
        }
    }
}

/// How the manager is spoken with.
enum Speaks {
    /// In our own protocol, over plain TCP.
    Plain,
    /// In our own protocol, over mutual TLS.
    Tls(Box<Identity>),
    /// As Sedna's local controller does.
    Sedna,
}

impl Speaks {
    fn open(config: &Config) -> anyhow::Result<Self> {
        Ok(match config.protocol.clone() {
            Protocol::Skerry { identity: None } => Self::Plain,
            Protocol::Skerry {
                identity: Some(settings),
            } => Self::Tls(Box::new(Identity::open(
                &config.node_name,
                &config.gm_address,
                settings,
            )?)),
            Protocol::Sedna => Self::Sedna,
        })
    }
}

/// What the link needs, of any kind.
struct Link {
    node: String,
    manager: String,
    store: Store,
    metrics: Arc<Metrics>,
    signals: Signals,
}

impl Link {
    async fn run(self, speaks: Speaks) -> Result<(), StoreError> {
        let Self {
            node,
            manager,
            store,
            metrics,
            signals,
        } = self;
        let mut identity = match speaks {
            Speaks::Plain => return link::run(node, TcpDialer::new(manager), store, metrics, signals).await,
            Speaks::Sedna => return sedna::run(node, TcpDialer::new(manager), store, metrics, signals).await,
            Speaks::Tls(identity) => identity,
        };
        let Some((dialer, told)) = identity.join(&signals).await else {
            return Ok(());
        };
        let kept = identity.keep(signals.clone(), told);
        tokio::select! {
            linked = link::run(node, dialer, store, metrics, signals) => linked,
            () = kept => Ok(()),
        }
    }
}

/// Waits until a manager that is connected has taken what is in the outbox: this node may not come back.
async fn deliver_rest(store: &Store, signals: &Signals) {
    let delivered = async {
        while *signals.state.borrow() == node::State::Live {
            match store.fetch(0, 1).await {
                Ok(rest) if !rest.is_empty() => sleep(LOOK).await,
                _ => return,
            }
        }
    };
    if timeout(DRAIN_OUTBOX, delivered).await.is_err() {
        tracing::info!("reports that were not taken stay in the outbox until the next start");
    }
}
