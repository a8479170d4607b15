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

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus, Service};
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::effect::Announcement;
use super::events::Recorder;
use super::heartbeat;
use super::meta::{Id, finished, id, uid};
use super::node::NodeSpec;
use super::watching::{watch_all, watch_fields};
use crate::api::{Clock, LogRequest, LogSource, LogStream};
use compose::Machine;
pub use images::{Image, Images, ImagesError};
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

/// The kubelet of one node. Its processes end when this is dropped.
pub struct Kubelet {
    site: Arc<Site>,
    pods: Pods,
    tasks: JoinSet<()>,
}

type Pods = Arc<Mutex<BTreeMap<Id, Tended>>>;

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

    /// The logs of the node's pods, as the API server asks for them. After the kubelet's end there are none.
    pub fn log_source(&self) -> LogSource {
        let (site, pods) = (self.site.clone(), self.pods.clone());
        Arc::new(move |request| open_log(site.clone(), pods.clone(), request).boxed())
    }

    /// Kills all processes and waits until the kubelet has stopped.
    pub async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Opens a container's log. The errors are Kubernetes'.
async fn open_log(site: Arc<Site>, pods: Pods, request: LogRequest) -> Result<LogStream, String> {
    let (pod, container) = (request.pod.clone(), request.container.clone());
    let find = {
        let id = (request.namespace.clone(), pod.clone());
        move || {
            pods.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(&id)
                .map(|tended| tended.pod.clone())
        }
    };
    let found = find().ok_or_else(|| format!("pods \"{pod}\" not found"))?;
    let running = {
        let (container, find) = (container.clone(), find.clone());
        move || find().is_some_and(|pod| runs(&pod, &container))
    };
    let log = site.logs(&found).read(&request, site.clock.now(), running).await;
    log.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if request.previous => {
            format!("previous terminated container \"{container}\" in pod \"{pod}\" not found")
        }
        io::ErrorKind::NotFound => waiting_to_start(find().as_deref(), &container, &pod),
        _ => error.to_string(),
    })
}

/// Why a container has no log yet.
fn waiting_to_start(pod: Option<&Pod>, container: &str, name: &str) -> String {
    let statuses = pod.and_then(|pod| pod.status.as_ref()).into_iter().flat_map(statuses);
    let mut of = statuses.filter(|status| status.name == container);
    let reason = of.find_map(|status| status.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    let why = match reason {
        Some("ErrImagePull") => ": image can't be pulled",
        Some("ImagePullBackOff") => ": trying and failing to pull image",
        Some(reason) => &format!(": {reason}"),
        None => "",
    };
    format!("container \"{container}\" in pod \"{name}\" is waiting to start{why}")
}

fn statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let containers = status.container_statuses.iter().flatten();
    containers.chain(status.init_container_statuses.iter().flatten())
}

/// Whether a container runs, as far as the API server knows.
fn runs(pod: &Pod, container: &str) -> bool {
    let Some(status) = &pod.status else { return true };
    statuses(status)
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
        let alive = async {
            heartbeat::beat(&client, &clock, &node).await?;
            heartbeat::contradict(&client, &clock, &node).await
        };
        let beat = tokio::time::timeout(heartbeat::PERIOD, alive).await;
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
async fn tend(site: Arc<Site>, node: String, pods: Pods) {
    let mut events = watch_fields(Api::<Pod>::all(site.client.clone()), &format!("spec.nodeName={node}"));
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
