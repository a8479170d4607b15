//! What operators do about nodes, with their own rights: invite one, turn one away, see all.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Secret},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::json;
use skerry_crds::{
    names::identity::AUTHORITY,
    skerry::v1alpha1::{EdgeNode, EdgeNodeSpec, EdgeNodeStatus, Session},
};
use skerry_edge::{
    identity::{AuthorityError, JoinToken, TokenRecord},
    object::is_dns_name,
};

use super::{IdentityError, api, authority::from_secret, nodes, sessions::stands, tokens::Tokens};
use crate::{hub::NodeStatus, lease, run::LEASE};

/// The port of `/nodes` in the chart's pods.
const ADMIN: u16 = 9090;

/// The field manager that revokes.
const OPERATOR: &str = "skerry-nodes";

/// A node as operators see it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// When its newest certificate was issued, and until when that is valid.
    pub certificate: Option<(Timestamp, Timestamp)>,
    /// Its session, as of half a minute ago; nothing where it has had none.
    pub session: Option<Session>,
    /// Certificates from before this time are revoked.
    pub revoked_before: Option<Timestamp>,
}

/// Makes a join token for `node`, good for `lifetime`; forgets those that have expired. Needs to read the authority's
/// Secret and to list, make and delete Secrets in the manager's namespace.
pub async fn invite(
    client: &Client,
    namespace: &str,
    node: &str,
    lifetime: SignedDuration,
) -> Result<JoinToken, IdentityError> {
    check(node)?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = secrets
        .get(AUTHORITY)
        .await
        .map_err(api("read the authority's Secret"))?;
    let now = Timestamp::now();
    let token = JoinToken::generate(from_secret(&secret)?.fingerprint());
    let tokens = Tokens::new(client, namespace);
    // Of a node that was turned away this very second, too.
    let revoked = nodes::revocations(client, namespace, node).await?.before(node);
    let created = revoked.map_or(now, |before| before.max(now));
    let expires = now.saturating_add(lifetime).unwrap_or(Timestamp::MAX);
    let record = TokenRecord::new(&token, node, created, expires);
    tokens.keep(&token, &record).await?;
    tokens.forget_expired(now).await?;
    Ok(token)
}

/// Revokes all certificates and join tokens that `node` has. Needs to read and write `EdgeNode`s.
pub async fn revoke(client: &Client, namespace: &str, node: &str) -> Result<Timestamp, IdentityError> {
    check(node)?;
    let nodes = nodes::resources(client, namespace);
    let known = nodes.get_opt(node).await.map_err(api("read the EdgeNode"))?;
    let mut before = end_of(known.as_ref());
    loop {
        let object = json!({
            "apiVersion": "skerry.io/v1alpha1",
            "kind": "EdgeNode",
            "metadata": {"name": node},
            "spec": EdgeNodeSpec { revoked_before: Some(Time(before)) },
        });
        let how = PatchParams::apply(OPERATOR).force();
        let written = nodes.patch(node, &how, &Patch::Apply(object)).await;
        let written = written.map_err(api("write the EdgeNode"))?;
        // A manager notes what it issues before it hands that out, and looks then at what is revoked. Where it noted it since this
        // was read, it may be of a later time than that; where it notes it after this, it does not hand it out.
        match time(&written, ISSUED) {
            Some(issued) if issued >= before && before < Timestamp::MAX => before = end_of(Some(&written)),
            _ => return Ok(before),
        }
    }
}

const ISSUED: &str = "/status/certificate/issued";

/// A time after all that a node got until now.
fn end_of(known: Option<&DynamicObject>) -> Timestamp {
    let known = |pointer| known.and_then(|known| time(known, pointer));
    // Certificates have the manager's time, and the clock here may be behind it.
    let now = Timestamp::now();
    let latest = known(ISSUED).map_or(now, |issued| now.max(issued));
    // They tell the second in which they were issued: that of now counts as before.
    let after = Timestamp::from_second(latest.as_second().saturating_add(1)).unwrap_or(Timestamp::MAX);
    // What is revoked stays so.
    known("/spec/revokedBefore").map_or(after, |earlier| after.max(earlier))
}

fn time(node: &DynamicObject, pointer: &str) -> Option<Timestamp> {
    node.data.pointer(pointer)?.as_str()?.parse().ok()
}

fn check(node: &str) -> Result<(), AuthorityError> {
    if is_dns_name(node) {
        Ok(())
    } else {
        Err(AuthorityError::Name(node.chars().take(64).collect()))
    }
}

/// What the manager that leads knows of nodes, if it is a pod of the chart's. Needs to read the Lease and to `get` the
/// `proxy` of pods, both in the manager's namespace.
pub async fn ask_leader(client: &Client, namespace: &str) -> Result<Vec<NodeStatus>, IdentityError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = leases.get(LEASE).await.map_err(api("read the manager's Lease"))?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity);
    let pod = holder
        .as_deref()
        .and_then(lease::claimant)
        .ok_or(IdentityError::NoLeader)?;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{ADMIN}/proxy/nodes");
    let request = http::Request::get(path).body(vec![]);
    let asked = api("ask the manager's pod");
    let request = request.map_err(|error| asked(kube::Error::HttpError(error)))?;
    client.request(request).await.map_err(asked)
}

/// Adds the nodes of which their manager knows, and that have no `EdgeNode`: those that are connected in plain, and those
/// that are to hold something and never came.
pub fn with_others(mut rows: Vec<NodeRow>, known: &[NodeStatus], now: Timestamp) -> Vec<NodeRow> {
    let listed: BTreeSet<_> = rows.iter().map(|row| row.name.clone()).collect();
    let others = known.iter().filter(|node| !listed.contains(&node.name));
    rows.extend(others.map(|node| NodeRow {
        name: node.name.clone(),
        certificate: None,
        session: Some(stands(Some(node), now)),
        revoked_before: None,
    }));
    rows.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    rows
}

/// All nodes that have joined or were turned away, by name.
pub async fn list(client: &Client, namespace: &str) -> Result<Vec<NodeRow>, IdentityError> {
    let nodes: Api<EdgeNode> = Api::namespaced(client.clone(), namespace);
    let found = nodes
        .list(&ListParams::default())
        .await
        .map_err(api("list EdgeNodes"))?;
    let rows = found.into_iter().map(|node| {
        let EdgeNodeStatus { certificate, session } = node.status.clone().unwrap_or_default();
        NodeRow {
            name: node.name_any(),
            session,
            certificate: certificate.map(|certificate| (certificate.issued.0, certificate.expires.0)),
            revoked_before: node.spec.revoked_before.map(|before| before.0),
        }
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::Value;

    use super::*;

    fn node(name: &str, connected: Option<u64>) -> Value {
        let duration = |seconds: u64| json!({"secs": seconds, "nanos": 0});
        json!({
            "name": name, "connected": connected.map(duration), "agent": connected.map(|_| "0.1.0"), "assigned": 2,
            "unacked": 1, "oldestUnacked": null, "strays": 0, "withheld": 0, "outbox": null,
            "roundTrip": connected.map(|_| duration(1)),
        })
    }

    /// A client of an API server that has the Lease of this holder, and the pod `manager-7`.
    fn led_by(holder: &'static str) -> Client {
        let answer = move |request: Request<Body>| async move {
            let (code, body) = match request.uri().path() {
                "/apis/coordination.k8s.io/v1/namespaces/sedna/leases/skerry-globalmanager" => {
                    (200, json!({"metadata": {}, "spec": {"holderIdentity": holder}}))
                }
                "/api/v1/namespaces/sedna/pods/manager-7:9090/proxy/nodes" => {
                    (200, json!([node("edge-2", Some(60)), node("edge-1", None)]))
                }
                path => (
                    404,
                    json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": path}),
                ),
            };
            let body = Body::from(body.to_string().into_bytes());
            anyhow::Ok(Response::builder().status(code).body(body)?)
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test]
    async fn the_pod_that_leads_is_asked_for_nodes_without_an_edge_node() {
        let known = ask_leader(&led_by("manager-7_a-b"), "sedna").await.unwrap();
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let joined = NodeRow {
            name: "edge-2".to_owned(),
            certificate: Some((now, now)),
            session: None,
            revoked_before: None,
        };
        let rows = with_others(vec![joined.clone()], &known, now);
        let [plain, second] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(*second, joined, "what its EdgeNode says stays");
        let session = plain.session.as_ref().unwrap();
        assert_eq!(
            (plain.name.as_str(), session.connected, session.assigned),
            ("edge-1", false, 2)
        );
        let session = with_others(vec![], &known, now).pop().unwrap().session.unwrap();
        assert_eq!(
            (session.since.0, session.round_trip_milliseconds),
            (now - SignedDuration::from_mins(1), Some(1_000))
        );
    }

    #[tokio::test]
    async fn where_no_pod_leads_that_is_said() {
        for (holder, why) in [("", "no manager leads"), ("manager-8_a-b", "pods/manager-8:9090/proxy")] {
            let error = ask_leader(&led_by(holder), "sedna").await.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
