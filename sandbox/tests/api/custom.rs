//! Custom resources: served from the moment of their definition, gone with it.

use futures::{StreamExt, pin_mut};
use k8s_openapi::{
    api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    runtime::{Controller, controller::Action, watcher},
};
use serde_json::json;
use skerry_sandbox::ApiServer;
use std::{sync::Arc, time::Duration};

use super::refused;

/// A definition with a status subresource.
pub(crate) fn definition() -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": {"name": "boats.test.io"},
        "spec": {
            "group": "test.io", "scope": "Namespaced",
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .unwrap()
}

/// The type of the boats.
pub(crate) fn boats() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("test.io", "v1", "Boat"), "boats")
}

fn boat(name: &str) -> DynamicObject {
    DynamicObject::new(name, &boats()).data(json!({"spec": {"sails": 1}}))
}

#[tokio::test(start_paused = true)]
async fn a_number_that_is_kept_already_is_not_written_again() {
    let server = ApiServer::new();
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    definitions.create(&PostParams::default(), &definition()).await.unwrap();
    let api: Api<DynamicObject> = Api::default_namespaced_with(server.client(), &boats());
    api.create(&PostParams::default(), &boat("a")).await.unwrap();
    let status = |sailed| Patch::Merge(json!({"status": {"sailed": sailed, "ports": [sailed]}}));
    let kept = api
        .patch_status("a", &PatchParams::default(), &status(json!(5)))
        .await
        .unwrap();
    // As somebody else writes it, in another language.
    let other = PatchParams {
        field_manager: Some("other".to_owned()),
        ..PatchParams::default()
    };
    let again = api.patch_status("a", &other, &status(json!(5.0))).await.unwrap();
    assert_eq!(again, kept, "nobody is told of a change");
    let changed = api.patch_status("a", &other, &status(json!(5.5))).await.unwrap();
    assert_ne!(changed.resource_version(), kept.resource_version());
}

#[tokio::test(start_paused = true)]
async fn a_definition_serves_and_takes_its_objects_along() {
    let server = ApiServer::new();
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    let api: Api<DynamicObject> = Api::default_namespaced_with(server.client(), &boats());
    assert!(matches!(api.get("a").await, Err(kube::Error::Api(status)) if status.code == 404));

    definitions.create(&PostParams::default(), &definition()).await.unwrap();
    let conditions = definitions
        .get("boats.test.io")
        .await
        .unwrap()
        .status
        .unwrap()
        .conditions
        .unwrap();
    assert!(
        conditions
            .iter()
            .any(|condition| condition.type_ == "Established" && condition.status == "True")
    );

    let created = api.create(&PostParams::default(), &boat("a")).await.unwrap();
    assert_eq!(created.meta().generation, Some(1));
    let status = Patch::Merge(json!({"spec": {"sails": 2}, "status": {"afloat": true}}));
    let patched = api.patch_status("a", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(
        (patched.meta().generation, &patched.data["spec"]["sails"]),
        (Some(1), &json!(1))
    );
    let patched = api.patch("a", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(
        (patched.meta().generation, &patched.data["spec"]["sails"]),
        (Some(2), &json!(2))
    );
    let patch = Patch::Merge(json!({"status": {"afloat": false}, "metadata": {"labels": {"a": "b"}}}));
    let patched = api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(
        (patched.meta().generation, &patched.data["status"]["afloat"]),
        (Some(2), &json!(true))
    );

    definitions
        .delete("boats.test.io", &DeleteParams::default())
        .await
        .unwrap();
    assert!(definitions.get_opt("boats.test.io").await.unwrap().is_none());
    assert!(matches!(api.get("a").await, Err(kube::Error::Api(status)) if status.code == 404));
    definitions.create(&PostParams::default(), &definition()).await.unwrap();
    assert_eq!(refused(api.get("a").await).message, "boats.test.io \"a\" not found");
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object_and_its_definition() {
    let server = ApiServer::new();
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    let api: Api<DynamicObject> = Api::default_namespaced_with(server.client(), &boats());
    definitions.create(&PostParams::default(), &definition()).await.unwrap();
    let mut held = boat("a");
    held.finalizers_mut().push("test.io/held".into());
    api.create(&PostParams::default(), &held).await.unwrap();

    definitions
        .delete("boats.test.io", &DeleteParams::default())
        .await
        .unwrap();
    let waiting = api.get("a").await.unwrap();
    assert_eq!(
        (waiting.meta().generation, waiting.meta().deletion_grace_period_seconds),
        (Some(2), Some(0))
    );
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert!(definitions.get_opt("boats.test.io").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_controller_makes_a_child_per_object() {
    let server = ApiServer::new();
    let client = server.client_as("controller");
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    definitions.create(&PostParams::default(), &definition()).await.unwrap();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &boats());

    let reconcile = |boat: Arc<DynamicObject>, client: Arc<kube::Client>| async move {
        let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), &boat.namespace().unwrap());
        let owner = boat.controller_owner_ref(&boats()).unwrap();
        let child = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": boat.name_any(), "ownerReferences": [owner]}, "data": {"made": "yes"}});
        maps.patch(
            &boat.name_any(),
            &PatchParams::apply("test").force(),
            &Patch::Apply(child),
        )
        .await?;
        Ok::<_, kube::Error>(Action::await_change())
    };
    let controller = Controller::new_with(api, watcher::Config::default(), boats())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new(client),
        );
    let boats: Api<DynamicObject> = Api::default_namespaced_with(server.client(), &boats());
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    boats.create(&PostParams::default(), &boat("a")).await.unwrap();
    pin_mut!(controller);
    while maps.get_opt("a").await.unwrap().is_none() {
        controller.next().await.unwrap().unwrap();
    }
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    while maps.get_opt("a").await.unwrap().is_none() {
        controller.next().await.unwrap().unwrap();
    }
    // Wait until all is quiet; then an hour passes without a write.
    while tokio::time::timeout(Duration::from_secs(60), controller.next())
        .await
        .is_ok()
    {}
    let mark = server.requests().mark();
    assert!(
        tokio::time::timeout(Duration::from_secs(3600), controller.next())
            .await
            .is_err()
    );
    assert_eq!(server.requests().writes_since(mark).len(), 0);
}
