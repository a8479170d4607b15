//! The kubelet of one node: runs the pods that are assigned to it as local processes.
//!
//! ```text
//! watch of the node's pods ──▶ one worker per pod ──▶ slots (what is started when) ──▶ processes, probes, logs
//!                                      └──▶ status, events
//! ```
//!
//! What a process cannot have as a container has it (cluster DNS, mounts, a network of its own) is made up for in its
//! environment, see [`rewrite`]; `docs/sandbox.md` tells users. It never runs an image, never isolates, never enforces
//! limits, and runs no lifecycle hooks.

mod compose;
mod env;
mod expand;
mod images;
mod launch;
mod logs;
mod probe;
mod process;
mod rewrite;
mod site;
mod slots;
mod start;
mod volumes;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::effect::Announcement;
use super::events::Recorder;
use super::heartbeat;
use super::meta::{Id, finished, id, uid};
use super::node::NodeSpec;
use super::watching::{watch_all, watch_some};
use crate::api::Clock;
use compose::Machine;
pub use images::{Image, Images, ImagesError};
pub use logs::LogOptions;
use site::{Known, Site};
use worker::{Desired, Kill, Worker};

/// How a kubelet is set up.
#[derive(Debug, Clone)]
pub struct KubeletOptions {
    /// Its node.
    pub node: NodeSpec,
    /// The node's address. Pods get other addresses of the same /24, so this should be a loopback address.
    pub address: Ipv4Addr,
    /// Which command stands for which image.
    pub images: Images,
    /// The node's folder: `pods/` and `logs/` are the kubelet's, `host/` stands for the node's `/` in `hostPath` volumes.
    pub folder: PathBuf,
    /// The value that `LC_SERVER` gets in pods that have it: the address of the node's local controller.
    pub local_controller: Option<String>,
    /// The first wait before a container that fails is started again; Kubernetes waits 10 s.
    pub back_off: Duration,
    /// A variable, name and value, that every process carries, so that it can be found again.
    pub mark: (String, String),
}

/// Why a log cannot be shown; the texts are those of Kubernetes.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The pod does not run here.
    #[error("pods \"{0}\" not found")]
    NoPod(String),
    /// The pod has several containers and none was named.
    #[error("a container name must be specified for pod {pod}, choose one of: [{}]", containers.join(" "))]
    NoContainer {
        /// The pod.
        pod: String,
        /// Its containers.
        containers: Vec<String>,
    },
    /// The pod has no such container.
    #[error("container {container} is not valid for pod {pod}")]
    UnknownContainer {
        /// The pod.
        pod: String,
        /// The container.
        container: String,
    },
    /// The container has not run, or not so often.
    #[error("container \"{container}\" in pod \"{pod}\" is waiting to start, or has no such run: {error}")]
    NoRun {
        /// The pod.
        pod: String,
        /// The container.
        container: String,
        /// What was looked for.
        error: io::Error,
    },
}

/// The kubelet of one node. Its processes end when this is dropped.
pub struct Kubelet {
    site: Arc<Site>,
    pods: Arc<Mutex<BTreeMap<Id, Tended>>>,
    tasks: JoinSet<()>,
}

/// A pod that a worker looks after.
struct Tended {
    pod: Arc<Pod>,
    desired: watch::Sender<Desired>,
    kills: mpsc::UnboundedSender<Kill>,
}

impl Kubelet {
    /// Makes the node known and runs its pods.
    pub async fn spawn(client: Client, clock: Clock, options: KubeletOptions) -> Result<Self, kube::Error> {
        let KubeletOptions {
            node,
            address,
            images,
            folder,
            local_controller,
            back_off,
            mark,
        } = options;
        heartbeat::register(&client, &clock, &node, &address.to_string()).await?;
        let (events, announcements) = mpsc::unbounded_channel();
        let site = Arc::new(Site {
            client: client.clone(),
            clock,
            images,
            address,
            local_controller,
            back_off,
            host: folder.join("host"),
            folder,
            machine: Machine {
                path: std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned()),
                mark,
            },
            events,
            known: Mutex::new(Known::default()),
        });
        let pods = Arc::new(Mutex::new(BTreeMap::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(record(Recorder::new(client.clone(), clock), announcements));
        tasks.spawn(beat(client, clock, node.name.clone()));
        tasks.spawn(learn_services(site.clone()));
        tasks.spawn(tend(site.clone(), node.name, pods.clone()));
        Ok(Self { site, pods, tasks })
    }

    /// Kills the processes of a pod's container, or of all, as if they had crashed. Whether there is such a pod.
    pub fn kill(&self, namespace: &str, pod: &str, container: Option<&str>) -> bool {
        let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let id = (namespace.to_owned(), pod.to_owned());
        let kill = Kill {
            container: container.map(str::to_owned),
        };
        pods.get(&id).is_some_and(|tended| tended.kills.send(kill).is_ok())
    }

    /// A container's log.
    pub async fn logs(
        &self,
        namespace: &str,
        pod: &str,
        options: &LogOptions,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, LogError> {
        let id = (namespace.to_owned(), pod.to_owned());
        let found = self
            .pods
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&id)
            .map(|tended| tended.pod.clone());
        let found = found.ok_or_else(|| LogError::NoPod(pod.to_owned()))?;
        let container = container(&found, options.container.as_deref())?;
        let (pods, name) = (self.pods.clone(), container.clone());
        let running = move || {
            let pods = pods.lock().unwrap_or_else(PoisonError::into_inner);
            pods.get(&id).is_some_and(|tended| runs(&tended.pod, &name))
        };
        let log = self
            .site
            .logs(&found)
            .read(&container, options, self.site.clock.now(), running)
            .await;
        log.map_err(|error| LogError::NoRun {
            pod: pod.to_owned(),
            container,
            error,
        })
    }

    /// Kills all processes and waits until the kubelet has stopped.
    pub async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }
}

/// The container that is meant.
fn container(pod: &Pod, named: Option<&str>) -> Result<String, LogError> {
    let spec = pod.spec.clone().unwrap_or_default();
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    match named.filter(|named| !named.is_empty()) {
        Some(named) if all.clone().any(|container| container.name == named) => Ok(named.to_owned()),
        Some(named) => Err(LogError::UnknownContainer {
            pod: pod.name_any(),
            container: named.to_owned(),
        }),
        None if spec.containers.len() == 1 => Ok(spec.containers.into_iter().map(|only| only.name).collect()),
        None => {
            let containers = all.map(|container| container.name.clone()).collect();
            Err(LogError::NoContainer {
                pod: pod.name_any(),
                containers,
            })
        }
    }
}

/// Whether a container runs, as far as the API server knows.
fn runs(pod: &Pod, container: &str) -> bool {
    let Some(status) = &pod.status else { return true };
    let mut statuses = status
        .container_statuses
        .iter()
        .flatten()
        .chain(status.init_container_statuses.iter().flatten());
    statuses
        .find(|status| status.name == container)
        .is_none_or(super::pod_status::is_running)
}

async fn record(mut recorder: Recorder, mut announcements: mpsc::UnboundedReceiver<Announcement>) {
    while let Some(announcement) = announcements.recv().await {
        recorder.record(&announcement).await;
    }
}

async fn beat(client: Client, clock: Clock, node: String) {
    loop {
        tokio::time::sleep(heartbeat::PERIOD).await;
        let beat = tokio::time::timeout(heartbeat::PERIOD, heartbeat::beat(&client, &clock, &node)).await;
        if !matches!(beat, Ok(Ok(()))) {
            tracing::debug!(node, "no sign of life given");
        }
    }
}

/// Keeps the cluster IPs of all Services.
async fn learn_services(site: Arc<Site>) {
    let services = Api::<Service>::all(site.client.clone());
    let mut events = watch_all(services);
    while let Some(event) = events.next().await {
        match event {
            Event::Apply(service) | Event::InitApply(service) => {
                let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.clone());
                match ip.filter(|ip| !ip.is_empty() && ip != "None") {
                    Some(ip) => drop(site.known(|known| known.services.insert(id(&service), ip))),
                    None => drop(site.known(|known| known.services.remove(&id(&service)))),
                }
            }
            Event::Delete(service) => drop(site.known(|known| known.services.remove(&id(&service)))),
            Event::Init | Event::InitDone => {}
        }
    }
}

/// Follows the node's pods and gives each a worker.
async fn tend(site: Arc<Site>, node: String, pods: Arc<Mutex<BTreeMap<Id, Tended>>>) {
    let config = Config::default().fields(&format!("spec.nodeName={node}"));
    let mut events = watch_some(Api::<Pod>::all(site.client.clone()), config);
    let mut workers = JoinSet::new();
    let mut known = super::cache::Table::default();
    loop {
        tokio::select! {
            Some(event) = events.next() => {
                for change in known.watched(event) {
                    let mut pods = pods.lock().unwrap_or_else(PoisonError::into_inner);
                    assign(&site, &mut pods, &mut workers, change);
                }
            }
            Some(_) = workers.join_next() => {}
        }
    }
}

/// Passes a change of a pod on to its worker; a new pod gets one.
fn assign(
    site: &Arc<Site>,
    pods: &mut BTreeMap<Id, Tended>,
    workers: &mut JoinSet<()>,
    change: super::cache::Change<Pod>,
) {
    let Some(now) = change.new else {
        for id in change.old.iter().map(|old| id(old.as_ref())) {
            // The sender goes too, but only after the worker was told.
            pods.remove(&id)
                .map(|tended| tended.desired.send_replace(Desired::Gone));
        }
        return;
    };
    let key = id(now.as_ref());
    if let Some(tended) = pods
        .get_mut(&key)
        .filter(|tended| uid(tended.pod.as_ref()) == uid(now.as_ref()))
    {
        tended.pod = now.clone();
        tended.desired.send_replace(Desired::Pod(now));
        return;
    }
    if let Some(former) = pods.remove(&key) {
        former.desired.send_replace(Desired::Gone);
    }
    if finished(&now) {
        return;
    }
    let (desired, seen) = watch::channel(Desired::Pod(now.clone()));
    let (kills, orders) = mpsc::unbounded_channel();
    let worker = Worker::new(site.clone(), now.clone());
    workers.spawn(worker.run(seen, orders));
    pods.insert(
        key,
        Tended {
            pod: now,
            desired,
            kills,
        },
    );
}
