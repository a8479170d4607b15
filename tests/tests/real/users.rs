//! What users type, from the first manifest to the last deletion, with a manager at work.

use std::{fs, path::Path};

use skerry_crds::sedna::v1alpha1::JointInferenceService;
use skerry_tests::World;

use crate::{CLOUD, Cluster, EDGE, JOB, SERVICE};

/// What an annotation may hold at most, all of an object's together.
const ANNOTATIONS: usize = 256 * 1024;

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn all_definitions_are_applied_client_side_and_fit_into_the_annotation_of_that() {
    let cluster = Cluster::of(World::without_crds().await);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/skerry/files/crds");
    let files = fs::read_dir(&folder).unwrap().count();
    let folder = folder.to_str().unwrap();
    let made = cluster.kubectl.ok(&["apply", "-f", folder]).await;
    assert_eq!(
        made.lines().filter(|line| line.ends_with(" created")).count(),
        files,
        "{made}"
    );
    let again = cluster.kubectl.ok(&["apply", "-f", folder]).await;
    assert_eq!(
        again.lines().filter(|line| line.ends_with(" unchanged")).count(),
        files,
        "{again}"
    );
    let established = "--for=condition=Established";
    cluster
        .kubectl
        .ok(&["wait", established, "crd", "--all", "--timeout=60s"])
        .await;
    assert_eq!(
        cluster.kubectl.output(&["diff", "-f", folder]).await.status.code(),
        Some(0)
    );
    let applied =
        r"jsonpath={range .items[*]}{.metadata.annotations.kubectl\.kubernetes\.io/last-applied-configuration}{end}";
    let largest = cluster.kubectl.ok(&["get", "crd", "-o", applied]).await;
    let largest = largest.lines().map(str::len).max().unwrap_or_default();
    assert!((1..ANNOTATIONS).contains(&largest), "{largest}");
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn what_users_type_from_the_first_manifest_to_the_last_deletion() {
    let cluster = Cluster::idle().await;
    let kubectl = &cluster.kubectl;
    kubectl.apply(SERVICE).await;
    kubectl.apply(JOB).await;
    kubectl
        .ok(&["wait", "ji/helmet", "--for=condition=Ready", "--timeout=60s"])
        .await;
    kubectl
        .ok(&[
            "wait",
            "fl/surface",
            "--for=jsonpath={.status.phase}=Running",
            "--timeout=60s",
        ])
        .await;
    for deployment in [EDGE, CLOUD] {
        let told = cluster.rolled_out(deployment).await;
        assert!(told.contains("successfully rolled out"), "{told}");
    }
    // Applied again, nothing changes, and nothing differs.
    let again = kubectl.apply(SERVICE).await;
    assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
    let file = kubectl.file("service.yaml", SERVICE);
    assert_eq!(kubectl.output(&["diff", "-f", &file]).await.status.code(), Some(0));

    let row = |table: String| -> Vec<String> { table.split_whitespace().map(str::to_owned).collect() };
    let service = row(kubectl.ok(&["get", "ji", "helmet", "--no-headers"]).await);
    assert_eq!(service[..2], ["helmet", "True"], "{service:?}");
    let job = row(kubectl.ok(&["get", "fl", "surface", "--no-headers"]).await);
    assert_eq!(job[..2], ["surface", "Running"], "{job:?}");
    let told = kubectl.ok(&["describe", "ji", "helmet"]).await;
    assert!(told.contains("WorkersAvailable"), "{told}");
    for kind in ["ji", "fl", "models", "datasets"] {
        let told = kubectl.ok(&["explain", &format!("{kind}.spec")]).await;
        assert!(
            told.contains("GROUP:      sedna.io") && told.contains("FIELDS:"),
            "{told}"
        );
    }

    // An edit goes into the one Deployment that it is about, and is followed as any roll-out is.
    let cloud = cluster
        .kubectl
        .field(&format!("deployment/{CLOUD}"), ".metadata.generation")
        .await;
    cluster
        .edit_text("ji/helmet", "example/little:v1", "example/little:v2")
        .await;
    let child = format!("deployment/{EDGE}");
    let image = "--for=jsonpath={.spec.template.spec.containers[0].image}=example/little:v2";
    kubectl.ok(&["wait", &child, image, "--timeout=60s"]).await;
    cluster.rolled_out(EDGE).await;
    assert_eq!(
        kubectl
            .field(&format!("deployment/{CLOUD}"), ".metadata.generation")
            .await,
        cloud
    );
    cluster.settle().await;
    // There is no way back but another edit.
    let history = kubectl.ok(&["rollout", "history", &child]).await;
    assert!(history.contains("CHANGE-CAUSE\n2         <none>\n"), "{history}");

    // Neither kind has a scale; that of a child is the manager's where there is no autoscaler.
    let none = kubectl.fails(&["scale", "ji", "helmet", "--replicas=2"]).await;
    assert!(none.contains("NotFound"), "{none}");
    kubectl.ok(&["scale", "deployment", EDGE, "--replicas=2"]).await;
    cluster.settle().await;
    assert_eq!(kubectl.field(&child, ".spec.replicas").await, "1");
    cluster.is_well().await;

    kubectl
        .ok(&["delete", "ji/helmet", "--cascade=foreground", "--timeout=60s"])
        .await;
    assert_eq!(cluster.find::<JointInferenceService>("helmet").await, None);
    kubectl
        .ok(&["delete", "fl,datasets,models", "--all", "--timeout=60s"])
        .await;
    cluster.is_all_there_is(&[], "").await;
}
