//! Server-side apply and field ownership.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use skerry_sandbox::ApiServer;

use super::{config_map, refused};

async fn apply(api: &Api<DynamicObject>, manager: &str, patch: Value) -> kube::Result<DynamicObject> {
    let name = patch["metadata"]["name"].as_str().unwrap().to_owned();
    api.patch(&name, &PatchParams::apply(manager), &Patch::Apply(patch))
        .await
}

fn deployments(server: &ApiServer) -> Api<DynamicObject> {
    let resource = kube::api::ApiResource::erase::<Deployment>(&());
    Api::default_namespaced_with(server.client(), &resource)
}

fn deployment(containers: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": containers}}}})
}

/// `managedFields` as `manager operation subresource` and the fields.
fn owners(object: &DynamicObject) -> Vec<(String, Value)> {
    let entries = object.managed_fields().iter();
    entries
        .map(|entry| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let owner = format!(
                "{} {} {}",
                text(&entry.manager),
                text(&entry.operation),
                text(&entry.subresource)
            );
            (owner.trim().to_owned(), entry.fields_v1.clone().unwrap().0)
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_applier_owns_what_it_applies_and_drops_what_it_no_longer_does() {
    let server = ApiServer::new();
    let api = deployments(&server);
    let both = json!([{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
        {"name": "b", "image": "b:1"}]);
    let created = apply(&api, "one", deployment(&both)).await.unwrap();
    assert_eq!(created.metadata.generation, Some(1));
    let [(owner, fields)] = &owners(&created)[..] else {
        panic!("{:?}", owners(&created))
    };
    assert_eq!(owner, "one Apply");
    let containers = &fields["f:spec"]["f:template"]["f:spec"]["f:containers"];
    assert_eq!(
        containers["k:{\"name\":\"a\"}"],
        json!({".": {}, "f:name": {}, "f:image": {}, "f:env": {
            "k:{\"name\":\"X\"}": {".": {}, "f:name": {}, "f:value": {}},
            "k:{\"name\":\"Y\"}": {".": {}, "f:name": {}, "f:value": {}}}})
    );
    assert_eq!(fields["f:spec"]["f:selector"], json!({}), "a selector is atomic");

    let one = json!([{"name": "a", "image": "a:1", "env": [{"name": "Y", "value": "2"}]}]);
    let applied = apply(&api, "one", deployment(&one)).await.unwrap();
    let containers = applied.data["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(containers.len(), 1);
    assert_eq!(containers[0]["env"], json!([{"name": "Y", "value": "2"}]));
    assert_eq!(applied.metadata.generation, Some(2));
}

#[tokio::test(start_paused = true)]
async fn applying_twice_changes_nothing() {
    let server = ApiServer::new();
    let api = deployments(&server);
    let patch = deployment(&json!([{"name": "a", "image": "a:1", "resources": {"limits": {"cpu": "1000m"}}}]));
    let first = apply(&api, "one", patch.clone()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let second = apply(&api, "one", patch).await.unwrap();
    assert_eq!(first.metadata, second.metadata);
}

#[tokio::test(start_paused = true)]
async fn conflicts_name_manager_and_field() {
    let server = ApiServer::new();
    let api = deployments(&server);
    apply(&api, "one", deployment(&json!([{"name": "a", "image": "a:1"}])))
        .await
        .unwrap();
    let theirs = deployment(&json!([{"name": "a", "image": "a:2"}]));
    let status = refused(apply(&api, "two", theirs.clone()).await);
    assert_eq!(
        (status.code, &*status.reason, &*status.message),
        (
            409,
            "Conflict",
            "Apply failed with 1 conflict: conflict with \"one\": \
             .spec.template.spec.containers[name=\"a\"].image"
        )
    );
    let cause = &status.details.unwrap().causes[0];
    assert_eq!(
        (&*cause.reason, &*cause.message),
        ("FieldManagerConflict", "conflict with \"one\"")
    );
    assert_eq!(cause.field, ".spec.template.spec.containers[name=\"a\"].image");

    let params = PatchParams::apply("two").force();
    let forced = api.patch("d", &params, &Patch::Apply(theirs)).await.unwrap();
    let owners = owners(&forced);
    let image = "/f:spec/f:template/f:spec/f:containers/k:{\"name\":\"a\"}/f:image";
    assert_eq!(owners[0].1.pointer(image), None, "{owners:?}");
    assert_eq!(owners[1].1.pointer(image), Some(&json!({})));
}

#[tokio::test(start_paused = true)]
async fn fields_of_others_stay() {
    let server = ApiServer::new();
    let api = deployments(&server);
    let mut patch = deployment(&json!([{"name": "a", "image": "a:1"}]));
    patch["spec"]["replicas"] = json!(2);
    apply(&api, "one", patch.clone()).await.unwrap();
    // Another takes the replicas over; the first gives them up without taking them away.
    let scale = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 2}});
    apply(&api, "two", scale).await.unwrap();
    patch["spec"].as_object_mut().unwrap().shift_remove("replicas");
    let applied = apply(&api, "one", patch).await.unwrap();
    assert_eq!(applied.data["spec"]["replicas"], 2);
    let owners = owners(&applied);
    let replicas = |owner: &str| {
        owners
            .iter()
            .find(|(name, _)| name == owner)
            .unwrap()
            .1
            .pointer("/f:spec/f:replicas")
    };
    assert_eq!((replicas("one Apply"), replicas("two Apply")), (None, Some(&json!({}))));
}

#[tokio::test(start_paused = true)]
async fn other_writes_are_owned_by_their_manager_and_conflict() {
    let server = ApiServer::new();
    let api: Api<DynamicObject> =
        Api::default_namespaced_with(server.client(), &kube::api::ApiResource::erase::<ConfigMap>(&()));
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let params = PostParams {
        field_manager: Some("editor".into()),
        ..PostParams::default()
    };
    maps.create(&params, &config_map("m", "1")).await.unwrap();
    let created = api.get("m").await.unwrap();
    let expected = ("editor Update".to_owned(), json!({"f:data": {".": {}, "f:key": {}}}));
    assert_eq!(owners(&created), [expected]);
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"key": "2"}});
    let status = refused(apply(&api, "one", patch).await);
    assert!(
        status
            .message
            .starts_with("Apply failed with 1 conflict: conflict with \"editor\" using v1: .data.key"),
        "{}",
        status.message
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_from_before_ownership_belongs_to_before_first_apply() {
    let server = ApiServer::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    maps.create(&PostParams::default(), &config_map("m", "1"))
        .await
        .unwrap();
    let reset = Patch::Merge(json!({"metadata": {"managedFields": [{}]}}));
    let bare = maps.patch("m", &PatchParams::default(), &reset).await.unwrap();
    assert!(bare.metadata.managed_fields.is_none());
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"key": "2"}});
    let status = refused(maps.patch("m", &PatchParams::apply("one"), &Patch::Apply(&patch)).await);
    assert!(
        status.message.contains("\"before-first-apply\" using v1"),
        "{}",
        status.message
    );
}

#[tokio::test(start_paused = true)]
async fn bad_applies_are_refused() {
    let server = ApiServer::new();
    let api = deployments(&server);
    let twice = json!([{"name": "a", "image": "a:1"}, {"name": "a", "image": "a:2"}]);
    let status = refused(apply(&api, "one", deployment(&twice)).await);
    assert!(
        status
            .message
            .ends_with(".spec.template.spec.containers: duplicate entries for key [name=\"a\"]"),
        "{}",
        status.message
    );
    let mut unknown = deployment(&json!([{"name": "a", "image": "a:1"}]));
    unknown["spec"]["replica"] = json!(1);
    let status = refused(apply(&api, "one", unknown).await);
    assert_eq!(
        status.message,
        "failed to create typed patch object (/d; apps/v1, Kind=Deployment): .spec.replica: field not declared \
         in schema"
    );
    let nameless = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "e"}});
    let status = refused(
        api.patch("d", &PatchParams::apply("one"), &Patch::Apply(nameless))
            .await,
    );
    assert_eq!(
        status.message,
        "the name of the object (e) does not match the name on the URL (d)"
    );
}
