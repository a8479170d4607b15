//! Faults, as a client meets them.

use std::{pin::pin, time::Duration};

use futures::{FutureExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
};
use skerry_sandbox::{
    ApiServer,
    api::{Fault, Match, Past, Verb},
};

use super::{config_map, refused};

fn maps(server: &ApiServer) -> Api<ConfigMap> {
    Api::default_namespaced(server.client_as("victim"))
}

#[tokio::test(start_paused = true)]
async fn failures_hit_the_nth_request_of_a_user() {
    let server = ApiServer::new();
    let fault = server
        .faults()
        .inject(Match::writes().user("victim").nth(2), Fault::InternalError);
    let others: Api<ConfigMap> = Api::default_namespaced(server.client());
    for name in ["x", "y"] {
        others
            .create(&PostParams::default(), &config_map(name, "1"))
            .await
            .unwrap();
    }
    let maps = maps(&server);
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    assert_eq!(
        refused(maps.create(&PostParams::default(), &config_map("b", "1")).await).code,
        500
    );
    maps.create(&PostParams::default(), &config_map("b", "1"))
        .await
        .unwrap();
    assert_eq!(fault.hits(), 1);
}

#[tokio::test(start_paused = true)]
async fn timeouts_come_before_or_after_the_effect() {
    for applied in [false, true] {
        let server = ApiServer::new();
        server
            .faults()
            .inject(Match::writes().nth(1), Fault::Timeout { applied });
        let status = refused(
            maps(&server)
                .create(&PostParams::default(), &config_map("a", "1"))
                .await,
        );
        assert_eq!((status.code, &*status.reason), (504, "Timeout"));
        assert_eq!(maps(&server).get_opt("a").await.unwrap().is_some(), applied);
    }
}

#[tokio::test(start_paused = true)]
async fn crashes_leave_the_caller_hanging() {
    for applied in [false, true] {
        let server = ApiServer::new();
        let fault = server
            .faults()
            .inject(Match::writes().name("a").nth(1), Fault::Crash { applied });
        let (maps, map) = (maps(&server), config_map("a", "1"));
        let params = PostParams::default();
        let mut caller = pin!(maps.create(&params, &map).fuse());
        futures::select! {
            answer = caller => panic!("answered: {answer:?}"),
            () = pin!(fault.hit().fuse()) => {}
        }
        assert_eq!(maps.get_opt("a").await.unwrap().is_some(), applied);
        let entries = server.requests().all();
        assert_eq!(entries[0].status, None);
    }
}

#[tokio::test(start_paused = true)]
async fn lists_may_be_stale_and_slow() {
    let server = ApiServer::new();
    let maps = maps(&server);
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &config_map(name, "1"))
            .await
            .unwrap();
    }
    server
        .faults()
        .inject(Match::any().verb(Verb::List).times(1), Fault::Stale(Past::Ago(2)));
    server.faults().inject(
        Match::any().verb(Verb::List).times(1),
        Fault::Latency(Duration::from_secs(5)),
    );
    let before = server.clock().now();
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert_eq!(server.clock().now().duration_since(before).as_secs(), 5);
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn watches_break() {
    let server = ApiServer::new();
    let maps = maps(&server);
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &config_map(name, "1"))
            .await
            .unwrap();
    }
    server
        .faults()
        .inject(Match::any().verb(Verb::Watch).nth(1), Fault::DropWatch { after: 2 });
    server
        .faults()
        .inject(Match::any().verb(Verb::Watch).nth(2), Fault::ExpireWatch);
    let events: Vec<_> = maps
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(events.len(), 2);
    let events: Vec<_> = maps
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert!(
        matches!(&events[..], [WatchEvent::Error(status)] if status.code == 410),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn busy_servers_say_when_to_come_back() {
    let server = ApiServer::new();
    server
        .faults()
        .inject(Match::any().nth(1), Fault::TooManyRequests { retry_after: 3 });
    let status = refused(maps(&server).get("a").await);
    assert_eq!(status.details.unwrap().retry_after_seconds, 3);
    server.faults().inject(Match::any(), Fault::Conflict).remove();
    assert!(maps(&server).get_opt("a").await.unwrap().is_none());
}
