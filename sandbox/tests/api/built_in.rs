//! Built-in kinds: defaults, normal forms, what is refused.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Pod, Secret, Service},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use skerry_sandbox::ApiServer;

use super::refused;

fn of<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str) -> Pod {
    of(json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "1000m"}}}]}}))
}

/// Sends a request as it is, without a type in between.
async fn post(server: &ApiServer, path: &str, body: &Value) -> kube::Result<Value> {
    let request = http::Request::post(path).header("content-type", "application/json");
    server
        .client()
        .request(request.body(body.to_string().into_bytes()).unwrap())
        .await
}

/// What a server warns of in its answer to a request that succeeds.
async fn warnings(server: &ApiServer, request: http::request::Builder, body: &Value) -> Vec<String> {
    let request = request.header("content-type", "application/merge-patch+json");
    let body = kube::client::Body::from(body.to_string().into_bytes());
    let answer = server.client().send(request.body(body).unwrap()).await.unwrap();
    assert!(answer.status().is_success(), "{answer:?}");
    let warnings = answer.headers().get_all(http::header::WARNING).iter();
    warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_headless_service_that_is_to_be_sticky_is_taken_with_a_warning() {
    let server = ApiServer::new();
    let path = "/api/v1/namespaces/default/services";
    let headless = json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}});
    post(&server, path, &headless).await.unwrap();
    let said = "299 - \"spec.SessionAffinity is ignored for headless services\"";
    let request = || http::Request::patch(format!("{path}/s"));
    for (affinity, wanted) in [("ClientIP", vec![said]), ("None", vec![])] {
        let affinity = json!({"spec": {"sessionAffinity": affinity}});
        assert_eq!(warnings(&server, request(), &affinity).await, wanted);
        assert_eq!(
            warnings(&server, request(), &affinity).await,
            wanted,
            "though nothing changes"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn pods_are_completed_and_written_in_one_way() {
    let server = ApiServer::new();
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let created = pods.create(&PostParams::default(), &pod("p")).await.unwrap();
    let spec = created.spec.unwrap();
    assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
    assert_eq!(spec.service_account_name.as_deref(), Some("default"));
    let resources = spec.containers[0].resources.as_ref().unwrap();
    assert_eq!(resources.limits.as_ref().unwrap()["cpu"].0, "1");
    assert_eq!(resources.requests.as_ref().unwrap()["cpu"].0, "1");
    let status = created.status.unwrap();
    assert_eq!(
        (status.phase.as_deref(), status.qos_class.as_deref()),
        (Some("Pending"), Some("Burstable"))
    );
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_a_bad_request() {
    let server = ApiServer::new();
    let path = "/api/v1/namespaces/default/pods";
    let wrong = json!({"metadata": {"name": "p"}, "spec": {"hostNetwork": "yes", "containers": []}});
    assert_eq!(
        refused(post(&server, path, &wrong).await).message,
        "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal string into Go struct field \
         PodSpec.spec.hostNetwork of type bool"
    );
    let unknown = json!({"metadata": {"name": "p"}, "spec": {"container": []}});
    assert_eq!(
        refused(post(&server, &format!("{path}?fieldValidation=Strict"), &unknown).await).message,
        "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"spec.container\""
    );
    let quantity = json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"limits": {"cpu": "much"}}}]}});
    assert!(
        refused(post(&server, path, &quantity).await)
            .message
            .contains("quantities must match")
    );
}

#[tokio::test(start_paused = true)]
async fn what_breaks_the_rules_is_invalid() {
    let server = ApiServer::new();
    let status = refused(
        post(
            &server,
            "/api/v1/namespaces/default/pods",
            &json!({"metadata": {"name": "P"}, "spec": {}}),
        )
        .await,
    );
    assert_eq!((status.code, &*status.reason), (422, "Invalid"));
    assert!(
        status
            .message
            .starts_with("Pod \"P\" is invalid: [metadata.name: Invalid value: \"P\": "),
        "{status:?}"
    );
    assert!(status.message.ends_with("spec.containers: Required value]"));
    let causes: Vec<_> = status
        .details
        .unwrap()
        .causes
        .iter()
        .map(|cause| cause.field.clone())
        .collect();
    assert_eq!(causes, ["metadata.name", "spec.containers"]);

    let deployments: Api<Deployment> = Api::default_namespaced(server.client());
    let deployment = |label: &str| -> Deployment {
        of(
            json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": label}},
            "template": {"metadata": {"labels": {"a": label}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
        )
    };
    deployments
        .create(&PostParams::default(), &deployment("1"))
        .await
        .unwrap();
    let mut changed = deployment("2");
    changed.metadata.resource_version = deployments.get("d").await.unwrap().resource_version();
    let status = refused(deployments.replace("d", &PostParams::default(), &changed).await);
    assert!(status.message.ends_with("field is immutable"), "{}", status.message);
}

#[tokio::test(start_paused = true)]
async fn owners_have_one_controller() {
    let server = ApiServer::new();
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true});
    let map = json!({"metadata": {"name": "m", "ownerReferences": [owner("a"), owner("b")]}});
    let status = refused(post(&server, "/api/v1/namespaces/default/configmaps", &map).await);
    assert!(
        status
            .message
            .contains("Only one reference can have Controller set to true"),
        "{}",
        status.message
    );
}

#[tokio::test(start_paused = true)]
async fn generation_follows_the_spec() {
    let server = ApiServer::new();
    let deployments: Api<Deployment> = Api::default_namespaced(server.client());
    let body = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    deployments.create(&PostParams::default(), &of(body)).await.unwrap();
    for (patch, generation) in [
        (json!({"metadata": {"labels": {"x": "y"}}}), 1),
        (json!({"spec": {"replicas": 3}}), 2),
        (json!({"spec": {"replicas": 3}}), 2),
        (json!({"metadata": {"annotations": {"x": "y"}}}), 3),
        (json!({"status": {"replicas": 3}}), 3),
    ] {
        let patched = deployments
            .patch("d", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
        assert_eq!(patched.metadata.generation, Some(generation), "{patch}");
        assert_eq!(patched.status.unwrap().replicas, None);
    }
    let status = Patch::Merge(json!({"status": {"replicas": 3}, "spec": {"replicas": 9}}));
    let patched = deployments
        .patch_status("d", &PatchParams::default(), &status)
        .await
        .unwrap();
    assert_eq!(
        (patched.metadata.generation, patched.spec.unwrap().replicas),
        (Some(3), Some(3))
    );
    assert_eq!(patched.status.unwrap().replicas, Some(3));
}

#[tokio::test(start_paused = true)]
async fn services_keep_their_loopback_address() {
    let server = ApiServer::new();
    let services: Api<Service> = Api::default_namespaced(server.client());
    let body = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let created = services.create(&PostParams::default(), &of(body)).await.unwrap();
    let address = created.spec.unwrap().cluster_ip.unwrap();
    assert!(address.starts_with("127.96."), "{address}");
    let patch = Patch::Merge(json!({"spec": {"clusterIP": "127.96.9.9"}}));
    let status = refused(services.patch("s", &PatchParams::default(), &patch).await);
    assert!(status.message.contains("may not change once set"), "{}", status.message);
    services.delete("s", &DeleteParams::default()).await.unwrap();
    let make = async |name: &str, address: Option<&str>| {
        let spec = json!({"clusterIP": address.unwrap_or_default(), "ports": [{"port": 80}]});
        let body = json!({"metadata": {"name": name}, "spec": spec});
        let made = services.create(&PostParams::default(), &of(body)).await.unwrap();
        made.spec.unwrap().cluster_ip.unwrap()
    };
    // One that was given back is given to nobody else soon, unless it is asked for.
    let second = make("second", None).await;
    assert_eq!(make("again", Some(&address)).await, address);
    for name in ["second", "again"] {
        services.delete(name, &DeleteParams::default()).await.unwrap();
    }
    let third = make("third", None).await;
    assert!(![&address, &second].contains(&&third), "{third}");
}

#[tokio::test(start_paused = true)]
async fn secrets_take_text() {
    let server = ApiServer::new();
    let secrets: Api<Secret> = Api::default_namespaced(server.client());
    let body = json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}});
    let created = secrets.create(&PostParams::default(), &of(body)).await.unwrap();
    assert_eq!(created.data.unwrap()["a"].0, b"b");
    assert_eq!((created.type_.as_deref(), created.string_data), (Some("Opaque"), None));
}

#[tokio::test(start_paused = true)]
async fn namespaces_stay_until_they_are_finalized() {
    let server = ApiServer::new();
    let namespaces: Api<Namespace> = Api::all(server.client());
    let created = namespaces
        .create(&PostParams::default(), &of(json!({"metadata": {"name": "n"}})))
        .await
        .unwrap();
    assert_eq!(created.labels()["kubernetes.io/metadata.name"], "n");
    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
    let mut going = namespaces.get("n").await.unwrap();
    assert_eq!(going.status.as_ref().unwrap().phase.as_deref(), Some("Terminating"));
    let pods: Api<Pod> = Api::namespaced(server.client(), "n");
    let status = refused(pods.create(&PostParams::default(), &pod("q")).await);
    assert_eq!(
        (status.code, &*status.message),
        (
            403,
            "pods \"q\" is forbidden: unable to create new content in namespace n because it is being terminated"
        )
    );
    // The main endpoint does not finalize.
    going.spec.as_mut().unwrap().finalizers = None;
    let kept = namespaces.replace("n", &PostParams::default(), &going).await.unwrap();
    assert_eq!(kept.spec.unwrap().finalizers.unwrap(), ["kubernetes"]);
    going.metadata.resource_version = None;
    namespaces
        .replace_subresource("finalize", "n", &PostParams::default(), &going)
        .await
        .unwrap();
    assert!(namespaces.get_opt("n").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_does_not_exist_is_told_apart() {
    let server = ApiServer::new();
    let get = |path: &'static str| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let client = server.client();
        async move { client.request_text(request).await }
    };
    let known = refused(get("/apis/apps/v1/namespaces/default/boats").await);
    assert_eq!(known.message, "the server could not find the requested resource");
    let unknown = refused(get("/apis/boats.io/v1/boats").await);
    assert!(unknown.message.contains("404 page not found"), "{unknown:?}");
    let status = refused(post(&server, "/api/v1/nodes/n", &json!({})).await);
    assert_eq!((status.code, &*status.reason), (405, "MethodNotAllowed"));
}
