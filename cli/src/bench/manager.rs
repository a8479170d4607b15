//! A manager of one's own, as a process whose costs can be told apart from all others'.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{Instant, interval, sleep},
};

use super::costs::Costs;
use crate::{
    failure::Failure,
    process::{Process, free_port},
    scrape::{Scraped, scrape},
};

/// How often the length of the queue is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// With no pass for so long, a manager is taken to have nothing to do. Longer than the second after which it tries again
/// what failed, or looks again where a watch lags behind.
const QUIET: Duration = Duration::from_secs(2);
/// Whoever is not quiet by then has other work than ours.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long a manager may take until it leads.
const START: Duration = Duration::from_secs(60);

/// What a manager is started with. Two that are started with the same listen at the same addresses, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    kubeconfig: PathBuf,
    /// Where it lives.
    namespace: String,
    /// Whether it looks after all namespaces, and not just its own.
    everywhere: bool,
    /// The only processors that it has, as `taskset` names them; all, if none are named.
    processors: Option<String>,
    logs: PathBuf,
    admin: SocketAddr,
    /// Where nodes connect in plain.
    pub(super) plain: SocketAddr,
    /// Where they connect over TLS, if they can.
    pub(super) tls: Option<SocketAddr>,
}

impl Setup {
    /// For one namespace, in which it lives, without TLS.
    pub(super) fn new(kubeconfig: &Path, namespace: &str, logs: &Path) -> Result<Self, Failure> {
        Ok(Self {
            kubeconfig: kubeconfig.to_owned(),
            namespace: namespace.to_owned(),
            everywhere: false,
            processors: None,
            logs: logs.to_owned(),
            admin: loopback()?,
            plain: loopback()?,
            tls: None,
        })
    }

    /// The same for all namespaces, as the chart installs it.
    pub(super) fn everywhere(self) -> Self {
        Self {
            everywhere: true,
            ..self
        }
    }

    /// The same on these processors.
    pub(super) fn on(self, processors: Option<&str>) -> Self {
        Self {
            processors: processors.map(ToOwned::to_owned),
            ..self
        }
    }

    /// The same, and nodes can connect over TLS.
    pub(super) fn with_tls(self) -> Result<Self, Failure> {
        Ok(Self {
            tls: Some(loopback()?),
            ..self
        })
    }

    /// The same addresses for a manager of something else.
    pub(super) fn instead(&self, kubeconfig: &Path, namespace: &str) -> Self {
        Self {
            kubeconfig: kubeconfig.to_owned(),
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }

    fn hint(&self) -> String {
        format!("{} says more", self.logs.join("globalmanager.log").display())
    }
}

fn loopback() -> Result<SocketAddr, Failure> {
    Ok(SocketAddr::from(([127, 0, 0, 1], free_port()?)))
}

/// Fails where a manager cannot run on the processors that an option names.
pub(super) fn check_processors(option: &str, list: &str) -> Result<(), Failure> {
    let why = match Command::new("taskset").args(["--cpu-list", list, "true"]).output() {
        Ok(tried) if tried.status.success() => return Ok(()),
        Ok(tried) => String::from_utf8_lossy(&tried.stderr).trim().to_owned(),
        Err(error) => format!("taskset: {error}"),
    };
    Err(Failure::new(
        format!("{option} {list}: {why}"),
        "name processors of this machine, as in 0-3 or 0,2, or leave it out",
    ))
}

/// A manager that runs.
pub(super) struct Manager {
    process: Process,
    pub(super) costs: Costs,
    setup: Setup,
    deepest_queue: Arc<Mutex<Option<f64>>>,
    _looks: JoinSet<()>,
}

impl Manager {
    /// Starts one, and waits until it leads and nodes can connect.
    pub(super) async fn start(setup: &Setup) -> Result<Self, Failure> {
        let (kubeconfig, port) = (setup.kubeconfig.display().to_string(), setup.plain.port().to_string());
        let (admin, tls) = (setup.admin.to_string(), setup.tls.map(|address| address.to_string()));
        let mut arguments = vec![
            "globalmanager",
            "--kubeconfig",
            &kubeconfig,
            "--lease-namespace",
            &setup.namespace,
            "--websocket-address",
            "127.0.0.1",
            "--websocket-port",
            &port,
            "--admin-address",
            &admin,
        ];
        if !setup.everywhere {
            arguments.extend(["--namespace", &setup.namespace]);
        }
        arguments.extend(tls.iter().flat_map(|address| ["--edge-tls-address", address]));
        let process = match &setup.processors {
            Some(processors) => Process::start_on(processors, "globalmanager", &arguments, &setup.logs)?,
            None => Process::start("globalmanager", &arguments, &[], &setup.logs)?,
        };
        let costs = Costs::of(&process).ok_or_else(|| Failure::new("the manager ended at once", setup.hint()))?;
        let deepest_queue = Arc::<Mutex<Option<f64>>>::default();
        let mut looks = JoinSet::new();
        looks.spawn(look(setup.admin, deepest_queue.clone()));
        let mut manager = Self {
            process,
            costs,
            setup: setup.clone(),
            deepest_queue,
            _looks: looks,
        };
        let begun = Instant::now();
        while !manager.serves().await {
            if let Some(ended) = manager.process.ended() {
                return Err(ended);
            }
            if begun.elapsed() > START {
                return Err(Failure::new(
                    format!("the manager does not lead within {START:?}"),
                    setup.hint(),
                ));
            }
            sleep(LOOK).await;
        }
        Ok(manager)
    }

    /// Whether it leads, and knows what it needs to serve nodes over TLS where it is to.
    async fn serves(&self) -> bool {
        if self.figure("skerry_leader").await != Some(1.0) {
            return false;
        }
        if self.setup.tls.is_none() {
            return true;
        }
        let ready = reqwest::get(format!("http://{}/readyz", self.setup.admin)).await;
        ready.is_ok_and(|answer| answer.status().is_success())
    }

    /// What it counted so far.
    pub(super) async fn counted(&self) -> Result<Scraped, Failure> {
        scrape(self.setup.admin)
            .await
            .ok_or_else(|| Failure::new("the manager does not answer", "its log may say why"))
    }

    /// Waits until it has had nothing to do for a while.
    pub(super) async fn quiet(&self) {
        let begun = Instant::now();
        let mut passes = None;
        while begun.elapsed() < PATIENCE {
            // One that has had nothing to do so far has no such figure yet.
            let counted = self.counted().await.ok();
            let now = counted.map(|counted| counted.total("skerry_reconciles_total").unwrap_or_default());
            if now.is_some() && now == passes {
                return;
            }
            passes = now;
            sleep(QUIET).await;
        }
    }

    /// The most resources that waited for a pass at once, of all looks that were answered.
    pub(super) fn deepest_queue(&self) -> Option<f64> {
        *self.deepest_queue.lock()
    }

    /// Drains and ends it.
    pub(super) async fn end(self) {
        self.process.end().await;
    }

    /// Kills it as SIGKILL does.
    pub(super) async fn kill(self) {
        self.process.kill().await;
    }

    /// One figure of what it counts, summed over its labels.
    pub(super) async fn figure(&self, name: &str) -> Option<f64> {
        scrape(self.setup.admin).await?.total(name)
    }
}

async fn look(admin: SocketAddr, deepest: Arc<Mutex<Option<f64>>>) {
    let mut due = interval(LOOK);
    loop {
        due.tick().await;
        let depth = scrape(admin)
            .await
            .and_then(|counted| counted.total("skerry_queue_depth"));
        let mut deepest = deepest.lock();
        *deepest = deepest.into_iter().chain(depth).reduce(f64::max);
    }
}
