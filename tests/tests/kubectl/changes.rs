//! Objects made and changed: `apply` both ways, `diff`, `edit`, `patch`, `scale`, `label`, `annotate`, `create`,
//! `replace`, and the commands that need no manifest.

use crate::cluster::{Cluster, WEB};

#[tokio::test(flavor = "multi_thread")]
async fn apply_changes_what_differs_and_nothing_else() {
    let Some(cluster) = Cluster::start().await else { return };
    assert_eq!(
        cluster.apply(WEB).await,
        "deployment.apps/web created\nservice/web created\n"
    );
    assert_eq!(
        cluster.apply(WEB).await,
        "deployment.apps/web unchanged\nservice/web unchanged\n"
    );
    let red = cluster.file("red.yaml", WEB);
    let blue = cluster.file(
        "blue.yaml",
        &WEB.replace("red", "blue").replace("replicas: 2", "replicas: 1"),
    );

    // A difference is told by the exit code 1.
    assert_eq!(cluster.output(&["diff", "-f", &red]).await.status.code(), Some(0));
    let diff = cluster.output(&["diff", "-f", &blue]).await;
    let told = String::from_utf8(diff.stdout).unwrap();
    assert_eq!(diff.status.code(), Some(1), "{told}");
    let changes: Vec<_> = told
        .lines()
        .filter(|l| l.starts_with("+ ") || l.starts_with("- "))
        .map(str::trim_end)
        .collect();
    assert_eq!(
        changes,
        [
            "-  generation: 1",
            "+  generation: 2",
            "-  replicas: 2",
            "+  replicas: 1",
            "-          value: red",
            "+          value: blue",
        ],
        "{told}"
    );

    cluster.ok(&["apply", "-f", &blue]).await;
    assert_eq!(
        cluster
            .field("deployment/web", ".spec.template.spec.containers[0].env[0].value")
            .await,
        "blue"
    );
    // The port was not in the change, and is still there.
    assert_eq!(cluster.field("deployment/web", "..containerPort").await, "80");
    // What is taken out of the manifest goes; what the server added stays.
    let bare = WEB.replace(", env: [{name: COLOUR, value: red}]", "");
    cluster.apply(&bare).await;
    assert_eq!(cluster.field("deployment/web", "..containers[0].env").await, "");
    assert_eq!(
        cluster.field("deployment/web", ".spec.strategy.type").await,
        "RollingUpdate"
    );
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_side_apply_keeps_owners_apart() {
    let Some(cluster) = Cluster::start().await else { return };
    let map = |value: &str, more: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: shared}}\ndata: {{colour: {value}{more}}}\n")
    };
    let (red, blue) = (
        cluster.file("red.yaml", &map("red", "")),
        cluster.file("blue.yaml", &map("blue", ", size: big")),
    );
    let apply = |file: &str, manager: &str| {
        ["apply", "--server-side", "-f", file, "--field-manager", manager].map(str::to_owned)
    };
    let words = |args: &[String; 6]| -> Vec<&'static str> { args.iter().map(|a| &*a.clone().leak()).collect() };
    let (first, second) = (words(&apply(&red, "one")), words(&apply(&blue, "two")));
    assert_eq!(cluster.ok(&first).await, "configmap/shared serverside-applied\n");
    let conflict = cluster.fails(&second).await;
    assert!(
        conflict.contains(r#"Apply failed with 1 conflict: conflict with "one": .data.colour"#),
        "{conflict}"
    );
    let forced: Vec<_> = second.iter().copied().chain(["--force-conflicts"]).collect();
    cluster.ok(&forced).await;
    assert_eq!(
        cluster.field("configmap/shared", ".data").await,
        r#"{"colour":"blue","size":"big"}"#
    );
    let managers = cluster
        .ok(&[
            "get",
            "cm",
            "shared",
            "-o",
            "jsonpath={.metadata.managedFields[*].manager}",
            "--show-managed-fields",
        ])
        .await;
    assert_eq!(managers, "two");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_edited_in_an_editor() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.apply(WEB).await;
    let edited = cluster.edit("deployment/web", "value: red", "value: green").await;
    assert_eq!(String::from_utf8_lossy(&edited.stdout), "deployment.apps/web edited\n");
    assert_eq!(cluster.field("deployment/web", "..env[0].value").await, "green");
    // What the server refuses comes back into the editor, which leaves it as it is.
    let refused = cluster.edit("deployment/web", "replicas: 2", "replicas: -2").await;
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && told.contains("deployments.apps \"web\" is invalid"),
        "{told}"
    );
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_three_kinds_of_patches_are_taken() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.apply(WEB).await;
    // Merged by the containers' names: the image stays.
    let strategic =
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"SIZE","value":"big"}]}]}}}}"#;
    cluster.ok(&["patch", "deployment", "web", "-p", strategic]).await;
    assert_eq!(cluster.field("deployment/web", "..env[*].name").await, "SIZE COLOUR");
    assert_eq!(cluster.field("deployment/web", "..image").await, "sleeper:1");
    let merge = r#"{"metadata":{"labels":{"tier":"front","app":null}}}"#;
    cluster
        .ok(&["patch", "deployment", "web", "--type", "merge", "-p", merge])
        .await;
    assert_eq!(
        cluster.field("deployment/web", ".metadata.labels").await,
        r#"{"tier":"front"}"#
    );
    let json =
        r#"[{"op":"test","path":"/spec/replicas","value":2},{"op":"replace","path":"/spec/replicas","value":1}]"#;
    cluster
        .ok(&["patch", "deployment", "web", "--type", "json", "-p", json])
        .await;
    assert_eq!(cluster.field("deployment/web", ".spec.replicas").await, "1");
    let refused = cluster
        .fails(&["patch", "deployment", "web", "--type", "json", "-p", json])
        .await;
    assert!(refused.contains("the server rejected our request"), "{refused}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_annotations_and_scale_have_words_of_their_own() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.apply(WEB).await;
    cluster.ok(&["label", "deployment", "web", "tier=front"]).await;
    let taken = cluster.fails(&["label", "deployment", "web", "tier=back"]).await;
    assert!(taken.contains("already has a value (front)"), "{taken}");
    cluster.ok(&["label", "deployment", "web", "tier-"]).await;
    cluster.ok(&["annotate", "deployment", "web", "note=hello world"]).await;
    assert_eq!(
        cluster.field("deployment/web", ".metadata.annotations.note").await,
        "hello world"
    );
    assert_eq!(
        cluster.field("deployment/web", ".metadata.labels").await,
        r#"{"app":"web"}"#
    );
    assert_eq!(
        cluster.ok(&["scale", "deployment", "web", "--replicas", "3"]).await,
        "deployment.apps/web scaled\n"
    );
    let wrong = cluster
        .fails(&[
            "scale",
            "deployment",
            "web",
            "--current-replicas",
            "7",
            "--replicas",
            "1",
        ])
        .await;
    assert!(wrong.contains("Expected replicas to be 7, was 3"), "{wrong}");
    assert_eq!(cluster.field("deployment/web", ".spec.replicas").await, "3");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn create_and_replace_mind_what_is_there() {
    let Some(cluster) = Cluster::start().await else { return };
    let file = cluster.file("web.yaml", WEB);
    assert!(
        cluster
            .ok(&["create", "-f", &file, "--dry-run=server"])
            .await
            .contains("created (server dry run)")
    );
    assert!(cluster.fails(&["get", "deployment", "web"]).await.contains("NotFound"));
    cluster.ok(&["create", "-f", &file]).await;
    let again = cluster.fails(&["create", "-f", &file]).await;
    assert!(again.contains(r#"deployments.apps "web" already exists"#), "{again}");
    // It is read and then written: meanwhile its controller must have nothing to say of it.
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=60s"])
        .await;
    let blue = cluster.file("blue.yaml", &WEB.replace("red", "blue"));
    cluster.ok(&["replace", "-f", &blue]).await;
    assert_eq!(cluster.field("deployment/web", "..env[0].value").await, "blue");
    // What was read before someone else wrote is not written.
    let read = cluster.ok(&["get", "deployment", "web", "-o", "yaml"]).await;
    cluster.ok(&["label", "deployment", "web", "a=b"]).await;
    let stale = cluster.file("stale.yaml", &read);
    let refused = cluster.fails(&["replace", "-f", &stale]).await;
    assert!(
        refused.contains("the object has been modified; please apply your changes to the latest version"),
        "{refused}"
    );
    let piped = cluster
        .with_input(
            &["create", "-f", "-"],
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: piped}\n",
        )
        .await;
    assert_eq!(String::from_utf8_lossy(&piped.stdout), "namespace/piped created\n");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_made_without_a_manifest() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.ok(&["create", "namespace", "made"]).await;
    let typed: [&[&str]; 8] = [
        &["create", "secret", "generic", "s", "--from-literal=a=b"],
        &["create", "configmap", "c", "--from-literal=a=b"],
        &["create", "deployment", "web", "--image=sleeper:1", "--replicas=2"],
        &["expose", "deployment", "web", "--port=80", "--target-port=8080"],
        &["create", "serviceaccount", "a"],
        &["create", "role", "r", "--verb=get", "--resource=pods"],
        &["create", "rolebinding", "b", "--role=r", "--serviceaccount=made:a"],
        &[
            "create",
            "poddisruptionbudget",
            "d",
            "--selector=app=web",
            "--min-available=1",
        ],
    ];
    for command in typed {
        cluster.ok(&[command, &["-n", "made"]].concat()).await;
    }
    let field = async |object: &str, path: &str| {
        cluster
            .ok(&["get", object, "-n", "made", "-o", &format!("jsonpath={{{path}}}")])
            .await
    };
    assert_eq!(field("secret/s", ".data.a").await, "Yg==");
    assert_eq!(field("deployment/web", "..containers[0].image").await, "sleeper:1");
    assert_eq!(field("service/web", ".spec.ports[0].targetPort").await, "8080");
    assert_eq!(field("rolebinding/b", ".subjects[0].name").await, "a");
    assert_eq!(cluster.ok(&["auth", "can-i", "create", "pods"]).await, "yes\n");
    cluster.end().await;
}
