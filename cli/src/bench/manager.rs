//! A manager of one's own, as a process whose costs can be told apart from all others'.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use parking_lot::Mutex;
use procfs::process::Process as Entry;
use tokio::{
    task::JoinSet,
    time::{Instant, interval, sleep},
};

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

/// A manager that runs.
pub(super) struct Manager {
    process: Process,
    entry: Entry,
    admin: SocketAddr,
    deepest_queue: Arc<Mutex<f64>>,
    _looks: JoinSet<()>,
}

impl Manager {
    /// Starts one for a namespace, and waits until it leads.
    pub(super) async fn start(kubeconfig: &Path, namespace: &str, logs: &Path) -> Result<Self, Failure> {
        let admin = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let (kubeconfig, port) = (kubeconfig.display().to_string(), free_port()?.to_string());
        let arguments = [
            "globalmanager",
            "--kubeconfig",
            &kubeconfig,
            "--namespace",
            namespace,
            "--lease-namespace",
            namespace,
            "--websocket-address",
            "127.0.0.1",
            "--websocket-port",
            &port,
            "--admin-address",
            &admin.to_string(),
        ];
        let process = Process::start("globalmanager", &arguments, &[], logs)?;
        let entry = process.pid().and_then(|pid| Entry::new(pid).ok());
        let entry = entry.ok_or_else(|| Failure::new("the manager ended at once", hint(logs)))?;
        let deepest_queue = Arc::new(Mutex::new(0.0));
        let mut looks = JoinSet::new();
        looks.spawn(look(admin, deepest_queue.clone()));
        let mut manager = Self {
            process,
            entry,
            admin,
            deepest_queue,
            _looks: looks,
        };
        let begun = Instant::now();
        while manager.figure("skerry_leader").await != Some(1.0) {
            if let Some(ended) = manager.process.ended() {
                return Err(ended);
            }
            if begun.elapsed() > START {
                return Err(Failure::new(
                    format!("the manager does not lead within {START:?}"),
                    hint(logs),
                ));
            }
            sleep(LOOK).await;
        }
        Ok(manager)
    }

    /// What it counted so far.
    pub(super) async fn counted(&self) -> Result<Scraped, Failure> {
        scrape(self.admin)
            .await
            .ok_or_else(|| Failure::new("the manager does not answer", "its log may say why"))
    }

    /// Waits until it has had nothing to do for a while.
    pub(super) async fn quiet(&self) {
        let begun = Instant::now();
        let mut passes = None;
        while begun.elapsed() < PATIENCE {
            let now = self.figure("skerry_reconciles_total").await;
            if now.is_some() && now == passes {
                return;
            }
            passes = now;
            sleep(QUIET).await;
        }
    }

    /// Processor time so far, in seconds.
    pub(super) fn processor_seconds(&self) -> Result<f64, Failure> {
        let stat = self.entry.stat().map_err(|error| unreadable(&error))?;
        #[expect(clippy::cast_precision_loss, reason = "ticks of a process fit")]
        let ticks = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        Ok(ticks(stat.utime + stat.stime))
    }

    /// Resident memory in bytes: now, and at most.
    pub(super) fn memory(&self) -> Result<(f64, f64), Failure> {
        let status = self.entry.status().map_err(|error| unreadable(&error))?;
        #[expect(clippy::cast_precision_loss, reason = "sizes of a process fit")]
        let bytes = |kibibytes: Option<u64>| kibibytes.unwrap_or_default() as f64 * 1024.0;
        Ok((bytes(status.vmrss), bytes(status.vmhwm)))
    }

    /// The most resources that waited for a pass at once, of all looks.
    pub(super) fn deepest_queue(&self) -> f64 {
        *self.deepest_queue.lock()
    }

    /// Drains and ends it.
    pub(super) async fn end(self) {
        self.process.end().await;
    }

    async fn figure(&self, name: &str) -> Option<f64> {
        scrape(self.admin).await?.total(name)
    }
}

async fn look(admin: SocketAddr, deepest: Arc<Mutex<f64>>) {
    let mut due = interval(LOOK);
    loop {
        due.tick().await;
        let depth = scrape(admin)
            .await
            .and_then(|counted| counted.total("skerry_queue_depth"));
        let mut deepest = deepest.lock();
        *deepest = deepest.max(depth.unwrap_or_default());
    }
}

fn unreadable(error: &procfs::ProcError) -> Failure {
    Failure::new(
        format!("the manager's process cannot be looked at: {error}"),
        "see whether /proc is mounted",
    )
}

fn hint(logs: &Path) -> String {
    format!("{} says more", logs.join("globalmanager.log").display())
}
