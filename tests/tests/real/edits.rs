//! `kubectl edit` where several write to one object: whoever applied it server-side, the manager that owns some of its
//! fields, and another editor.

use k8s_openapi::api::apps::v1::Deployment;
use skerry_crds::sedna::v1alpha1::JointInferenceService;

use crate::{CLOUD, Cluster, EDGE, READY, SERVICE};

/// An edit, and all that follows from it.
async fn edit(cluster: &Cluster, object: &str, old: &str, new: &str) {
    cluster.edit_text(object, old, new).await;
    cluster.settle().await;
}

/// `kubectl apply --server-side` of the service by a field manager.
fn apply_as<'a>(file: &'a str, manager: &'a str) -> [&'a str; 6] {
    ["apply", "--server-side", "-f", file, "--field-manager", manager]
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn an_edit_of_what_somebody_else_applied_is_carried_out_and_stands_until_they_force_theirs() {
    let cluster = Cluster::idle().await;
    let file = cluster.kubectl.file("service.yaml", SERVICE);
    cluster.kubectl.ok(&apply_as(&file, "pipeline")).await;
    cluster.settle().await;
    edit(&cluster, "ji/helmet", "example/little:v1", "example/little:v2").await;
    assert_eq!(cluster.image(EDGE).await, "example/little:v2");
    // Whoever applied it is told who changed it, and nothing of theirs is written.
    let refused = cluster.kubectl.fails(&apply_as(&file, "pipeline")).await;
    assert!(
        refused.contains(r#"conflict with "kubectl-edit""#) && refused.contains(".spec.edgeWorker.template"),
        "{refused}"
    );
    cluster.settle().await;
    assert_eq!(cluster.image(EDGE).await, "example/little:v2");
    let forced = [&apply_as(&file, "pipeline")[..], &["--force-conflicts"]].concat();
    cluster.kubectl.ok(&forced).await;
    cluster.settle().await;
    assert_eq!(cluster.image(EDGE).await, "example/little:v1");
    assert_eq!(
        cluster.condition::<JointInferenceService>("helmet", "Ready").await,
        READY
    );
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn an_edit_of_a_field_of_a_child_is_put_back_where_it_is_the_managers_and_kept_where_it_is_not() {
    let cluster = Cluster::at_work().await;
    let child = format!("deployment/{EDGE}");
    edit(&cluster, &child, "example/little:v1", "example/other:v1").await;
    assert_eq!(cluster.image(EDGE).await, "example/little:v1");
    edit(
        &cluster,
        &child,
        "progressDeadlineSeconds: 600",
        "progressDeadlineSeconds: 300",
    )
    .await;
    cluster.kubectl.ok(&["annotate", &child, "example.org/note=mine"]).await;
    cluster.restart_manager().await;
    cluster.settle().await;
    let kept = cluster.object::<Deployment>(EDGE).await;
    assert_eq!(kept["spec"]["progressDeadlineSeconds"], 300);
    assert_eq!(kept["metadata"]["annotations"]["example.org/note"], "mine");
    cluster.is_well().await;
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn whoever_forces_a_field_of_the_managers_loses_it_again() {
    let cluster = Cluster::at_work().await;
    let stolen = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {EDGE}}}\nspec:\n  template:\n    spec:\n      \
         containers: [{{name: little, image: example/other:v1}}]\n"
    );
    let file = cluster.kubectl.file("stolen.yaml", &stolen);
    let refused = cluster.kubectl.fails(&apply_as(&file, "thief")).await;
    assert!(refused.contains(r#"conflict with "skerry-globalmanager""#), "{refused}");
    cluster
        .kubectl
        .ok(&[&apply_as(&file, "thief")[..], &["--force-conflicts"]].concat())
        .await;
    cluster.settle().await;
    assert_eq!(cluster.image(EDGE).await, "example/little:v1");
    // The field is the manager's again: the next one who wants it is told so.
    let refused = cluster.kubectl.fails(&apply_as(&file, "another")).await;
    assert!(refused.contains(r#"conflict with "skerry-globalmanager""#), "{refused}");
    cluster.is_well().await;
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn of_two_who_edit_at_once_both_are_heard() {
    let cluster = Cluster::at_work().await;
    // While the editor is open, somebody else changes another field, and the manager its status.
    let meanwhile =
        r#"{"spec":{"cloudWorker":{"template":{"spec":{"containers":[{"name":"big","image":"example/big:v2"}]}}}}}"#;
    let script = format!(
        "kubectl patch ji helmet --type=merge -p '{meanwhile}' > /dev/null || exit 1\n\
         sed 's|example/little:v1|example/little:v2|' \"$1\" > \"$1.new\" && mv \"$1.new\" \"$1\"\n"
    );
    let edited = cluster.kubectl.edit_by("ji/helmet", &script).await;
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    cluster.settle().await;
    assert_eq!(cluster.image(EDGE).await, "example/little:v2");
    assert_eq!(cluster.image(CLOUD).await, "example/big:v2");
    cluster.is_well().await;
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn whoever_writes_what_was_changed_meanwhile_is_refused_and_nothing_of_it_is_carried_out() {
    let cluster = Cluster::at_work().await;
    let read = cluster.kubectl.ok(&["get", "ji", "helmet", "-o", "yaml"]).await;
    edit(&cluster, "ji/helmet", "example/little:v1", "example/little:v2").await;
    let stale = read.replace("example/big:v1", "example/big:v9");
    let file = cluster.kubectl.file("stale.yaml", &stale);
    let refused = cluster.kubectl.fails(&["replace", "-f", &file]).await;
    assert!(
        refused.contains("Conflict") && refused.contains("the object has been modified"),
        "{refused}"
    );
    cluster.settle().await;
    assert_eq!(cluster.image(EDGE).await, "example/little:v2");
    assert_eq!(cluster.image(CLOUD).await, "example/big:v1");
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn an_edit_that_the_schema_refuses_comes_back_into_the_editor_and_changes_nothing() {
    let cluster = Cluster::at_work().await;
    let before = cluster.very_children().await;
    let refused = cluster.kubectl.edit("ji/helmet", "name: small", "name: 3").await;
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("is invalid"), "{told}");
    // The reason is written into what the editor is given again, of which kubectl keeps a copy.
    let copy = told.split('"').find(|word| word.contains("kubectl-edit")).unwrap();
    let copy = std::fs::read_to_string(copy).unwrap();
    assert!(copy.contains("# * spec.edgeWorker.model.name: Invalid value"), "{copy}");
    cluster.settle().await;
    assert_eq!(cluster.very_children().await, before);
}
