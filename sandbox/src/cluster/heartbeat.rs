//! How a kubelet makes its node known and keeps it alive: the Node object once, its Lease every ten seconds, and its
//! conditions again when somebody else has declared it silent.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Resource;
use kube::{Api, Client};
use serde_json::json;

use super::clock::Times;
use super::keys::NODE_LEASES;
use super::node::{NodeSpec, conditions, lease_object, node_object};
use crate::api::Clock;

/// How often a node renews its Lease.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);

/// Makes a node known; one that is known is taken over.
pub(crate) async fn register(
    client: &Client,
    clock: &Clock,
    spec: &NodeSpec,
    address: &str,
) -> Result<(), kube::Error> {
    let mut namespace = Namespace::default();
    namespace.meta_mut().name = Some(NODE_LEASES.to_owned());
    exists(
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await,
    )?;
    let object = node_object(spec, address, &clock.time());
    let node: Node = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    let nodes = Api::<Node>::all(client.clone());
    let known = nodes.get_opt(&spec.name).await?;
    if !known.is_some_and(|known| spec.is_as_made_known(&known)) {
        exists(nodes.create(&PostParams::default(), &node).await)?;
        let status = json!({"status": object.get("status")});
        nodes
            .patch_status(&spec.name, &PatchParams::default(), &Patch::Strategic(&status))
            .await?;
    }
    beat(client, clock, &spec.name).await
}

/// Renews a node's Lease.
pub(crate) async fn beat(client: &Client, clock: &Clock, node: &str) -> Result<(), kube::Error> {
    let leases = Api::<Lease>::namespaced(client.clone(), NODE_LEASES);
    let now = clock.micro();
    let renewed = json!({"spec": {"renewTime": now, "holderIdentity": node}});
    match leases
        .patch(node, &PatchParams::default(), &Patch::Merge(&renewed))
        .await
    {
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            let lease = serde_json::from_value(lease_object(node, &now)).map_err(kube::Error::SerdeError)?;
            exists(leases.create(&PostParams::default(), &lease).await)?;
        }
        other => drop(other?),
    }
    Ok(())
}

/// Says that a node is ready where it is not known as such. A node that was deleted stays so.
pub(crate) async fn contradict(client: &Client, clock: &Clock, node: &str) -> Result<(), kube::Error> {
    let nodes = Api::<Node>::all(client.clone());
    let Some(known) = nodes.get_opt(node).await? else {
        return Ok(());
    };
    let conditions_known = known.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions_known
        .into_iter()
        .flatten()
        .any(|known| known.type_ == "Ready" && known.status == "True");
    if !ready {
        let status = json!({"status": {"conditions": conditions(Some(&known), &clock.time())}});
        nodes
            .patch_status(node, &PatchParams::default(), &Patch::Strategic(&status))
            .await?;
    }
    Ok(())
}

fn exists<K>(created: Result<K, kube::Error>) -> Result<(), kube::Error> {
    match created {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map(|_| ()),
    }
}
