//! A revocation while the watch hangs by which the manager hears of it: half of its connection is gone, so that nothing
//! comes any more, and no error either. (One that is not even answered is given up by the manager's client.)

use std::time::Duration;

use axum::body::Body;
use futures::{StreamExt as _, stream};
use kube::Client;
use skerry_globalmanager::identity::{Terms, operator};
use tokio_util::sync::CancellationToken;

use super::HOUR;
use crate::{node::Node, party::Cluster, seen::pass};

/// When that is noticed, as `docs/edge-nodes.md` says.
const BOUND: Duration = Duration::from_secs(10);

/// Longer than whatever follows by itself takes, so that a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client of which every watch that was begun by then brings nothing any more once the token says so.
fn hanging(client: Client) -> (Client, CancellationToken) {
    let hang = CancellationToken::new();
    let hangs = hang.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (client, hang) = (client.clone(), hangs.clone());
        async move {
            let query = request.uri().query().unwrap_or_default();
            let watches = query.contains("watch=true") && !hang.is_cancelled();
            let answer = client.send(request).await?;
            Ok::<_, kube::Error>(answer.map(|body| {
                let body = Body::new(body);
                if !watches {
                    return body;
                }
                let until = body.into_data_stream().take_until(hang.cancelled_owned());
                Body::from_stream(until.chain(stream::pending()))
            }))
        }
    });
    (Client::new(service, "default"), hang)
}

#[tokio::test]
async fn who_is_revoked_goes_although_the_watch_brings_nothing_any_more() {
    let cluster = Cluster::new().await;
    let (client, hang) = hanging(cluster.client());
    let manager = cluster.manager_by(client, Terms::default()).await;
    let mut node = Node::new("edge-1");
    node.join(&manager, &cluster.invite("edge-1", HOUR).await)
        .await
        .unwrap();
    let mut live = manager.connect(&node, "edge-1").await.unwrap().welcomed().await;
    hang.cancel();
    operator::revoke(&cluster.client(), "default", "edge-1").await.unwrap();
    pass(BOUND).await;
    let ended = tokio::time::timeout(PATIENCE, live.farewell()).await;
    let ended = ended.expect("the session goes on");
    assert!(ended.says("was turned away"), "{ended:?}");
}
