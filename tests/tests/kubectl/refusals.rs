//! What the server refuses of the built-in kinds, and how it is told.

use crate::cluster::{Cluster, WEB};

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_told_with_their_path() {
    let Some(cluster) = Cluster::start().await else { return };
    for (right, wrong, told) in [
        (
            "replicas: 2",
            "replica: 2",
            r#"strict decoding error: unknown field "spec.replica""#,
        ),
        (
            "matchLabels: {app: web}",
            "matchLabels: {app: other}",
            "`selector` does not match template `labels`",
        ),
        (
            "{name: main, image: 'sleeper:1', ",
            "{name: Main_1, image: 'sleeper:1', ",
            "spec.template.spec.containers[0].name",
        ),
        (
            "containerPort: 80",
            "containerPort: 99999",
            "must be between 1 and 65535, inclusive",
        ),
        (
            "metadata: {name: web, labels",
            "metadata: {name: Web, labels",
            "a lowercase RFC 1123 subdomain must consist of",
        ),
    ] {
        assert!(WEB.contains(right), "{right}");
        let file = cluster.file("wrong.yaml", &WEB.replace(right, wrong));
        let why = cluster.fails(&["apply", "-f", &file]).await;
        assert!(why.contains(told), "{why}");
    }
    // Without strictness an unknown field is told and left out.
    let file = cluster.file("lax.yaml", &WEB.replace("replicas: 2", "replica: 2"));
    let lax = cluster.output(&["apply", "-f", &file, "--validate=warn"]).await;
    let warning = String::from_utf8_lossy(&lax.stderr);
    assert!(
        lax.status.success() && warning.contains(r#"Warning: unknown field "spec.replica""#),
        "{warning}"
    );
    assert_eq!(cluster.field("deployment/web", ".spec.replicas").await, "1");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_change_does_not() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.apply(WEB).await;
    let moved = WEB.replace("app: web}", "app: moved}");
    let file = cluster.file("moved.yaml", &moved);
    let why = cluster.fails(&["apply", "-f", &file]).await;
    assert!(
        why.contains("spec.selector") && why.contains("field is immutable"),
        "{why}"
    );
    cluster.end().await;
}
