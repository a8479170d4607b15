//! `EdgeNode` resources: what is revoked of one node, and what was issued to it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Value, json};
use skerry_crds::{
    names,
    skerry::v1alpha1::{Certificate, EdgeNode, EdgeNodeStatus},
};
use skerry_edge::identity::{NodeCertificate, Revocations};

use super::{IdentityError, api};

/// The resources of one namespace, read as JSON: one that does not parse must not hide the others.
pub(super) fn resources(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<EdgeNode>(&()))
}

/// What is revoked of one node, as the API server has it now.
pub(super) async fn revocations(client: &Client, namespace: &str, node: &str) -> Result<Revocations, IdentityError> {
    let found = resources(client, namespace).get_opt(node).await;
    let found = found.map_err(api("read the EdgeNode"))?;
    Ok(found.as_ref().map_or_else(Revocations::default, revoked))
}

/// What is revoked of this node.
fn revoked(node: &DynamicObject) -> Revocations {
    let mut revocations = Revocations::default();
    revocations.set(&node.name_any(), revoked_before(node));
    revocations
}

/// The time before which certificates are revoked: all of them, where what is written there is no time.
pub(super) fn revoked_before(node: &DynamicObject) -> Option<Timestamp> {
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

/// Notes what is to be issued, before the node has it: whoever revokes after this goes by it. Makes the resource where there is
/// none. What was revoked until then.
pub(super) async fn certified(
    client: &Client,
    namespace: &str,
    certificate: &NodeCertificate,
) -> Result<Revocations, IdentityError> {
    let NodeCertificate {
        node, issued, expires, ..
    } = certificate;
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
    let present = nodes
        .patch(node, &how, &object(json!({"spec": {}})))
        .await
        .map_err(&written)?;
    // Another manager, whose clock is ahead, may have issued one that is good for longer: whoever revokes goes by the latest.
    let noted = |field: &str| -> Option<Timestamp> {
        let time = present.data.pointer(&format!("/status/certificate/{field}"))?;
        time.as_str()?.parse().ok()
    };
    let ahead = noted("issued").filter(|ahead| ahead > issued && noted("expires") > Some(*issued));
    let status = EdgeNodeStatus {
        certificate: Some(Certificate {
            issued: Time(ahead.unwrap_or(*issued)),
            expires: Time(*expires),
        }),
        session: None,
    };
    let noted = nodes
        .patch_status(node, &how, &object(json!({"status": status})))
        .await
        .map_err(written)?;
    Ok(revoked(&noted))
}
