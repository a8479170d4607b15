//! The API server, seen through a real `kube` client under paused time.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "what is expected and not there fails the test"
)]

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

mod applying;
mod built_in;
mod custom;
mod faults;
mod subresources;
mod watching;

/// A config map with one entry.
fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"key": value}})).unwrap()
}

/// The `Status` of a request that must fail.
fn refused<T: std::fmt::Debug>(result: kube::Result<T>) -> kube::core::Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("not refused by the server: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn create_get_list_replace_patch_delete() {
    let server = skerry_sandbox::ApiServer::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());

    let created = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    assert!(created.uid().is_some() && created.resource_version().is_some() && created.creation_timestamp().is_some());
    let status = refused(maps.create(&PostParams::default(), &config_map("a", "1")).await);
    assert_eq!(
        (status.code, &*status.reason, &*status.message),
        (409, "AlreadyExists", "configmaps \"a\" already exists")
    );

    let mut changed = maps.get("a").await.unwrap();
    changed.data.as_mut().unwrap().insert("key".into(), "2".into());
    let changed = maps.replace("a", &PostParams::default(), &changed).await.unwrap();
    let status = refused(maps.replace("a", &PostParams::default(), &created).await);
    assert_eq!(
        (status.code, &*status.message),
        (
            409,
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
        )
    );

    let patch = Patch::Merge(json!({"data": {"key": null, "other": "3"}}));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(
        patched.data.clone().unwrap().into_iter().collect::<Vec<_>>(),
        [("other".into(), "3".into())]
    );
    assert_ne!(patched.resource_version(), changed.resource_version());
    let again = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(
        again.resource_version(),
        patched.resource_version(),
        "a patch without effect writes nothing"
    );

    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1);
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let status = refused(maps.get("a").await);
    assert_eq!((status.code, &*status.message), (404, "configmaps \"a\" not found"));
}

#[tokio::test(start_paused = true)]
async fn objects_need_their_namespace() {
    let server = skerry_sandbox::ApiServer::new();
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "nowhere");
    let status = refused(maps.create(&PostParams::default(), &config_map("a", "1")).await);
    assert_eq!(
        (status.code, &*status.message),
        (404, "namespaces \"nowhere\" not found")
    );
}

#[tokio::test(start_paused = true)]
async fn lists_page_by_page_tell_one_state() {
    let server = skerry_sandbox::ApiServer::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    for index in 0..5 {
        maps.create(&PostParams::default(), &config_map(&format!("m{index}"), "1"))
            .await
            .unwrap();
    }
    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    maps.delete("m3", &DeleteParams::default()).await.unwrap();
    maps.create(&PostParams::default(), &config_map("m9", "1"))
        .await
        .unwrap();

    let token = first.metadata.continue_.unwrap();
    let rest = maps.list(&ListParams::default().continue_token(&token)).await.unwrap();
    let names: Vec<_> = rest.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["m2", "m3", "m4"]);
    assert_eq!(rest.metadata.resource_version, first.metadata.resource_version);

    server.compact();
    let status = refused(maps.list(&ListParams::default().continue_token(&token)).await);
    assert_eq!((status.code, &*status.reason), (410, "Expired"));
}

#[tokio::test(start_paused = true)]
async fn dry_runs_store_nothing() {
    let server = skerry_sandbox::ApiServer::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    maps.create(&dry, &config_map("a", "1")).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
    assert_eq!(server.requests().writes_since(server.requests().mark()).len(), 0);
    let entry = &server.requests().all()[0];
    assert!(entry.request.dry_run && !entry.is_mutating());
}
