//! What a node is: its name and role, and the objects by which its kubelet makes it known.

use std::collections::BTreeMap;
use std::str::FromStr;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use serde_json::{Value, json};

use crate::surface::{GIT_VERSION, architecture};

/// A node of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// The name of the Node object.
    pub name: String,
    /// Whether it is an edge node: it gets the label `node-role.kubernetes.io/edge`.
    pub edge: bool,
    /// Further labels.
    pub labels: BTreeMap<String, String>,
}

impl NodeSpec {
    /// A node in the cloud.
    pub fn cloud(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            edge: false,
            labels: BTreeMap::new(),
        }
    }

    /// A node at the edge.
    pub fn edge(name: &str) -> Self {
        Self {
            edge: true,
            ..Self::cloud(name)
        }
    }

    /// Whether this is its Node as its kubelet makes it known, ready, and with nothing on it that others put there; what
    /// Kubernetes' own controllers add to every Node apart.
    pub fn is_as_made_known(&self, node: &Node) -> bool {
        let mut labels = node.metadata.labels.clone().unwrap_or_default();
        labels.retain(|key, _| !key.starts_with("beta.kubernetes.io/"));
        let spec = node.spec.clone().unwrap_or_default();
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        node.metadata.name.as_ref() == Some(&self.name)
            && node.metadata.deletion_timestamp.is_none()
            && node.metadata.finalizers.is_none()
            && labels == self.all_labels()
            && spec.taints.is_none()
            && spec.unschedulable != Some(true)
            && conditions
                .filter(|known| known.type_ == "Ready")
                .any(|known| known.status == "True")
    }

    fn all_labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.labels.clone();
        for (key, value) in [
            ("kubernetes.io/hostname", self.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", architecture()),
        ] {
            labels.insert(key.to_owned(), value.to_owned());
        }
        if self.edge {
            labels.insert("node-role.kubernetes.io/edge".to_owned(), String::new());
        }
        labels
    }
}

/// What is wrong with the description of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeSpecError {
    /// The name cannot be that of a Node.
    #[error("node name `{0}`: use lower case letters, digits and `-`, starting and ending with a letter or digit")]
    Name(String),
    /// The role is unknown.
    #[error("node `{name}` has the role `{role}`; the only role is `edge`, as in `{name}:edge`")]
    Role {
        /// The node.
        name: String,
        /// What was said.
        role: String,
    },
}

impl FromStr for NodeSpec {
    type Err = NodeSpecError;

    /// `NAME` or `NAME:edge`.
    fn from_str(text: &str) -> Result<Self, NodeSpecError> {
        let (name, role) = text
            .split_once(':')
            .map_or((text, None), |(name, role)| (name, Some(role)));
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let edges_ok = !name.starts_with('-') && !name.ends_with('-');
        if name.is_empty() || name.len() > 63 || !edges_ok || !name.chars().all(inner) {
            return Err(NodeSpecError::Name(name.to_owned()));
        }
        match role {
            None => Ok(Self::cloud(name)),
            Some("edge") => Ok(Self::edge(name)),
            Some(role) => Err(NodeSpecError::Role {
                name: name.to_owned(),
                role: role.to_owned(),
            }),
        }
    }
}

/// The Node object as its kubelet registers it.
pub(crate) fn node_object(spec: &NodeSpec, address: &str, now: &Time) -> Value {
    let capacity = json!({"cpu": "8", "memory": "16Gi", "ephemeral-storage": "64Gi", "pods": "110"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": spec.all_labels()},
        "spec": {},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": spec.name}],
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": conditions(None, now),
            "nodeInfo": {
                "architecture": architecture(),
                "bootID": "", "machineID": "", "systemUUID": "",
                "containerRuntimeVersion": "process://1",
                "kernelVersion": "", "osImage": "Skerry sandbox", "operatingSystem": "linux",
                "kubeProxyVersion": "", "kubeletVersion": GIT_VERSION,
            },
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        },
    })
}

/// The conditions that a kubelet in good health reports. A condition that was so before keeps the time of its change.
pub(crate) fn conditions(known: Option<&Node>, now: &Time) -> Vec<NodeCondition> {
    let known = known.and_then(|node| node.status.as_ref()?.conditions.as_ref());
    [
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    .into_iter()
    .map(|(of, status, reason, message)| {
        let before = known
            .into_iter()
            .flatten()
            .find(|known| known.type_ == of && known.status == status);
        NodeCondition {
            type_: of.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: before.map_or(Some(now.clone()), |before| before.last_transition_time.clone()),
        }
    })
    .collect()
}

/// The Lease by which a node's kubelet shows that it lives.
pub(crate) fn lease_object(node: &str, now: &MicroTime) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": super::keys::NODE_LEASES},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_with_or_without_its_role() {
        assert_eq!("cloud-1".parse(), Ok(NodeSpec::cloud("cloud-1")));
        assert_eq!("edge-1:edge".parse(), Ok(NodeSpec::edge("edge-1")));
        let role = "edge-1:cloud".parse::<NodeSpec>().unwrap_err();
        assert_eq!(
            role.to_string(),
            "node `edge-1` has the role `cloud`; the only role is `edge`, as in `edge-1:edge`"
        );
        for bad in ["", "-a", "a-", "Edge", "a_b", ":edge"] {
            assert!(matches!(bad.parse::<NodeSpec>(), Err(NodeSpecError::Name(_))), "{bad}");
        }
    }
}
