//! What turns a node away, whatever the operator's clock shows, and what takes that back.

use jiff::{SignedDuration, Timestamp};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use skerry_crds::skerry::v1alpha1::EdgeNode;
use skerry_globalmanager::identity::operator;

use super::{HOUR, joined};
use crate::{
    node::Node,
    party::{Cluster, Manager, Said, say_in_plain},
};

fn nodes(cluster: &Cluster) -> Api<EdgeNode> {
    Api::namespaced(cluster.client(), "default")
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
    // As where the manager's clock is half an hour ahead of this one.
    let issued = Timestamp::now() + SignedDuration::from_mins(30);
    let (authority, expires) = (cluster.authority().await, issued + HOUR);
    let node = Node::certified("edge-1", &authority, &authority, issued, HOUR);
    assert_eq!(manager.session(&node, "edge-1").await, Said::Welcome);
    let certificate = json!({"issued": issued.to_string(), "expires": expires.to_string()});
    let how = PatchParams::default();
    let status = Patch::Merge(json!({"status": {"certificate": certificate}}));
    nodes(&cluster).patch_status("edge-1", &how, &status).await.unwrap();

    let before = revoke(&cluster).await;
    assert!(before > issued, "{before}, and the certificate is of {issued}");
    is_turned_away(&manager, &node).await;
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
