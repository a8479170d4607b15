//! What a change of one object asks to be looked at.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;

use super::cache::{Cache, Change, Stored};
use super::endpoints::SERVICE_NAME;
use super::meta::{Id, active, controller_of, has_labels, id, node_name, selects};
use super::scheduler;

/// What can be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A node: is it heard of, which taints does it have.
    Node(String),
    /// A Deployment.
    Deployment(Id),
    /// A ReplicaSet.
    ReplicaSet(Id),
    /// A pod: where does it run, may it stay there.
    Pod(Id),
    /// A Service's endpoints.
    Service(Id),
}

/// A kind whose changes are followed.
pub(crate) trait Touch: Stored {
    /// What to look at after a change, which is in the cache already.
    fn touched(cache: &Cache, change: &Change<Self>) -> Vec<Key>;
}

impl Touch for Deployment {
    fn touched(_: &Cache, change: &Change<Self>) -> Vec<Key> {
        change
            .new
            .iter()
            .map(|deployment| Key::Deployment(id(deployment.as_ref())))
            .collect()
    }
}

impl Touch for ReplicaSet {
    fn touched(cache: &Cache, change: &Change<Self>) -> Vec<Key> {
        let mut keys: Vec<Key> = change.new.iter().map(|set| Key::ReplicaSet(id(set.as_ref()))).collect();
        for set in change.each() {
            match controller_of(&set.metadata) {
                Some(owner) => keys.push(Key::Deployment((
                    set.namespace().unwrap_or_default(),
                    owner.name.clone(),
                ))),
                None => keys.extend(adopters(cache, set)),
            }
        }
        keys
    }
}

fn adopters(cache: &Cache, orphan: &ReplicaSet) -> Vec<Key> {
    let namespace = orphan.namespace().unwrap_or_default();
    let selecting = |deployment: &&std::sync::Arc<Deployment>| {
        deployment
            .spec
            .as_ref()
            .is_some_and(|spec| selects(&spec.selector, orphan.metadata.labels.as_ref()))
    };
    cache
        .deployments
        .within(&namespace)
        .filter(selecting)
        .map(|found| Key::Deployment(id(found.as_ref())))
        .collect()
}

impl Touch for Pod {
    fn touched(cache: &Cache, change: &Change<Self>) -> Vec<Key> {
        let mut keys: Vec<Key> = change.new.iter().map(|pod| Key::Pod(id(pod.as_ref()))).collect();
        for pod in change.each() {
            keys.extend(of_pod(cache, pod));
        }
        if change.new.as_ref().is_none_or(|pod| !active(pod)) {
            // Its place is free, or will be.
            keys.extend(waiting(cache));
        }
        keys
    }
}

fn of_pod(cache: &Cache, pod: &Pod) -> Vec<Key> {
    let namespace = pod.namespace().unwrap_or_default();
    let labels = pod.metadata.labels.as_ref();
    let mut keys = vec![];
    match controller_of(&pod.metadata) {
        Some(owner) => {
            let set = (namespace.clone(), owner.name.clone());
            // A Deployment that recreates waits for the pods of its old sets.
            let deployment = cache
                .replica_sets
                .get(&set)
                .and_then(|set| controller_of(&set.metadata));
            keys.extend(deployment.map(|owner| Key::Deployment((namespace.clone(), owner.name.clone()))));
            keys.push(Key::ReplicaSet(set));
        }
        None => keys.extend(
            cache
                .replica_sets
                .within(&namespace)
                .filter(|set| set.spec.as_ref().is_some_and(|spec| selects(&spec.selector, labels)))
                .map(|set| Key::ReplicaSet(id(set.as_ref()))),
        ),
    }
    let selected = |service: &&std::sync::Arc<Service>| {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_some_and(|selector| has_labels(Some(selector), labels))
    };
    keys.extend(
        cache
            .services
            .within(&namespace)
            .filter(selected)
            .map(|service| Key::Service(id(service.as_ref()))),
    );
    keys
}

/// The pods that wait for a node.
fn waiting(cache: &Cache) -> impl Iterator<Item = Key> {
    cache
        .pods
        .all()
        .filter(|pod| scheduler::waits(pod))
        .map(|pod| Key::Pod(id(pod.as_ref())))
}

impl Touch for Node {
    fn touched(cache: &Cache, change: &Change<Self>) -> Vec<Key> {
        let mut keys: Vec<Key> = waiting(cache).collect();
        for node in change.each() {
            let name = node.name_any();
            keys.extend(
                cache
                    .pods
                    .all()
                    .filter(|pod| node_name(pod) == Some(&name))
                    .map(|pod| Key::Pod(id(pod.as_ref()))),
            );
        }
        keys.extend(change.new.iter().map(|node| Key::Node(node.name_any())));
        keys
    }
}

impl Touch for Lease {
    fn touched(_: &Cache, change: &Change<Self>) -> Vec<Key> {
        let of_node = |lease: &&std::sync::Arc<Lease>| lease.namespace().as_deref() == Some(NODE_LEASES);
        change
            .each()
            .filter(of_node)
            .map(|lease| Key::Node(lease.name_any()))
            .collect()
    }
}

/// The namespace in which nodes renew their leases.
pub(crate) const NODE_LEASES: &str = "kube-node-lease";

impl Touch for Service {
    fn touched(_: &Cache, change: &Change<Self>) -> Vec<Key> {
        change
            .new
            .iter()
            .map(|service| Key::Service(id(service.as_ref())))
            .collect()
    }
}

impl Touch for EndpointSlice {
    fn touched(_: &Cache, change: &Change<Self>) -> Vec<Key> {
        let of = |slice: &std::sync::Arc<EndpointSlice>| {
            let service = slice.labels().get(SERVICE_NAME)?.clone();
            Some(Key::Service((slice.namespace().unwrap_or_default(), service)))
        };
        change.each().filter_map(of).collect()
    }
}
