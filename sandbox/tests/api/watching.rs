//! Watches, through `kube`'s watcher.

use std::{pin::pin, time::Duration};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    runtime::watcher::{self, Event, watcher},
};
use serde_json::json;
use skerry_sandbox::ApiServer;

use super::config_map;

fn told(event: &Event<ConfigMap>) -> String {
    match event {
        Event::Init => "init".into(),
        Event::InitApply(map) => format!("has {}", map.name_any()),
        Event::InitDone => "done".into(),
        Event::Apply(map) => format!("apply {}", map.name_any()),
        Event::Delete(map) => format!("delete {}", map.name_any()),
    }
}

async fn follow(config: watcher::Config) {
    let server = ApiServer::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let mut events = pin!(watcher(maps.clone(), config).map_ok(|event| told(&event)));
    for wanted in ["init", "has a", "done"] {
        assert_eq!(events.next().await.unwrap().unwrap(), wanted);
    }
    maps.create(&PostParams::default(), &config_map("b", "1"))
        .await
        .unwrap();
    assert_eq!(events.next().await.unwrap().unwrap(), "apply b");
    // Watches end after a while and are taken up again where they ended: nothing is told twice, nothing is lost.
    assert!(
        tokio::time::timeout(Duration::from_secs(7200), events.next())
            .await
            .is_err()
    );
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap(), "delete a");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_follows() {
    follow(watcher::Config::default()).await;
}

#[tokio::test(start_paused = true)]
async fn a_watcher_follows_by_streaming_lists() {
    follow(watcher::Config::default().streaming_lists()).await;
}

#[tokio::test(start_paused = true)]
async fn selectors_turn_changes_into_additions_and_deletions() {
    let server = ApiServer::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let params = WatchParams::default().labels("on=yes").disable_bookmarks();
    let mut events = pin!(maps.watch(&params, "0").await.unwrap());
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    for label in [json!("yes"), json!("no")] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"on": label}}}));
        maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    }
    let last = maps.get("a").await.unwrap();
    let WatchEvent::Added(added) = events.try_next().await.unwrap().unwrap() else {
        panic!("not added")
    };
    assert_eq!(added.labels()["on"], "yes");
    let WatchEvent::Deleted(deleted) = events.try_next().await.unwrap().unwrap() else {
        panic!("not deleted")
    };
    assert_eq!(deleted.labels()["on"], "yes", "the last state that fitted");
    assert_eq!(deleted.resource_version(), last.resource_version());
}

#[tokio::test(start_paused = true)]
async fn too_old_revisions_are_expired() {
    let server = ApiServer::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let old = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap()
        .resource_version()
        .unwrap();
    maps.create(&PostParams::default(), &config_map("b", "1"))
        .await
        .unwrap();
    server.compact();
    let mut events = pin!(maps.watch(&WatchParams::default(), &old).await.unwrap());
    let WatchEvent::Error(status) = events.try_next().await.unwrap().unwrap() else {
        panic!("no error")
    };
    assert_eq!((status.code, &*status.reason), (410, "Expired"));
    assert!(events.try_next().await.unwrap().is_none());
}
