//! What turns a node away, whatever the operator's clock shows, and what takes that back.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
    client::Body,
};
use serde_json::{Value, json};
use skerry_crds::skerry::v1alpha1::EdgeNode;
use skerry_globalmanager::identity::operator;
use skerry_sandbox::api::{Fault, Match, Verb};

use super::{GRACE, HOUR, TERMS, joined};
use crate::{
    node::Node,
    party::{Cluster, Manager, Said, say_in_plain},
};

fn nodes(cluster: &Cluster) -> Api<EdgeNode> {
    nodes_of(cluster.client())
}

fn nodes_of(client: Client) -> Api<EdgeNode> {
    Api::namespaced(client, "default")
}

/// A client before whose first request to a path that ends so, something else happens.
fn after(cluster: &Cluster, end: &'static str, happens: fn(Client) -> BoxFuture<'static, ()>) -> Client {
    let (client, first) = (cluster.client(), Arc::new(AtomicBool::new(true)));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let client = client.clone();
        let now = request.method() == http::Method::PATCH && request.uri().path().ends_with(end);
        let now = now && first.swap(false, Relaxed);
        async move {
            if now {
                happens(client.clone()).await;
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

/// Notes a certificate of half an hour ahead, as a manager does whose clock is.
async fn note_ahead(nodes: &Api<EdgeNode>) -> Timestamp {
    let issued = Timestamp::now() + SignedDuration::from_mins(30);
    let certificate = json!({"issued": issued.to_string(), "expires": (issued + HOUR).to_string()});
    let status = Patch::Merge(json!({"status": {"certificate": certificate}}));
    let how = PatchParams::default();
    nodes.patch_status("edge-1", &how, &status).await.unwrap();
    issued
}

async fn merge(cluster: &Cluster, patch: Value) {
    let how = PatchParams::default();
    nodes(cluster)
        .patch("edge-1", &how, &Patch::Merge(patch))
        .await
        .unwrap();
}

async fn revoke(cluster: &Cluster) -> Timestamp {
    operator::revoke(&cluster.client(), "default", "edge-1").await.unwrap()
}

/// Waits until the manager knows.
async fn is_turned_away(manager: &Manager, node: &Node) {
    while manager.session(node, "edge-1").await == Said::Welcome {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_operator_whose_clock_is_behind_the_managers_turns_a_node_away_all_the_same() {
    let (cluster, manager, _) = joined("edge-1").await;
    let (authority, issued) = (cluster.authority().await, note_ahead(&nodes(&cluster)).await);
    let node = Node::certified("edge-1", &authority, &authority, issued, HOUR);
    assert_eq!(manager.session(&node, "edge-1").await, Said::Welcome);

    let before = revoke(&cluster).await;
    assert!(before > issued, "{before}, and the certificate is of {issued}");
    is_turned_away(&manager, &node).await;
}

#[tokio::test]
async fn a_certificate_that_is_noted_while_an_operator_revokes_is_revoked_with_the_others() {
    let (cluster, _manager, _node) = joined("edge-1").await;
    let operator = after(&cluster, "/edgenodes/edge-1", |client| {
        Box::pin(async move {
            let _issued = note_ahead(&nodes_of(client)).await;
        })
    });
    let before = operator::revoke(&operator, "default", "edge-1").await.unwrap();
    let node = nodes(&cluster).get("edge-1").await.unwrap();
    let issued = node.status.unwrap().certificate.unwrap().issued.0;
    assert!(issued > Timestamp::now() && before > issued, "{before} {issued}");
}

#[tokio::test]
async fn a_certificate_by_a_clock_that_is_ahead_is_not_forgotten_for_a_later_one() {
    let (cluster, manager, _) = joined("edge-1").await;
    let ahead = note_ahead(&nodes(&cluster)).await;
    let token = cluster.invite("edge-1", HOUR).await;
    Node::new("edge-1").join(&manager, &token).await.unwrap();
    let before = revoke(&cluster).await;
    assert!(before > ahead, "{before}, and one is of {ahead}");
}

#[tokio::test]
async fn who_is_revoked_while_a_certificate_is_made_does_not_get_it() {
    let revoked = |cluster: &Cluster| {
        after(cluster, "/edgenodes/edge-1/status", |client| {
            Box::pin(async move {
                let _before = operator::revoke(&client, "default", "edge-1").await.unwrap();
            })
        })
    };
    let cluster = Cluster::new().await;
    let manager = cluster.manager_by(revoked(&cluster), TERMS).await;
    let token = cluster.invite("edge-1", HOUR).await;
    let refused = Node::new("edge-1").join(&manager, &token).await.unwrap_err();
    assert!(
        refused.starts_with("403") && refused.contains("was turned away"),
        "{refused}"
    );

    let cluster = Cluster::new().await;
    let manager = cluster.manager_by(revoked(&cluster), TERMS).await;
    let (authority, issued) = (cluster.authority().await, Timestamp::now() - 2 * HOUR);
    let mut node = Node::certified("edge-1", &authority, &authority, issued, HOUR);
    let refused = node.renew(&manager).await.unwrap_err();
    assert!(
        refused.starts_with("403") && refused.contains("was turned away"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_certificate_that_cannot_be_noted_is_not_handed_out() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager_for(TERMS).await;
    let token = cluster.invite("edge-1", HOUR).await;
    let fail = || {
        let writes = Match::any().verb(Verb::Patch).resource("edgenodes").times(1);
        cluster.faults().inject(writes, Fault::InternalError)
    };
    let mut node = Node::new("edge-1");
    let failed = fail();
    let refused = node.join(&manager, &token).await.unwrap_err();
    assert!(refused.starts_with("503") && failed.hits() == 1, "{refused}");
    node.join(&manager, &token).await.expect("its token is still its own");

    let authority = cluster.authority().await;
    let mut node = Node::certified("edge-1", &authority, &authority, Timestamp::now() - GRACE, HOUR);
    let failed = fail();
    let refused = node.renew(&manager).await.unwrap_err();
    assert!(refused.starts_with("503") && failed.hits() == 1, "{refused}");
    assert_eq!(node.renew(&manager).await, Ok(true));
}

#[tokio::test]
async fn a_revocation_by_a_clock_that_is_behind_takes_back_none_of_before() {
    let (cluster, _manager, _node) = joined("edge-1").await;
    let ahead = revoke(&cluster).await + HOUR;
    merge(&cluster, json!({"spec": {"revokedBefore": ahead.to_string()}})).await;
    assert_eq!(revoke(&cluster).await, ahead);
    let node = nodes(&cluster).get("edge-1").await.unwrap();
    assert_eq!(node.spec.revoked_before.map(|before| before.0), Some(ahead));
}

#[tokio::test]
async fn a_revocation_is_taken_back_with_its_field_or_with_the_edge_node() {
    for whole in [false, true] {
        let (cluster, manager, node) = joined("edge-1").await;
        revoke(&cluster).await;
        is_turned_away(&manager, &node).await;
        if whole {
            let how = DeleteParams::default();
            nodes(&cluster).delete("edge-1", &how).await.unwrap();
        } else {
            merge(&cluster, json!({"spec": {"revokedBefore": null}})).await;
        }
        loop {
            match manager.session(&node, "edge-1").await {
                Said::Welcome => break,
                said => assert!(said.says("was turned away"), "{said:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_node_whose_edge_node_is_deleted_is_let_in_in_plain_again() {
    let (cluster, manager, _node) = joined("edge-1").await;
    let proof = "it has to prove who it is";
    let says = async || say_in_plain(manager.plain, "edge-1").await.next().await;
    // Until the watch has told of it.
    while says().await == Said::Welcome {}
    let refused = says().await;
    assert!(refused.says(proof), "{refused:?}");
    nodes(&cluster)
        .delete("edge-1", &DeleteParams::default())
        .await
        .unwrap();
    loop {
        match says().await {
            Said::Welcome => break,
            said => assert!(said.says(proof), "{said:?}"),
        }
    }
}
