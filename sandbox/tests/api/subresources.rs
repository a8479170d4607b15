//! Scale, binding, eviction and logs.

use std::sync::Arc;

use futures::{AsyncReadExt, FutureExt, StreamExt, stream};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, ResourceExt,
    api::{EvictParams, LogParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use skerry_sandbox::{ApiServer, api::LogRequest};

use super::refused;

fn of<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

async fn deployed(server: &ApiServer) -> Api<Deployment> {
    let deployments: Api<Deployment> = Api::default_namespaced(server.client());
    let body = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    deployments.create(&PostParams::default(), &of(body)).await.unwrap();
    deployments
}

async fn running(server: &ApiServer) -> Api<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let body = json!({"metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    pods.create(&PostParams::default(), &of(body)).await.unwrap();
    let status = Patch::Merge(json!({"status": {"phase": "Running"}}));
    pods.patch_status("p", &PatchParams::default(), &status).await.unwrap();
    pods
}

#[tokio::test(start_paused = true)]
async fn a_scale_writes_replicas_and_owns_them() {
    let server = ApiServer::new();
    let deployments = deployed(&server).await;
    let scale = deployments.get_scale("d").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(1));
    assert_eq!(scale.status.unwrap().selector.as_deref(), Some("a=b"));
    let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let params = PatchParams {
        field_manager: Some("scaler".into()),
        ..PatchParams::default()
    };
    deployments.patch_scale("d", &params, &patch).await.unwrap();
    let scaled = deployments.get("d").await.unwrap();
    assert_eq!(
        (scaled.metadata.generation, scaled.spec.as_ref().unwrap().replicas),
        (Some(2), Some(3))
    );
    let entry = scaled
        .managed_fields()
        .iter()
        .find(|entry| entry.manager.as_deref() == Some("scaler"))
        .unwrap();
    assert_eq!(entry.subresource.as_deref(), Some("scale"));
    assert_eq!(
        entry.fields_v1.as_ref().unwrap().0,
        json!({"f:spec": {"f:replicas": {}}})
    );

    let apply = Patch::Apply(json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 5}}));
    let status = refused(deployments.patch_scale("d", &PatchParams::apply("other"), &apply).await);
    assert!(
        status
            .message
            .contains("conflict with \"scaler\" with subresource \"scale\""),
        "{}",
        status.message
    );
    let negative = Patch::Merge(json!({"spec": {"replicas": -1}}));
    let status = refused(deployments.patch_scale("d", &params, &negative).await);
    assert_eq!(
        status.message,
        "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_once() {
    let server = ApiServer::new();
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let body = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pods.create(&PostParams::default(), &of(body)).await.unwrap();
    let binding = |node: &str| {
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
            "target": {"kind": "Node", "name": node}})
    };
    let bind = async |node: &str| {
        pods.create_subresource::<Value, Value>("binding", "p", &PostParams::default(), &binding(node))
            .await
    };
    bind("n").await.unwrap();
    let pod = pods.get("p").await.unwrap();
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("n"));
    assert_eq!(pod.status.unwrap().conditions.unwrap()[0].type_, "PodScheduled");
    let status = refused(bind("m").await);
    assert_eq!(
        (status.code, &*status.message),
        (
            409,
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\""
        )
    );
}

#[tokio::test(start_paused = true)]
async fn pods_end_in_two_steps() {
    let server = ApiServer::new();
    let pods = running(&server).await;
    let before = server.clock().now().as_second();
    pods.delete("p", &kube::api::DeleteParams::default()).await.unwrap();
    let going = pods.get("p").await.unwrap().metadata;
    assert_eq!(
        (going.deletion_grace_period_seconds, going.generation),
        (Some(30), Some(2))
    );
    let at = going.deletion_timestamp.unwrap().0.as_second();
    assert!((before + 30..=before + 31).contains(&at));
    let params = kube::api::DeleteParams::default().grace_period(0);
    pods.delete("p", &params).await.unwrap();
    assert!(pods.get_opt("p").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn budgets_hold_evictions_back() {
    let server = ApiServer::new();
    let pods = running(&server).await;
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(server.client());
    let budget = json!({"metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    budgets.create(&PostParams::default(), &of(budget)).await.unwrap();
    let observed = |allowed: i32| {
        Patch::Merge(
            json!({"status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "desiredHealthy": 1,
            "currentHealthy": 1 + allowed}}),
        )
    };
    budgets
        .patch_status("b", &PatchParams::default(), &observed(0))
        .await
        .unwrap();
    let status = refused(pods.evict("p", &EvictParams::default()).await);
    assert_eq!(
        (status.code, &*status.message),
        (429, "Cannot evict pod as it would violate the pod's disruption budget.")
    );
    assert_eq!(
        status.details.unwrap().causes[0].message,
        "The disruption budget b needs 1 healthy pods and has 1 currently"
    );
    budgets
        .patch_status("b", &PatchParams::default(), &observed(1))
        .await
        .unwrap();
    pods.evict("p", &EvictParams::default()).await.unwrap();
    assert!(pods.get("p").await.unwrap().metadata.deletion_timestamp.is_some());
    assert_eq!(budgets.get("b").await.unwrap().status.unwrap().disruptions_allowed, 0);
}

#[tokio::test(start_paused = true)]
async fn logs_come_from_the_node() {
    let server = ApiServer::new();
    let pods = running(&server).await;
    let status = refused(pods.logs("p", &LogParams::default()).await);
    assert_eq!(status.message, "pods \"n\" not found");
    let source = |request: LogRequest| {
        let line = format!("{} {:?}\n", request.container, request.tail_lines);
        async move { Ok(stream::iter([Ok(line.into())]).boxed()) }.boxed()
    };
    server.set_log_source("n", Arc::new(source));
    let params = LogParams {
        tail_lines: Some(3),
        ..LogParams::default()
    };
    assert_eq!(pods.logs("p", &params).await.unwrap(), "c Some(3)\n");
    let mut followed = String::new();
    pods.log_stream("p", &params)
        .await
        .unwrap()
        .read_to_string(&mut followed)
        .await
        .unwrap();
    assert_eq!(followed, "c Some(3)\n");
    let wrong = LogParams {
        container: Some("x".into()),
        ..LogParams::default()
    };
    assert_eq!(
        refused(pods.logs("p", &wrong).await).message,
        "container x is not valid for pod p"
    );
}
