//! What all pods of a node share: where they run, what they may look up, and the addresses that they get.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference, Pod, Secret};
use kube::{Api, Client, ResourceExt};
use tokio::sync::mpsc;

use super::super::effect::Announcement;
use super::super::meta::{Id, reference};
use super::compose::Machine;
use super::env::{Sources, references};
use super::images::Images;
use super::logs::LogFolder;
use super::volumes::Folders;
use crate::api::Clock;

/// The name under which a kubelet's events appear.
pub(super) const COMPONENT: &str = "kubelet";

/// A node, as its pods' workers see it.
pub(super) struct Site {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) images: Images,
    /// The node's address. Its pods have the others of the same /24.
    pub(super) address: Ipv4Addr,
    /// The address of its local controller, as pods get it.
    pub(super) local_controller: Option<String>,
    /// The first wait of the restart back-off.
    pub(super) back_off: Duration,
    /// The folder that holds pods and logs.
    pub(super) folder: PathBuf,
    /// The folder that stands for the node's `/`.
    pub(super) host: PathBuf,
    pub(super) machine: Machine,
    pub(super) events: mpsc::UnboundedSender<Announcement>,
    pub(super) known: Mutex<Known>,
}

/// What the node has learned and keeps, also while it is cut off.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The cluster IPs of the Services.
    pub(super) services: BTreeMap<Id, String>,
    secrets: BTreeMap<Id, Secret>,
    config_maps: BTreeMap<Id, ConfigMap>,
    /// The last byte of the addresses in use.
    addresses: BTreeSet<u8>,
}

impl Site {
    pub(super) fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An address for a pod; the node's own where the pod asks for its network, or where there is no other.
    pub(super) fn take_address(&self, pod: &Pod) -> Ipv4Addr {
        if pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default() {
            return self.address;
        }
        let [a, b, c, own] = self.address.octets();
        let free = self.known(|known| {
            let free = (2..=254).find(|last| *last != own && !known.addresses.contains(last));
            known.addresses.extend(free);
            free
        });
        free.map_or(self.address, |last| Ipv4Addr::new(a, b, c, last))
    }

    pub(super) fn free_address(&self, address: Ipv4Addr) {
        let [.., last] = address.octets();
        self.known(|known| known.addresses.remove(&last));
    }

    pub(super) fn folders(&self, pod: &Pod) -> Folders {
        Folders {
            pod: self.folder.join("pods").join(pod.uid().unwrap_or_default()),
            host: self.host.clone(),
        }
    }

    pub(super) fn logs(&self, pod: &Pod) -> LogFolder {
        let (namespace, name, uid) = (
            pod.namespace().unwrap_or_default(),
            pod.name_any(),
            pod.uid().unwrap_or_default(),
        );
        LogFolder(self.folder.join("logs").join(format!("{namespace}_{name}_{uid}")))
    }

    /// The Secrets and `ConfigMaps` that a pod names; those last seen where the API server cannot be reached.
    pub(super) async fn sources(&self, pod: &Pod) -> Sources {
        let namespace = pod.namespace().unwrap_or_default();
        let (secrets, maps) = references(pod);
        let mut sources = Sources::default();
        for name in secrets {
            let fetched = within(Api::<Secret>::namespaced(self.client.clone(), &namespace).get_opt(&name)).await;
            let id = (namespace.clone(), name.clone());
            let found = self.known(|known| remember(&mut known.secrets, id, fetched));
            sources.secrets.extend(found.map(|found| (name, found)));
        }
        for name in maps {
            let fetched = within(Api::<ConfigMap>::namespaced(self.client.clone(), &namespace).get_opt(&name)).await;
            let id = (namespace.clone(), name.clone());
            let found = self.known(|known| remember(&mut known.config_maps, id, fetched));
            sources.config_maps.extend(found.map(|found| (name, found)));
        }
        sources
    }

    /// Records an event about a pod, or about one of its containers.
    pub(super) fn say(&self, pod: &Pod, container: Option<&str>, warning: bool, reason: &'static str, message: String) {
        let field_path = container.map(|name| format!("spec.containers{{{name}}}"));
        let about = ObjectReference {
            field_path,
            ..reference(pod)
        };
        // The recorder ends with the node.
        let _ = self.events.send(Announcement {
            about,
            component: COMPONENT,
            warning,
            reason,
            message,
        });
    }
}

/// How long the API server is asked for what a pod names before what was last seen has to do.
const FETCH: Duration = Duration::from_secs(5);

async fn within<K>(fetch: impl Future<Output = Result<K, kube::Error>>) -> Result<K, FetchError> {
    Ok(tokio::time::timeout(FETCH, fetch)
        .await
        .map_err(|_| FetchError::Timeout)??)
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0}")]
    Server(#[from] kube::Error),
    #[error("no answer within {} s", FETCH.as_secs())]
    Timeout,
}

fn remember<K: Clone>(known: &mut BTreeMap<Id, K>, id: Id, fetched: Result<Option<K>, FetchError>) -> Option<K> {
    match fetched {
        Ok(Some(found)) => {
            known.insert(id, found.clone());
            Some(found)
        }
        Ok(None) => {
            known.remove(&id);
            None
        }
        Err(error) => {
            tracing::debug!(%error, name = id.1, "taken as last seen");
            known.get(&id).cloned()
        }
    }
}
