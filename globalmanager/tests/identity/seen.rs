//! What operators see of nodes and their sessions.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use skerry_edge::{Object, ObjectKey, Upstream, limits, message::OutboxDepth};
use skerry_globalmanager::{
    hub::Part,
    identity::{operator, sessions::Sessions},
};

use super::joined;

/// How long a node takes to answer.
const SLOW: Duration = Duration::from_secs(10);

/// Lets so much time pass for the manager, and everything happen that follows by itself.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn operators_see_how_sessions_stand_and_nothing_is_written_twice() {
    let (cluster, manager, node) = joined("edge-1").await;
    let mut sessions = Sessions::new(&cluster.client(), "default", manager.hub.clone());
    let seen = async || operator::list(&cluster.client(), "default").await.unwrap()[0].clone();
    let now = Timestamp::now();

    sessions.look(now).await.unwrap();
    assert_eq!(seen().await.session, None, "it has joined, and has had no session");
    let mut live = manager.connect(&node, "edge-1").await.unwrap().welcomed().await;
    sessions.look(now).await.unwrap();
    let session = seen().await.session.unwrap();
    assert!(session.connected);
    assert_eq!((session.version.as_deref(), session.assigned), (Some("test"), 0));
    assert!(seen().await.certificate.is_some(), "what others wrote stays");

    let holds_nothing = Upstream::Rows {
        chunks: vec![],
        rows: vec![],
        more: false,
    };
    let depth = OutboxDepth {
        messages: 70,
        bytes: 20_000,
    };
    let known = || manager.hub.nodes().iter().any(|node| node.outbox.is_some());
    live.says([holds_nothing, Upstream::Outbox(depth)], known).await;
    sessions.look(now).await.unwrap();
    let outbox = seen().await.session.unwrap().outbox.unwrap();
    assert_eq!((outbox.messages, outbox.bytes), (70, 20_000));

    // An object that the node is slow to acknowledge, and a ping that it is slow to answer.
    let owner = ObjectKey::new("dataset", "default", "d");
    let object = Object {
        key: owner.clone(),
        uid: "u".to_owned(),
        generation: 1,
        body: serde_json::json!({}).into(),
    };
    let credentials = vec![];
    manager
        .hub
        .set(&owner, [("edge-1".to_owned(), Part { object, credentials })].into());
    pass(limits::PING_AFTER).await;
    pass(SLOW).await;
    let version = live.put().await;
    let answered = || manager.hub.nodes().iter().any(|node| node.round_trip.is_some());
    live.says([], answered).await;
    sessions.look(now).await.unwrap();
    let session = seen().await.session.unwrap();
    assert_eq!((session.assigned, session.unacknowledged), (1, 1));
    let waited = now.duration_since(session.oldest_unacknowledged.unwrap().0);
    let least = SignedDuration::try_from(limits::PING_AFTER + SLOW).unwrap();
    assert!(least <= waited && waited < 3 * least, "{waited:#}");
    let round_trip = session.round_trip_milliseconds.unwrap();
    let slow = i64::try_from(SLOW.as_millis()).unwrap();
    assert!((slow..2 * slow).contains(&round_trip), "{round_trip}");

    let acknowledged = || manager.hub.snapshot().unacked == 0;
    live.says([Upstream::Ack { version }], acknowledged).await;
    sessions.look(now).await.unwrap();
    let session = seen().await.session.unwrap();
    assert_eq!((session.assigned, session.unacknowledged), (1, 0));
    assert_eq!(session.oldest_unacknowledged, None);
    let slowest = manager.hub.snapshot().slowest_ack;
    assert!(slowest >= limits::PING_AFTER + SLOW, "{slowest:?}");

    let revision = cluster.revision();
    for _ in 0..20 {
        sessions.look(Timestamp::now()).await.unwrap();
    }
    assert_eq!(cluster.revision(), revision, "that time has passed is no news");

    drop(live);
    manager.without_sessions().await;
    // A manager that has just begun knows it from what the one before wrote.
    let mut sessions = Sessions::new(&cluster.client(), "default", manager.hub.clone());
    sessions.look(now).await.unwrap();
    let gone = seen().await.session.unwrap();
    assert_eq!((gone.connected, gone.version.as_deref()), (false, Some("test")));
    manager.hub.stand_down();
    sessions.look(now).await.unwrap();
}
