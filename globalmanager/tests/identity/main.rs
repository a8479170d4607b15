//! Who gets in over TLS, and who does not: the manager's real listener over the in-memory API server, and nodes that are
//! what they should not be.

// A set-up that fails is the test's verdict.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod asking;
mod clocks;
#[path = "../common/mod.rs"]
mod common;
mod node;
mod party;
mod seen;
mod turning;
mod watching;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::ListParams};
use node::Node;
use party::{Cluster, Manager, NoReports, Said, plain, say_in_plain};
use skerry_crds::skerry::v1alpha1::EdgeNode;
use skerry_edge::{
    Upstream,
    identity::{Authority, JOIN, JoinRequest, JoinToken, NodeKey, RENEW, RenewRequest, SigningRequest},
    message::OutboxDepth,
};
use skerry_globalmanager::{
    hub::Hub,
    identity::{Terms, operator},
};
use tokio_util::sync::CancellationToken;

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const GRACE: SignedDuration = SignedDuration::from_hours(24);
const TERMS: Terms = Terms {
    lifetime: SignedDuration::from_hours(90 * 24),
    grace: GRACE,
};

/// A cluster with a manager, and a node that has joined.
async fn joined(name: &str) -> (Cluster, Manager, Node) {
    let cluster = Cluster::new().await;
    let manager = cluster.manager().await;
    let mut node = Node::new(name);
    node.join(&manager, &cluster.invite(name, HOUR).await).await.unwrap();
    (cluster, manager, node)
}

#[tokio::test]
async fn a_node_joins_once_and_then_has_sessions_under_its_name() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager().await;
    let token = cluster.invite("edge-1", HOUR).await;
    let mut node = Node::new("edge-1");
    node.join(&manager, &token).await.unwrap();
    assert_eq!(manager.session(&node, "edge-1").await, Said::Welcome);

    let seen = operator::list(&cluster.client(), "default").await.unwrap();
    let expires = seen[0].certificate.unwrap().1;
    let lifetime = expires.duration_since(Timestamp::now());
    let whole = Terms::default().lifetime;
    assert!(lifetime <= whole && lifetime > whole - HOUR, "{lifetime:?}");
    assert_eq!(
        (seen.len(), seen[0].name.as_str(), seen[0].revoked_before),
        (1, "edge-1", None)
    );

    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "default");
    let kept = format!("{:?}", secrets.list(&ListParams::default()).await.unwrap());
    assert!(!kept.contains(token.secret()), "the manager keeps hashes only");
}

#[tokio::test]
async fn a_stolen_name_is_no_proof() {
    let (_cluster, manager, node) = joined("edge-2").await;
    let refused = manager.session(&node, "edge-1").await;
    assert!(
        refused.says("the certificate is that of node edge-2, the hello says edge-1"),
        "{refused:?}"
    );
    // And without any certificate.
    let refused = manager.session(&Node::new("edge-1"), "edge-1").await;
    assert!(refused.says("401"), "{refused:?}");
    let refused = Node::new("edge-1").renew(&manager).await.unwrap_err();
    assert!(
        refused.starts_with("401") && refused.contains("join first"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_request_to_join_under_another_name_than_that_of_the_certificate_is_refused() {
    let (cluster, manager, node) = joined("edge-2").await;
    let ask = async |name: &str| {
        let question = JoinRequest {
            node: name.to_owned(),
            token: cluster.invite(name, HOUR).await,
            request: SigningRequest::of(&NodeKey::generate().unwrap()).unwrap(),
        };
        let question = serde_json::to_string(&question).unwrap();
        manager.ask(node.config(&manager.authority), JOIN, question).await
    };
    let sentence = "the certificate is that of node edge-2, the request says \"edge-1\"";
    assert_eq!(ask("edge-1").await, Ok((403, sentence.to_owned())));
    assert_eq!(ask("edge-2").await.unwrap().0, 200);
}

#[tokio::test]
async fn a_header_that_says_another_name_is_refused() {
    let (_cluster, manager, node) = joined("edge-2").await;
    assert_eq!(manager.upgrade(&node, &[]).await.0, 101);
    assert_eq!(manager.upgrade(&node, &["edge-2"]).await.0, 101);
    assert_eq!(manager.hub.snapshot().refused.get("other_name"), None);
    for (names, said) in [
        (&["edge-1"][..], r#""edge-1""#),
        (&["edge-2", "edge-1"], r#""edge-1""#),
        (&["Edge-2"], r#""Edge-2""#),
        (&[""], r#""""#),
        (&["../edge-2"], r#""../edge-2""#),
    ] {
        let refused = manager.upgrade(&node, names).await;
        let sentence = format!("the certificate is that of node edge-2, the header Node-Name says {said}");
        assert_eq!(refused, (403, sentence));
    }
    assert_eq!(manager.hub.snapshot().refused.get("other_name"), Some(&5));
}

#[tokio::test]
async fn the_name_of_a_node_that_has_joined_is_not_taken_in_plain() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager().await;
    let mut early = say_in_plain(manager.plain, "edge-1").await.welcomed().await;
    let mut other = say_in_plain(manager.plain, "edge-2").await.welcomed().await;
    let mut node = Node::new("edge-1");
    node.join(&manager, &cluster.invite("edge-1", HOUR).await)
        .await
        .unwrap();
    let proof = "node edge-1 has joined: it has to prove who it is";
    let ended = early.farewell().await;
    assert!(ended.says(proof), "whoever was there under its name: {ended:?}");

    let mut live = manager.connect(&node, "edge-1").await.unwrap().welcomed().await;
    for _ in 0..3 {
        let refused = say_in_plain(manager.plain, "edge-1").await.next().await;
        assert!(refused.says(proof), "{refused:?}");
    }
    let holds_nothing = Upstream::Rows {
        chunks: vec![],
        rows: vec![],
        more: false,
    };
    let depth = OutboxDepth {
        messages: 1,
        bytes: 300,
    };
    let heard = || manager.hub.nodes().iter().any(|node| node.outbox == Some(depth));
    live.says([holds_nothing.clone(), Upstream::Outbox(depth)], heard).await;
    let snapshot = manager.hub.snapshot();
    assert_eq!(snapshot.sessions, 2);
    assert_eq!(
        (snapshot.ended.get("proves"), snapshot.ended.get("replaced")),
        (Some(&1), None)
    );
    assert_eq!(snapshot.refused, [("proves", 3)].into());
    let heard = || {
        manager
            .hub
            .nodes()
            .iter()
            .filter(|node| node.outbox == Some(depth))
            .count()
            == 2
    };
    other.says([holds_nothing, Upstream::Outbox(depth)], heard).await;
}

#[tokio::test]
async fn until_it_is_known_who_has_joined_nobody_is_taken_at_his_word() {
    let (hub, stop) = (Hub::with_jitter(|| 0.0), CancellationToken::new());
    hub.lead(common::first_term(), std::sync::Arc::new(NoReports));
    let address = plain(&hub, &stop).await;
    let says = async || say_in_plain(address, "edge-1").await.next().await;
    assert_eq!(says().await, Said::Welcome, "nobody could prove more");
    hub.expect_proof();
    assert_eq!(says().await, Said::Restarting);
    hub.set_joined(["edge-2".to_owned()].into());
    hub.expect_proof();
    assert_eq!(says().await, Said::Welcome, "it has not joined");
}

#[tokio::test]
async fn a_certificate_counts_in_its_time_and_of_its_authority_alone() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager_for(TERMS).await;
    let (ours, theirs) = (
        cluster.authority().await,
        Authority::new("other", Timestamp::now()).unwrap(),
    );
    let now = Timestamp::now();
    let mut turned = 0;
    for (what, authority, issued, lifetime, counts) in [
        ("present", &ours, now, HOUR, true),
        ("expired within the grace", &ours, now - 2 * HOUR, HOUR, true),
        ("expired long ago", &ours, now - 3 * GRACE, GRACE, false),
        ("not yet valid", &ours, now + 2 * HOUR, HOUR, false),
        ("of another authority", &theirs, now, HOUR, false),
    ] {
        let node = Node::certified("edge-1", authority, &ours, issued, lifetime);
        let said = manager.session(&node, "edge-1").await;
        assert_eq!(said == Said::Welcome, counts, "{what}: {said:?}");
        turned += u64::from(!counts);
        // TLS itself turns it away; it is counted once the node has been told.
        let counted = || manager.hub.doors().turned().get("handshake").copied();
        let all = async {
            while counted().unwrap_or_default() < turned {
                tokio::task::yield_now().await;
            }
        };
        let all = tokio::time::timeout(std::time::Duration::from_secs(60), all).await;
        all.unwrap_or_else(|_| panic!("{what}: it is not counted"));
        assert_eq!(counted().unwrap_or_default(), turned, "{what}");
    }
}

#[tokio::test]
async fn a_certificate_is_renewed_when_it_is_due_and_not_before() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager_for(TERMS).await;
    let (authority, now) = (cluster.authority().await, Timestamp::now());
    let node = |issued, lifetime| Node::certified("edge-1", &authority, &authority, issued, lifetime);
    assert_eq!(node(now, GRACE).renew(&manager).await, Ok(false));
    let mut away = node(now - 2 * HOUR, HOUR);
    assert_eq!(
        away.renew(&manager).await,
        Ok(true),
        "it was away when it was to be renewed"
    );
    assert!(away.expires() > now + 80 * GRACE);
    assert_eq!(manager.session(&away, "edge-1").await, Said::Welcome);
    let late = node(now - 3 * GRACE, HOUR).renew(&manager).await.unwrap_err();
    assert!(late.contains("error sending request"), "TLS does not let it in: {late}");
}

#[tokio::test]
async fn a_renewal_is_for_the_same_key() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager_for(TERMS).await;
    let (authority, issued) = (cluster.authority().await, Timestamp::now() - 2 * HOUR);
    let node = Node::certified("edge-1", &authority, &authority, issued, HOUR);
    let request = SigningRequest::of(&NodeKey::generate().unwrap()).unwrap();
    let question = serde_json::to_string(&RenewRequest { request }).unwrap();
    let (status, sentence) = manager.ask(node.config(&authority), RENEW, question).await.unwrap();
    assert!(
        status == 403 && sentence.contains("another key takes a join token"),
        "{status}: {sentence}"
    );
}

#[tokio::test]
async fn a_token_lets_one_key_of_one_node_in_in_its_time() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager().await;
    let token = cluster.invite("edge-1", HOUR).await;
    let refusal = async |node: &str, token: &JoinToken| Node::new(node).join(&manager, token).await.unwrap_err();
    let refused = refusal("edge-2", &token).await;
    assert!(
        refused.starts_with("403") && refused.contains("for another node"),
        "{refused}"
    );

    let mut node = Node::new("edge-1");
    node.join(&manager, &token).await.unwrap();
    node.join(&manager, &token)
        .await
        .expect("the answer may have been lost");
    let refused = refusal("edge-1", &token).await;
    assert!(
        refused.starts_with("403") && refused.contains("was used before"),
        "{refused}"
    );

    let late = cluster.invite("edge-1", SignedDuration::from_nanos(1)).await;
    let refused = refusal("edge-1", &late).await;
    assert!(
        refused.starts_with("403") && refused.contains("has expired"),
        "{refused}"
    );

    let guessed = JoinToken::generate(cluster.authority().await.fingerprint());
    let refused = refusal("edge-1", &guessed).await;
    assert!(
        refused.starts_with("403") && refused.contains("is not known"),
        "{refused}"
    );
    let other: JoinToken = format!("skerry-join.{}.{}.{}", token.id, guessed.secret(), token.authority)
        .parse()
        .unwrap();
    let refused = refusal("edge-1", &other).await;
    assert!(
        refused.starts_with("403") && refused.contains("is not known"),
        "{refused}"
    );

    // Those that have expired go with the next.
    let kept = || async { cluster.tokens().await };
    assert_eq!(kept().await, 2);
    cluster.invite("edge-3", HOUR).await;
    assert_eq!(kept().await, 2, "the present ones");
}

#[tokio::test]
async fn of_two_that_use_a_token_at_once_one_gets_in() {
    let cluster = Cluster::new().await;
    let (one, other) = (cluster.manager().await, cluster.manager().await);
    for round in 0..5 {
        let name = format!("edge-{round}");
        let token = cluster.invite(&name, HOUR).await;
        let (mut first, mut second) = (Node::new(&name), Node::new(&name));
        let (first, second) = tokio::join!(first.join(&one, &token), second.join(&other, &token));
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    }
}

#[tokio::test]
async fn what_is_not_a_request_is_refused_with_a_sentence() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager().await;
    let token = cluster.invite("edge-1", HOUR).await.reveal();
    for (body, status) in [
        (String::new(), 400),
        ("null".to_owned(), 422),
        ("[".repeat(1_000), 422),
        (format!("{{\"x\":{}", "[".repeat(1_000)), 400),
        (r#"{"node":"edge-1","token":"","request":""}"#.to_owned(), 422),
        (format!(r#"{{"node":"edge-1","token":"{token}","request":"x"}}"#), 400),
        (
            format!(
                r#"{{"node":"edge-1","token":"{token}","request":"{}"}}"#,
                "x".repeat(100_000)
            ),
            413,
        ),
    ] {
        let (answered, sentence) = manager.post("/join", body).await;
        assert_eq!(answered, status, "{sentence}");
        assert!(!sentence.is_empty() && !sentence.contains(&token), "{sentence}");
    }
    let mut node = Node::new("edge-1");
    node.join(&manager, &token.parse().unwrap())
        .await
        .expect("the token is not used up by that");
}

#[tokio::test]
async fn a_revocation_ends_the_session_and_survives_the_manager() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager().await;
    let token = cluster.invite("edge-1", HOUR).await;
    let (mut node, mut other) = (Node::new("edge-1"), Node::new("edge-2"));
    node.join(&manager, &token).await.unwrap();
    other
        .join(&manager, &cluster.invite("edge-2", HOUR).await)
        .await
        .unwrap();
    let mut live = manager.connect(&node, "edge-1").await.unwrap();
    assert_eq!(live.next().await, Said::Welcome);

    operator::revoke(&cluster.client(), "default", "edge-1").await.unwrap();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(5), live.farewell()).await;
    let ended = ended.expect("the session goes on");
    assert!(ended.says("was turned away"), "{ended:?}");
    manager.stop().await;

    let manager = cluster.manager().await;
    let refused = manager.session(&node, "edge-1").await;
    assert!(refused.says("was turned away"), "{refused:?}");
    let refused = node.join(&manager, &token).await.unwrap_err();
    assert!(refused.contains("was turned away"), "the token was its, too: {refused}");
    let mut due = Node::certified(
        "edge-1",
        &cluster.authority().await,
        &cluster.authority().await,
        Timestamp::now() - HOUR,
        HOUR,
    );
    let refused = due.renew(&manager).await.unwrap_err();
    assert!(
        refused.starts_with("403") && refused.contains("was turned away"),
        "{refused}"
    );
    assert_eq!(
        manager.session(&other, "edge-2").await,
        Said::Welcome,
        "it is not meant"
    );

    let token = cluster.invite("edge-1", HOUR).await;
    let mut anew = Node::new("edge-1");
    // The second in which it was turned away has to pass.
    while let Err(refused) = anew.join(&manager, &token).await {
        assert!(refused.contains("was turned away"), "{refused}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(manager.session(&anew, "edge-1").await, Said::Welcome);
    assert_ne!(manager.session(&node, "edge-1").await, Said::Welcome);
}

#[tokio::test]
async fn what_is_written_as_a_revocation_and_cannot_be_read_turns_the_node_away() {
    let cluster = Cluster::lax().await;
    let manager = cluster.manager().await;
    let mut node = Node::new("edge-1");
    node.join(&manager, &cluster.invite("edge-1", HOUR).await)
        .await
        .unwrap();
    let mut live = manager.connect(&node, "edge-1").await.unwrap();
    assert_eq!(live.next().await, Said::Welcome);
    let nodes: Api<EdgeNode> = Api::namespaced(cluster.client(), "default");
    let patch = serde_json::json!({"spec": {"revokedBefore": "yesterday"}});
    let merged = nodes
        .clone()
        .patch(
            "edge-1",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(patch),
        )
        .await;
    assert!(
        merged.is_err(),
        "the typed answer cannot be read, and it is written all the same"
    );
    let ended = live.farewell().await;
    assert!(ended.says("was turned away"), "{ended:?}");
}

#[tokio::test]
async fn managers_that_start_at_once_have_one_authority_and_keep_what_they_are_given() {
    let cluster = Cluster::new().await;
    let (one, other) = tokio::join!(cluster.manager(), cluster.manager());
    let mut node = Node::new("edge-1");
    node.join(&one, &cluster.invite("edge-1", HOUR).await).await.unwrap();
    assert_eq!(other.session(&node, "edge-1").await, Said::Welcome);

    let given = Authority::new("given", Timestamp::now()).unwrap();
    let cluster = Cluster::new().await;
    cluster.give(&given).await;
    let manager = cluster.manager().await;
    let token = cluster.invite("edge-1", HOUR).await;
    assert_eq!(token.authority, given.fingerprint());
    node.join(&manager, &token).await.unwrap();
    assert_eq!(manager.session(&node, "edge-1").await, Said::Welcome);
}
