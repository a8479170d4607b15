//! The life of one pod on its node: starts its containers in order, watches them, reports, and clears up after them.
//!
//! What is started and when is decided by [`Slots`]; this is what carries it out. A worker goes on while the API server
//! is out of reach: it reports when it can.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::clock::{Times, until};
use super::super::meta::{deleting, finished, uid};
use super::super::pod_status::{OWN_CONDITIONS, Runtime, pod_status};
use super::super::report;
use super::launch::{Launched, RunId};
use super::probe::{Finding, Purpose};
use super::site::Site;
use super::slots::{Ended, Next, Slots, State};

/// How long after a failed report the next try comes.
const RETRY: Duration = Duration::from_millis(500);
/// A report that takes longer has failed.
const REPORT: Duration = Duration::from_secs(10);

/// What the API server says of a pod.
#[derive(Debug, Clone)]
pub(super) enum Desired {
    /// It is there, possibly on its way out.
    Pod(Arc<Pod>),
    /// It is there no more.
    Gone,
}

/// What happened to a container.
#[derive(Debug)]
pub(super) enum Signal {
    Exited { of: RunId, code: i32 },
    Probed { of: RunId, finding: Finding },
}

/// Asks for the processes of one container, or of all, to be killed, as if they had crashed.
#[derive(Debug)]
pub(super) struct Kill {
    pub(super) container: Option<String>,
}

pub(super) struct Worker {
    pub(super) site: Arc<Site>,
    pub(super) pod: Arc<Pod>,
    pub(super) address: Ipv4Addr,
    pub(super) slots: Slots,
    /// The containers that run, by slot.
    pub(super) launched: BTreeMap<usize, Launched>,
    pub(super) sender: mpsc::UnboundedSender<Signal>,
    signals: mpsc::UnboundedReceiver<Signal>,
    /// When the pod was taken on.
    started: Time,
    stopping: bool,
    /// Whether the volumes are there.
    pub(super) prepared: bool,
    status: Option<PodStatus>,
    reports: watch::Sender<Option<PodStatus>>,
    _reporter: JoinSet<()>,
}

impl Worker {
    pub(super) fn new(site: Arc<Site>, pod: Arc<Pod>) -> Self {
        let (sender, signals) = mpsc::unbounded_channel();
        let (reports, latest) = watch::channel(None);
        let mut reporter = JoinSet::new();
        reporter.spawn(report_latest(site.clone(), pod.clone(), latest));
        Self {
            address: site.take_address(&pod),
            slots: Slots::new(&pod, site.back_off),
            launched: BTreeMap::new(),
            sender,
            signals,
            started: site.clock.time(),
            stopping: deleting(pod.as_ref()),
            prepared: false,
            status: None,
            reports,
            _reporter: reporter,
            site,
            pod,
        }
    }

    /// Lives until the pod is gone from the API server, or the kubelet from this process.
    pub(super) async fn run(mut self, mut desired: watch::Receiver<Desired>, mut kills: mpsc::UnboundedReceiver<Kill>) {
        loop {
            let wake = self.advance().await;
            self.publish();
            if self.stopping && self.launched.is_empty() {
                break;
            }
            let awake = until(wake);
            tokio::select! {
                changed = desired.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let now = desired.borrow_and_update().clone();
                    match now {
                        Desired::Pod(pod) => self.updated(pod),
                        // Somebody removed it by force.
                        Desired::Gone => break,
                    }
                }
                Some(signal) = self.signals.recv() => self.signalled(signal),
                Some(kill) = kills.recv() => self.kill(kill.container.as_deref()),
                () = awake => {}
            }
        }
        self.finish(&mut desired).await;
    }

    /// Starts what is to be started now; when to look again.
    async fn advance(&mut self) -> Option<Instant> {
        if self.stopping {
            return None;
        }
        loop {
            match self.slots.next(&self.pod, Instant::now()) {
                Next::Start(slot) => self.start(slot).await,
                Next::BackOff(slot) => self.say_back_off(slot),
                Next::Wait(until) => return until,
            }
        }
    }

    fn say_back_off(&self, slot: usize) {
        let Some(slot) = self.slots.slots.get(slot) else { return };
        let (name, pod) = (&slot.container.name, self.pod.as_ref());
        let (namespace, of, uid) = (pod.namespace().unwrap_or_default(), pod.name_any(), uid(pod));
        let message = format!("Back-off restarting failed container {name} in pod {of}_{namespace}({uid})");
        self.site.say(pod, Some(name), true, "BackOff", message);
    }

    fn updated(&mut self, pod: Arc<Pod>) {
        if readiness(pod.status.as_ref()) != readiness(self.status.as_ref()) {
            // Somebody else has written it, or what was reported has not arrived: it is reported again.
            self.reports.send_if_modified(|latest| {
                latest.clone_from(&self.status);
                latest.is_some()
            });
        }
        self.pod = pod;
        if deleting(self.pod.as_ref()) || finished(&self.pod) && !self.launched.is_empty() {
            self.stop();
        }
    }

    fn stop(&mut self) {
        let grace = self.pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        for (slot, launched) in &self.launched {
            if let Some(slot) = self.slots.slots.get(*slot).filter(|_| !self.stopping) {
                let name = &slot.container.name;
                self.site.say(
                    &self.pod,
                    Some(name),
                    false,
                    "Killing",
                    format!("Stopping container {name}"),
                );
            }
            launched.stop(grace);
        }
        self.stopping = deleting(self.pod.as_ref());
    }

    fn kill(&self, container: Option<&str>) {
        for (slot, launched) in &self.launched {
            let name = self.slots.slots.get(*slot).map(|slot| slot.container.name.as_str());
            if container.is_none() || container == name {
                launched.stop(Duration::ZERO);
            }
        }
    }

    fn signalled(&mut self, signal: Signal) {
        match signal {
            Signal::Exited { of, code } => self.exited(of, code),
            Signal::Probed { of, finding } => self.probed(of, &finding),
        }
    }

    fn exited(&mut self, of: RunId, code: i32) {
        let Some(slot) = self.slots.slots.get_mut(of.slot).filter(|slot| slot.runs == of.run) else {
            return;
        };
        let State::Running { id, since, at } = slot.state.clone() else {
            return;
        };
        self.launched.remove(&of.slot);
        let falls_back = slot.container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        let log = self.site.logs(&self.pod).file(&slot.container.name, of.run);
        slot.state = State::Ended(Ended {
            id,
            code,
            reason: if code == 0 { "Completed" } else { "Error" },
            message: (falls_back && code != 0)
                .then(|| super::logs::last_words(&log))
                .flatten(),
            started: since,
            finished: self.site.clock.time(),
            at: Instant::now(),
            ran: at.elapsed(),
        });
    }

    fn probed(&mut self, of: RunId, finding: &Finding) {
        let Some(slot) = self.slots.slots.get_mut(of.slot).filter(|slot| slot.runs == of.run) else {
            return;
        };
        let name = slot.container.name.clone();
        match (finding.purpose, finding.verdict) {
            (Purpose::Readiness, Some(ready)) => slot.ready = ready,
            (Purpose::Startup, Some(true)) => slot.started = true,
            _ => {}
        }
        let purpose = finding.purpose.name();
        if let Some(failure) = &finding.failure {
            let message = format!("{purpose} probe failed: {failure}");
            self.site.say(&self.pod, Some(&name), true, "Unhealthy", message);
        }
        let fatal = finding.purpose != Purpose::Readiness && finding.verdict == Some(false);
        if let Some(launched) = self.launched.get(&of.slot).filter(|_| fatal) {
            let message = format!(
                "Container {name} failed {} probe, will be restarted",
                purpose.to_lowercase()
            );
            self.site.say(&self.pod, Some(&name), false, "Killing", message);
            let grace = self
                .pod
                .spec
                .as_ref()
                .and_then(|spec| spec.termination_grace_period_seconds)
                .unwrap_or(30);
            launched.stop(Duration::from_secs(u64::try_from(grace).unwrap_or_default()));
        }
    }

    /// Reports the status if it has changed.
    fn publish(&mut self) {
        let status = self.current(false);
        if self.status.as_ref() != Some(&status) {
            self.status = Some(status.clone());
            self.reports.send_replace(Some(status));
        }
    }

    fn current(&self, terminal: bool) -> PodStatus {
        let (init, containers) = self.slots.statuses();
        let runtime = Runtime {
            init,
            containers,
            host_ip: self.site.address.to_string(),
            pod_ip: Some(self.address.to_string()),
            started: self.started.clone(),
            terminal,
        };
        pod_status(&self.as_known(), runtime, &self.site.clock.time())
    }

    /// The pod with its last status: what is ours as we last had it, conditions of others as the API server has them.
    fn as_known(&self) -> Pod {
        let mut pod = Pod::clone(&self.pod);
        let Some(mut status) = self.status.clone() else {
            return pod;
        };
        let own = |of: &str| OWN_CONDITIONS.contains(&of);
        let others = pod
            .status
            .take()
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        let mut conditions = status.conditions.take().unwrap_or_default();
        conditions.retain(|known| own(&known.type_));
        conditions.extend(others.into_iter().filter(|known| !own(&known.type_)));
        status.conditions = Some(conditions);
        pod.status = Some(status);
        pod
    }

    /// Reports the end, removes the pod from the API server and its files from the node.
    async fn finish(mut self, desired: &mut watch::Receiver<Desired>) {
        self.launched.clear();
        let status = self.current(true);
        self.reports.send_replace(None);
        let removed = async {
            while report::status(&self.site.client, &self.pod, &status).await.is_err()
                || report::removal(&self.site.client, &self.pod).await.is_err()
            {
                tokio::time::sleep(RETRY).await;
            }
            // Who has a finalizer stays for a while.
            std::future::pending::<()>().await;
        };
        let gone = desired.wait_for(|desired| matches!(desired, Desired::Gone));
        tokio::select! {
            () = removed => {}
            // An error says that the kubelet is gone.
            _ = gone => {}
        }
        self.site.free_address(self.address);
        let (folder, logs) = (self.site.folders(&self.pod).pod, self.site.logs(&self.pod).0);
        for folder in [folder, logs] {
            if let Err(error) = tokio::fs::remove_dir_all(&folder).await
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(folder = %folder.display(), %error, pod = self.pod.name_any(), "left behind");
            }
        }
    }
}

fn readiness(status: Option<&PodStatus>) -> Option<&str> {
    let conditions = status?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|known| known.type_ == "Ready")
        .map(|known| known.status.as_str())
}

/// Writes the latest status to the API server, however long that takes; an older one is not written late.
async fn report_latest(site: Arc<Site>, pod: Arc<Pod>, mut latest: watch::Receiver<Option<PodStatus>>) {
    while latest.changed().await.is_ok() {
        loop {
            let Some(status) = latest.borrow_and_update().clone() else {
                break;
            };
            match tokio::time::timeout(REPORT, report::status(&site.client, &pod, &status)).await {
                Ok(Ok(_)) => break,
                Ok(Err(error)) => tracing::debug!(%error, pod = pod.name_any(), "status not reported yet"),
                Err(_) => tracing::debug!(pod = pod.name_any(), "status not reported yet"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}
