//! A revocation while the manager cannot hear of it at once: its watch brings nothing any more, the next one is never
//! answered, the API server has forgotten where it was, or is away for some time.

use std::{
    future::{pending, ready},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use futures::{StreamExt as _, stream};
use kube::Client;
use skerry_globalmanager::identity::{Terms, operator};
use skerry_sandbox::api::{Fault, Match, Verb};
use tokio_util::sync::CancellationToken;

use super::HOUR;
use crate::{
    node::Node,
    party::{Cluster, Manager, Session},
    seen::pass,
};

/// Within what time a session of who is revoked is closed, as `docs/edge-nodes.md` says.
const BOUND: Duration = Duration::from_secs(5);

/// Longer than whatever follows by itself takes, so that a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// For how long the API server is away: longer than any pause between attempts may be.
const AWAY: Duration = Duration::from_secs(20);

/// Time passes in steps of this.
const STEP: Duration = Duration::from_millis(250);

/// How a connection is of which half is gone: nothing comes any more, and no error either.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Silent {
    /// In the midst of a watch.
    Watch,
    /// Between two, so that the next one is never answered.
    Answer,
}

/// A client whose connection falls silent once the token says so, to whoever watches by it. The one after that works.
fn falling_silent(client: Client, silent: Silent) -> (Client, CancellationToken) {
    let (fall, met) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
    let falls = fall.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (client, fall, met) = (client.clone(), falls.clone(), met.clone());
        async move {
            let watches = request.uri().query().unwrap_or_default().contains("watch=true");
            let fallen = fall.is_cancelled();
            if watches && fallen && silent == Silent::Answer && !met.swap(true, Ordering::Relaxed) {
                return pending().await;
            }
            let answer = client.send(request).await?;
            Ok::<_, kube::Error>(answer.map(|body| {
                let body = Body::new(body);
                if !watches || fallen {
                    return body;
                }
                let news = body.into_data_stream().take_until(fall.clone().cancelled_owned());
                let end = async move {
                    if silent == Silent::Watch && fall.is_cancelled() {
                        pending::<()>().await;
                    }
                    None
                };
                Body::from_stream(news.chain(stream::once(end).filter_map(ready)))
            }))
        }
    });
    (Client::new(service, "default"), fall)
}

/// A node of this manager, and the session that it has.
async fn connected(cluster: &Cluster, manager: &Manager) -> Session {
    let mut node = Node::new("edge-1");
    let token = cluster.invite("edge-1", HOUR).await;
    node.join(manager, &token).await.unwrap();
    manager.connect(&node, "edge-1").await.unwrap().welcomed().await
}

async fn revoke(cluster: &Cluster) {
    operator::revoke(&cluster.client(), "default", "edge-1").await.unwrap();
}

/// Asserts that the session is closed before more than [`BOUND`] has passed for the manager, and says how.
async fn is_turned_away(mut live: Session) {
    let farewell = tokio::spawn(async move { live.farewell().await });
    let mut passed = Duration::ZERO;
    while passed < BOUND && !farewell.is_finished() {
        pass(STEP).await;
        passed += STEP;
    }
    // What is under way by now may come; time stands still, since somebody always has something to do.
    tokio::time::pause();
    let began = std::time::Instant::now();
    while !farewell.is_finished() {
        assert!(began.elapsed() < PATIENCE, "the session goes on");
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    let ended = farewell.await.unwrap();
    assert!(ended.says("was turned away"), "{ended:?}");
}

#[tokio::test]
async fn who_is_revoked_goes_although_the_watch_brings_nothing_any_more() {
    for silent in [Silent::Watch, Silent::Answer] {
        let cluster = Cluster::new().await;
        let (client, fall) = falling_silent(cluster.client(), silent);
        let manager = cluster.manager_by(client, Terms::default()).await;
        let live = connected(&cluster, &manager).await;
        fall.cancel();
        revoke(&cluster).await;
        is_turned_away(live).await;
    }
}

#[tokio::test]
async fn who_is_revoked_goes_although_nobody_knows_what_came_since() {
    let cluster = Cluster::new().await;
    let (client, fall) = falling_silent(cluster.client(), Silent::Watch);
    let manager = cluster.manager_by(client, Terms::default()).await;
    let live = connected(&cluster, &manager).await;
    fall.cancel();
    revoke(&cluster).await;
    cluster.compact();
    is_turned_away(live).await;
}

#[tokio::test]
async fn who_was_revoked_meanwhile_goes_at_once_when_the_api_server_is_back() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager().await;
    let live = connected(&cluster, &manager).await;
    let nodes = Match::any().verb(Verb::Watch).resource("edgenodes");
    let away = cluster.faults().inject(nodes, Fault::InternalError);
    let mut passed = Duration::ZERO;
    while passed < AWAY {
        pass(STEP).await;
        passed += STEP;
    }
    assert!(away.hits() > 10, "it did not try again and again");
    revoke(&cluster).await;
    assert_eq!(manager.hub.snapshot().sessions, 1);
    away.remove();
    is_turned_away(live).await;
}
