//! `EdgeNode` resources: whose certificates are revoked, and what was issued.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, Patch, PatchParams},
    core::DynamicObject,
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};
use skerry_crds::{
    names,
    skerry::v1alpha1::{Certificate, EdgeNode, EdgeNodeStatus},
};
use skerry_edge::identity::{NodeCertificate, Revocations};

use super::{IdentityError, api};
use crate::hub::Hub;

/// The resources of one namespace, read as JSON: one that does not parse must not hide the others.
pub(super) fn resources(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<EdgeNode>(&()))
}

/// For how many seconds one watch goes on, which kube takes for dead when it brings nothing for five seconds longer: a
/// connection of which half is gone brings neither news nor an error, and who is revoked has to go.
const WATCH: u32 = 5;

/// Keeps the hub told of what is revoked. While the watch is broken, what was known stays.
pub(super) async fn watch(client: Client, namespace: String, hub: Hub) {
    let config = watcher::Config::default().timeout(WATCH);
    let events = watcher(resources(&client, &namespace), config).default_backoff();
    let mut events = std::pin::pin!(events);
    let (mut known, mut listed) = (Known::default(), None);
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed = Some(Known::default()),
            Ok(watcher::Event::InitApply(node)) => listed.get_or_insert_default().set(&node),
            Ok(watcher::Event::InitDone) => {
                known = listed.take().unwrap_or_default();
                known.tell(&hub);
            }
            Ok(watcher::Event::Apply(node)) => {
                known.set(&node);
                known.tell(&hub);
            }
            Ok(watcher::Event::Delete(node)) => {
                known.revoked.set(&node.name_any(), None);
                known.joined.remove(&node.name_any());
                known.tell(&hub);
            }
            Err(error) => {
                tracing::warn!(%error, "the watch of EdgeNodes failed; what is known stays, and it is tried again");
            }
        }
    }
}

/// What is known of all nodes.
#[derive(Default)]
struct Known {
    revoked: Revocations,
    joined: BTreeSet<String>,
}

impl Known {
    fn set(&mut self, node: &DynamicObject) {
        self.revoked.set(&node.name_any(), revoked_before(node));
        self.joined.insert(node.name_any());
    }

    fn tell(&self, hub: &Hub) {
        hub.set_joined(self.joined.clone());
        hub.revoke(self.revoked.clone());
    }
}

/// What is revoked of one node, as the API server has it now.
pub(super) async fn revocations(client: &Client, namespace: &str, node: &str) -> Result<Revocations, IdentityError> {
    let found = resources(client, namespace).get_opt(node).await;
    let found = found.map_err(api("read the EdgeNode"))?;
    let mut revocations = Revocations::default();
    revocations.set(node, found.as_ref().and_then(revoked_before));
    Ok(revocations)
}

/// The time before which certificates are revoked: all of them, where what is written there is no time.
fn revoked_before(node: &DynamicObject) -> Option<Timestamp> {
    let before = node
        .data
        .get("spec")?
        .get("revokedBefore")
        .filter(|before| !before.is_null())?;
    let time = before.as_str().and_then(|before| before.parse().ok());
    if time.is_none() {
        tracing::error!(node = node.name_any(), %before, "spec.revokedBefore is no time: all of the node's certificates are refused");
    }
    Some(time.unwrap_or(Timestamp::MAX))
}

/// Notes what was issued. Makes the resource where there is none.
pub(super) async fn certified(
    client: &Client,
    namespace: &str,
    certificate: &NodeCertificate,
) -> Result<(), IdentityError> {
    let NodeCertificate { node, issued, expires } = certificate;
    let (nodes, how) = (
        resources(client, namespace),
        PatchParams::apply(names::MANAGER_EDGE).force(),
    );
    let written = api("write the EdgeNode");
    let resource = ApiResource::erase::<EdgeNode>(&());
    let object = |rest: Value| {
        let mut object = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": node},
        });
        if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
            object.extend(rest);
        }
        Patch::Apply(object)
    };
    nodes
        .patch(node, &how, &object(json!({"spec": {}})))
        .await
        .map_err(&written)?;
    let status = EdgeNodeStatus {
        certificate: Some(Certificate {
            issued: Time(*issued),
            expires: Time(*expires),
        }),
        session: None,
    };
    nodes
        .patch_status(node, &how, &object(json!({"status": status})))
        .await
        .map_err(written)?;
    Ok(())
}
