//! A container that runs: the task that waits for its process to end or ends it, and the task that probes it.

use std::io;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::probe::Subject;
use super::process::{Process, exit_code};
use super::worker::Signal;
use crate::api::Clock;

/// A container that was started. When this is dropped its processes are killed.
#[derive(Debug)]
pub(super) struct Launched {
    stops: mpsc::UnboundedSender<Duration>,
    _tasks: JoinSet<()>,
}

impl Launched {
    /// Asks it to end, and ends it when the grace has passed. A shorter grace overrules a longer one.
    pub(super) fn stop(&self, grace: Duration) {
        // Who has ended already need not be told.
        let _ = self.stops.send(grace);
    }
}

/// Which run of which of the pod's containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunId {
    pub(super) slot: usize,
    pub(super) run: u32,
}

/// Starts a container.
pub(super) fn launch(
    subject: Subject,
    of: RunId,
    clock: Clock,
    signals: &mpsc::UnboundedSender<Signal>,
) -> io::Result<Launched> {
    let process = Process::start(&subject.run, clock)?;
    let (stops, orders) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    tasks.spawn(supervise(process, orders, of, signals.clone()));
    let container = &subject.container;
    if container.startup_probe.is_some() || container.readiness_probe.is_some() || container.liveness_probe.is_some() {
        tasks.spawn(probe(subject, of, signals.clone()));
    }
    Ok(Launched { stops, _tasks: tasks })
}

async fn supervise(
    mut process: Process,
    mut orders: mpsc::UnboundedReceiver<Duration>,
    of: RunId,
    signals: mpsc::UnboundedSender<Signal>,
) {
    let mut deadline: Option<Instant> = None;
    let code = loop {
        let overdue = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = process.ended() => break status.map_or(255, exit_code),
            Some(grace) = orders.recv() => {
                process.terminate();
                let at = Instant::now() + grace;
                deadline = Some(deadline.map_or(at, |sooner| sooner.min(at)));
            }
            () = overdue => {
                process.kill();
                deadline = None;
            }
        }
    };
    // The worker may be gone, then nobody wants to know.
    let _ = signals.send(Signal::Exited { of, code });
}

async fn probe(subject: Subject, of: RunId, signals: mpsc::UnboundedSender<Signal>) {
    let (sender, mut findings) = mpsc::channel(1);
    let forward = async {
        while let Some(finding) = findings.recv().await {
            if signals.send(Signal::Probed { of, finding }).is_err() {
                return;
            }
        }
    };
    tokio::join!(subject.probe(sender), forward);
}
