//! Why a node cannot take a pod.

use k8s_openapi::api::core::v1::{Container, ContainerPort, Node, Pod};

use super::super::taints;
use super::{affinity, resources};

/// One reason against a node.
pub(super) struct Reason {
    pub(super) text: String,
    /// Whether the node could take the pod if others left.
    pub(super) evictable: bool,
}

impl Reason {
    fn lasting(text: &str) -> Vec<Self> {
        vec![Self {
            text: text.to_owned(),
            evictable: false,
        }]
    }

    fn evictable(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            evictable: true,
        }
    }
}

/// The reasons of the first filter that a node fails; none if the pod may go there. `there` are the node's pods.
pub(super) fn refuse(pod: &Pod, node: &Node, there: &[&Pod]) -> Vec<Reason> {
    let untolerated = ["NoSchedule", "NoExecute"]
        .into_iter()
        .flat_map(|effect| taints::of(node, effect))
        .any(|taint| !taints::tolerated(pod, taint));
    let unschedulable = node
        .spec
        .as_ref()
        .and_then(|spec| spec.unschedulable)
        .unwrap_or_default();
    if unschedulable && !tolerates_cordon(pod) {
        return Reason::lasting("node(s) were unschedulable");
    }
    if untolerated {
        return Reason::lasting("node(s) had untolerated taint(s)");
    }
    if !ready(node) {
        return Reason::lasting("node(s) were not ready");
    }
    if !affinity::fits(pod, node) {
        return Reason::lasting("node(s) didn't match Pod's node affinity/selector");
    }
    if host_ports(pod).any(|wanted| {
        there
            .iter()
            .flat_map(|other| host_ports(other))
            .any(|taken| clash(wanted, taken))
    }) {
        return vec![Reason::evictable(
            "node(s) didn't have free ports for the requested pod ports",
        )];
    }
    resources::missing(pod, node, there)
        .into_iter()
        .map(|what| Reason::evictable(&what))
        .collect()
}

fn tolerates_cordon(pod: &Pod) -> bool {
    let cordon = k8s_openapi::api::core::v1::Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Default::default()
    };
    taints::tolerated(pod, &cordon)
}

/// A node that says nothing of its condition is taken as ready: it may be a stand-in without a kubelet.
fn ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .find(|known| known.type_ == "Ready")
        .is_none_or(|known| known.status == "True")
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let containers: &[Container] = pod
        .spec
        .as_ref()
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten())
        .filter(|port| port.host_port.is_some_and(|port| port > 0))
}

fn clash(a: &ContainerPort, b: &ContainerPort) -> bool {
    let everywhere = |ip: &Option<String>| ip.as_deref().is_none_or(|ip| ip.is_empty() || ip == "0.0.0.0");
    let protocol = |port: &ContainerPort| port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    a.host_port == b.host_port
        && protocol(a) == protocol(b)
        && (a.host_ip == b.host_ip || everywhere(&a.host_ip) || everywhere(&b.host_ip))
}
