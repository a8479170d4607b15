//! Our custom resources: definitions as the chart has them, and their objects.

use std::{fs, path::Path, time::Duration};

use serde_json::Value;
use skerry_tests::{kubectl::PATIENCE, samples::SERVICE};
use tokio::time::timeout;

use crate::cluster::Cluster;

fn definitions() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/skerry/files/crds");
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (
                path.file_stem().unwrap().to_str().unwrap().to_owned(),
                fs::read_to_string(path).unwrap(),
            )
        })
        .collect();
    all.sort();
    all
}

/// A cluster on which a user has made our definitions known.
async fn with_definitions() -> Option<Cluster> {
    let cluster = Cluster::start().await?;
    let all: Vec<_> = definitions().into_iter().map(|(_, text)| text).collect();
    cluster.apply(&all.join("\n---\n")).await;
    have_conditions(&cluster).await;
    cluster
        .ok(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"])
        .await;
    Some(cluster)
}

/// For a moment a new definition has no conditions at all, and then `kubectl wait` is an error.
async fn have_conditions(cluster: &Cluster) {
    let waiting = async {
        let mut look = tokio::time::interval(Duration::from_millis(100));
        loop {
            look.tick().await;
            let all = cluster.ok(&["get", "crd", "-o", "json"]).await;
            let all: Value = serde_json::from_str(&all).unwrap();
            let mut all = all["items"].as_array().unwrap().iter();
            if all.all(|definition| definition["status"]["conditions"].is_array()) {
                return;
            }
        }
    };
    timeout(PATIENCE, waiting)
        .await
        .expect("the definitions have conditions");
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_applied_both_ways() {
    let Some(cluster) = with_definitions().await else {
        return;
    };
    for (name, text) in definitions() {
        let file = cluster.file(&name, &text);
        assert!(
            cluster.ok(&["apply", "-f", &file]).await.ends_with("unchanged\n"),
            "{name}"
        );
        cluster
            .ok(&["apply", "--server-side", "--force-conflicts", "-f", &file])
            .await;
        assert_eq!(
            cluster.output(&["diff", "-f", &file]).await.status.code(),
            Some(0),
            "{name}"
        );
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_are_explained_listed_and_changed() {
    let Some(cluster) = with_definitions().await else {
        return;
    };
    let told = cluster.ok(&["explain", "jointinferenceservices.spec.edgeWorker"]).await;
    assert!(
        told.contains("hardExampleMining\t<Object>") && told.contains("GROUP:      sedna.io"),
        "{told}"
    );
    let resources = cluster
        .ok(&["api-resources", "--api-group", "sedna.io", "--no-headers"])
        .await;
    assert_eq!(
        resources.lines().count(),
        definitions()
            .iter()
            .filter(|(name, _)| name.starts_with("sedna.io"))
            .count()
    );

    cluster.apply(SERVICE).await;
    let changed = cluster.apply(&SERVICE.replace("large.pb", "larger.pb")).await;
    assert!(changed.contains("model.sedna.io/large configured"), "{changed}");
    assert_eq!(cluster.field("model/large", ".spec.url").await, "/var/models/larger.pb");
    let table = cluster.ok(&["get", "ji"]).await;
    assert!(
        table.starts_with("NAME") && table.contains("READY") && table.contains("helmet"),
        "{table}"
    );
    let merge = r#"{"spec":{"cloudWorker":{"model":{"name":"small"}}}}"#;
    cluster
        .ok(&["patch", "ji", "helmet", "--type", "merge", "-p", merge])
        .await;
    assert_eq!(
        cluster.field("ji/helmet", ".spec.cloudWorker.model.name").await,
        "small"
    );
    let strategic = cluster.fails(&["patch", "ji", "helmet", "-p", merge]).await;
    assert!(
        strategic.contains("application/strategic-merge-patch+json is not supported by sedna.io/v1alpha1"),
        "{strategic}"
    );
    let unscaled = cluster.fails(&["scale", "ji", "helmet", "--replicas=2"]).await;
    assert_eq!(
        unscaled,
        "Error from server (NotFound): jointinferenceservices.sedna.io \"helmet\" not found\n"
    );
    let status = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    cluster
        .ok(&[
            "patch",
            "ji",
            "helmet",
            "--subresource",
            "status",
            "--type",
            "merge",
            "-p",
            status,
        ])
        .await;
    cluster
        .ok(&["wait", "--for=condition=Ready", "ji/helmet", "--timeout=60s"])
        .await;
    assert_eq!(cluster.field("ji/helmet", ".metadata.generation").await, "2");
    let edited = cluster.edit("ji/helmet", "name: small", "name: large").await;
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    cluster.ok(&["delete", "ji,models", "--all", "--timeout=60s"]).await;

    // A definition takes its objects along.
    cluster.apply(SERVICE).await;
    cluster
        .ok(&["delete", "crd", "jointinferenceservices.sedna.io", "--timeout=60s"])
        .await;
    let gone = cluster.fails(&["get", "ji"]).await;
    assert!(
        gone.contains("the server could not find the requested resource"),
        "{gone}"
    );
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_in_a_manifest_is_refused_with_its_path() {
    let Some(cluster) = with_definitions().await else {
        return;
    };
    for (right, wrong, told) in [
        (
            "nodeName: edge-1",
            "nodeNaem: edge-1",
            r#"unknown field "spec.edgeWorker.template.spec.nodeNaem""#,
        ),
        (
            "            image: example/little:v1\n",
            "            image: [1]\n",
            "spec.edgeWorker.template.spec.containers[0].image",
        ),
        (
            "      name: small\n    hard",
            "      names: small\n    hard",
            "spec.edgeWorker.model.name: Required value",
        ),
        (
            "        containers:\n          - name: big\n            image: example/big:v1\n",
            "        hostNetwork: true\n",
            "spec.cloudWorker.template.spec.containers: Required value",
        ),
    ] {
        assert!(SERVICE.contains(right), "{right}");
        let file = cluster.file("wrong.yaml", &SERVICE.replace(right, wrong));
        // The first document at fault is the service; its models are taken.
        let why = match told {
            told if told.contains("Required") => cluster.fails(&["apply", "-f", &file, "--validate=ignore"]).await,
            _ => cluster.fails(&["apply", "-f", &file]).await,
        };
        assert!(why.contains(told), "{why}");
    }
    cluster.end().await;
}
