//! Objects deleted, in each way, and waited for.

use crate::cluster::{Cluster, WEB};

async fn ready(cluster: &Cluster) {
    cluster.apply(WEB).await;
    cluster
        .ok(&["wait", "--for=condition=Available", "deployment/web", "--timeout=60s"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreground_deletion_takes_the_children_first() {
    let Some(cluster) = Cluster::start().await else { return };
    ready(&cluster).await;
    // The command waits for the deployment, which waits for its children.
    cluster
        .ok(&["delete", "deployment", "web", "--cascade=foreground", "--timeout=60s"])
        .await;
    assert_eq!(cluster.ok(&["get", "replicasets,pods", "-o", "name"]).await, "");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn background_deletion_takes_the_children_after() {
    let Some(cluster) = Cluster::start().await else { return };
    ready(&cluster).await;
    cluster.ok(&["delete", "deployment", "web"]).await;
    assert!(cluster.fails(&["get", "deployment", "web"]).await.contains("NotFound"));
    cluster
        .ok(&[
            "wait",
            "--for=delete",
            "replicasets,pods",
            "-l",
            "app=web",
            "--timeout=60s",
        ])
        .await;
    assert_eq!(cluster.ok(&["get", "replicasets,pods", "-o", "name"]).await, "");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphan_deletion_leaves_the_children_without_owner() {
    let Some(cluster) = Cluster::start().await else { return };
    ready(&cluster).await;
    let set = cluster.ok(&["get", "replicasets", "-o", "name"]).await;
    cluster
        .ok(&["delete", "deployment", "web", "--cascade=orphan", "--timeout=60s"])
        .await;
    assert_eq!(cluster.ok(&["get", "replicasets", "-o", "name"]).await, set);
    assert_eq!(cluster.field(set.trim(), ".metadata.ownerReferences").await, "");
    assert_eq!(cluster.field(set.trim(), ".status.readyReplicas").await, "2");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_when_it_comes_to_pass_or_time_is_up() {
    let Some(cluster) = Cluster::start().await else { return };
    ready(&cluster).await;
    let pods = cluster
        .ok(&[
            "wait",
            "--for=condition=Ready",
            "pods",
            "-l",
            "app=web",
            "--timeout=60s",
        ])
        .await;
    assert_eq!(pods.matches("condition met").count(), 2, "{pods}");
    cluster
        .apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept, finalizers: [example.test/kept]}\n")
        .await;
    cluster.ok(&["delete", "configmap", "kept", "--wait=false"]).await;
    let late = cluster
        .fails(&["wait", "--for=delete", "configmap/kept", "--timeout=1s"])
        .await;
    assert!(late.contains("timed out waiting for the condition"), "{late}");
    let before = cluster.watches_of_config_maps().await;
    // The wait is under way when its watch is open; then the object goes.
    let wait = cluster.ok(&["wait", "--for=delete", "configmap/kept", "--timeout=60s"]);
    let release = async {
        cluster.another_watch(before).await;
        let merge = r#"{"metadata":{"finalizers":null}}"#;
        cluster
            .ok(&["patch", "configmap", "kept", "--type=merge", "-p", merge])
            .await
    };
    let (told, _) = tokio::join!(wait, release);
    assert_eq!(told, "configmap/kept condition met\n");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_takes_its_content_along() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster
        .apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: gone}\n")
        .await;
    let web = cluster.file("web.yaml", WEB);
    cluster.ok(&["apply", "-n", "gone", "-f", &web]).await;
    cluster.ok(&["delete", "namespace", "gone", "--timeout=60s"]).await;
    assert_eq!(cluster.ok(&["get", "all", "-n", "gone", "-o", "name"]).await, "");
    let refused = cluster.fails(&["apply", "-n", "gone", "-f", &web]).await;
    assert!(refused.contains(r#"namespaces "gone" not found"#), "{refused}");
    let kept = cluster.fails(&["delete", "namespace", "default"]).await;
    assert!(
        kept.contains(r#"namespaces "default" is forbidden: this namespace may not be deleted"#),
        "{kept}"
    );
    cluster.end().await;
}
