//! What operators do about nodes, with their own rights: invite one, turn one away, see all.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
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

use super::{IdentityError, api, authority::from_secret, nodes, tokens::Tokens};

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

/// Revokes all certificates and join tokens that `node` has.
pub async fn revoke(client: &Client, namespace: &str, node: &str) -> Result<Timestamp, IdentityError> {
    check(node)?;
    let nodes: Api<EdgeNode> = Api::namespaced(client.clone(), namespace);
    // Certificates tell the second in which they were issued: that of now counts as before.
    let before = Timestamp::from_second(Timestamp::now().as_second().saturating_add(1)).unwrap_or(Timestamp::MAX);
    let object = json!({
        "apiVersion": "skerry.io/v1alpha1",
        "kind": "EdgeNode",
        "metadata": {"name": node},
        "spec": EdgeNodeSpec { revoked_before: Some(Time(before)) },
    });
    let how = PatchParams::apply(OPERATOR).force();
    let written = nodes.patch(node, &how, &Patch::Apply(object)).await;
    written.map_err(api("write the EdgeNode"))?;
    Ok(before)
}

fn check(node: &str) -> Result<(), AuthorityError> {
    if is_dns_name(node) {
        Ok(())
    } else {
        Err(AuthorityError::Name(node.chars().take(64).collect()))
    }
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
