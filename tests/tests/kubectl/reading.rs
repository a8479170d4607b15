//! Objects read: `get` in its forms, watches, `describe`, `explain`, `api-resources`, `version`.

use crate::cluster::{Cluster, WEB};

#[tokio::test(flavor = "multi_thread")]
async fn get_prints_tables_and_documents() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.apply(WEB).await;
    cluster
        .ok(&["wait", "--for=condition=Available", "deployment/web", "--timeout=60s"])
        .await;
    let table = cluster.ok(&["get", "deployments,services", "-o", "wide"]).await;
    let headers: Vec<_> = table.lines().filter(|l| l.starts_with("NAME")).map(words).collect();
    assert_eq!(
        headers,
        [
            vec![
                "NAME",
                "READY",
                "UP-TO-DATE",
                "AVAILABLE",
                "AGE",
                "CONTAINERS",
                "IMAGES",
                "SELECTOR"
            ],
            vec![
                "NAME",
                "TYPE",
                "CLUSTER-IP",
                "EXTERNAL-IP",
                "PORT(S)",
                "AGE",
                "SELECTOR"
            ],
        ]
    );
    let deployment = table.lines().find(|l| l.starts_with("deployment.apps/web")).unwrap();
    let cells = words(deployment);
    assert_eq!(cells[1..4], ["2/2", "2", "2"]);
    assert_eq!(cells[5..], ["main", "sleeper:1", "app=web"]);

    let nodes = cluster
        .ok(&["get", "nodes", "--no-headers", "--sort-by", ".metadata.name"])
        .await;
    let nodes: Vec<_> = nodes.lines().map(|l| words(l)[..3].join(" ")).collect();
    assert_eq!(nodes, ["cloud-1 Ready <none>", "edge-1 Ready edge"]);
    assert_eq!(
        cluster
            .ok(&["get", "pods", "-l", "app=web", "--no-headers"])
            .await
            .lines()
            .count(),
        2
    );
    assert_eq!(cluster.ok(&["get", "pods", "-l", "app!=web", "--no-headers"]).await, "");
    assert_eq!(
        cluster
            .ok(&["get", "pods", "--field-selector", "status.phase=Pending", "-o", "name"])
            .await,
        ""
    );
    // Pages of one: the client asks for the next until there is none.
    assert_eq!(
        cluster
            .ok(&["get", "pods", "--chunk-size", "1", "-o", "name"])
            .await
            .lines()
            .count(),
        2
    );
    let namespaces = "custom-columns=NAMESPACE:.metadata.namespace";
    let everywhere = cluster
        .ok(&["get", "all", "-A", "--no-headers", "-o", namespaces])
        .await;
    let here = everywhere.lines().filter(|line| line.trim() == cluster.namespace);
    assert_eq!(here.count(), 5, "two pods and what made them");

    let json: serde_json::Value =
        serde_json::from_str(&cluster.ok(&["get", "service", "web", "-o", "json"]).await).unwrap();
    assert_eq!(json["spec"]["ports"][0]["targetPort"], 80);
    let yaml = cluster.ok(&["get", "service", "web", "-o", "yaml"]).await;
    assert!(yaml.starts_with("apiVersion: v1\nkind: Service\n"), "{yaml}");
    let columns = cluster
        .ok(&[
            "get",
            "deployment",
            "web",
            "-o",
            "custom-columns=N:.metadata.name,R:.spec.replicas",
        ])
        .await;
    assert_eq!(words(columns.lines().nth(1).unwrap()), ["web", "2"]);
    let missing = cluster.fails(&["get", "deployment", "nothing"]).await;
    assert_eq!(
        missing,
        "Error from server (NotFound): deployments.apps \"nothing\" not found\n"
    );
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_changes_as_they_happen() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.apply(WEB).await;
    // Of all that there are: what becomes of one that is named is not printed if it does before the watch is open.
    let mut watch = cluster.follow(&["get", "deployments", "-w"]);
    watch.line_with("NAME").await;
    watch.line_with("2/2").await;
    cluster.ok(&["scale", "deployment", "web", "--replicas", "1"]).await;
    watch.line_with("1/1").await;
    let mut events = cluster.follow(&["get", "configmaps", "--watch-only", "--output-watch-events"]);
    let map =
        |value: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: seen}}\ndata: {{a: {value}}}\n");
    // The watch may not be open yet when the first change is made; it is when one is seen.
    loop {
        cluster.apply(&map("one")).await;
        cluster.ok(&["delete", "configmap", "seen"]).await;
        let seen = tokio::time::timeout(std::time::Duration::from_millis(500), events.line_with("DELETED")).await;
        if seen.is_ok() {
            break;
        }
    }
    cluster.apply(&map("two")).await;
    events.line_with("ADDED").await;
    cluster.ok(&["label", "configmap", "seen", "a=b"]).await;
    events.line_with("MODIFIED").await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn describe_tells_conditions_and_events() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.apply(&WEB.replace("sleeper:1", "nowhere:1")).await;
    cluster
        .ok(&[
            "wait",
            "--for=jsonpath={.status.unavailableReplicas}=2",
            "deployment/web",
            "--timeout=60s",
        ])
        .await;
    let told = cluster.ok(&["describe", "deployment", "web"]).await;
    assert!(
        told.contains("2 desired | 2 updated | 2 total | 0 available | 2 unavailable"),
        "{told}"
    );
    assert!(told.contains("ScalingReplicaSet"), "{told}");
    let mut pods = cluster.follow(&["get", "pods", "-w"]);
    pods.line_with("ImagePull").await;
    let told = cluster.ok(&["describe", "pods", "-l", "app=web"]).await;
    assert!(told.contains("Scheduled") && told.contains("nowhere:1"), "{told}");
    let node = cluster.ok(&["describe", "node", "edge-1"]).await;
    assert!(node.contains("Non-terminated Pods:"), "{node}");
    assert!(
        cluster
            .ok(&["events", "--for", "deployment/web"])
            .await
            .contains("ScalingReplicaSet")
    );
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn types_and_resources_are_explained() {
    let Some(cluster) = Cluster::start().await else { return };
    let told = cluster
        .ok(&["explain", "deployment.spec.template.spec.containers"])
        .await;
    assert!(
        told.starts_with("GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n"),
        "{told}"
    );
    assert!(
        told.contains("FIELD: containers <[]Container>") && told.contains("imagePullPolicy\t<string>"),
        "{told}"
    );
    let recursive = cluster.ok(&["explain", "pod", "--recursive"]).await;
    assert!(recursive.contains("secretKeyRef\t<SecretKeySelector>"), "{recursive}");
    let missing = cluster.fails(&["explain", "pod.spec.containerz"]).await;
    assert!(missing.contains(r#"field "containerz" does not exist"#), "{missing}");

    let resources = cluster.ok(&["api-resources", "--no-headers"]).await;
    let row = |name: &str| words(resources.lines().find(|l| l.starts_with(name)).unwrap()).join(" ");
    assert_eq!(row("deployments"), "deployments deploy apps/v1 true Deployment");
    assert_eq!(row("nodes"), "nodes no v1 false Node");
    assert_eq!(
        row("horizontalpodautoscalers"),
        "horizontalpodautoscalers hpa autoscaling/v2 true HorizontalPodAutoscaler"
    );
    assert!(
        cluster
            .ok(&["api-versions"])
            .await
            .contains("apiextensions.k8s.io/v1\n")
    );
    // Real ones are newer.
    let version = cluster.ok(&["version"]).await;
    assert!(
        version.contains("Server Version: v1.34") || !cluster.has_processes(),
        "{version}"
    );
    assert!(version.contains("Server Version: v1.3"), "{version}");
    assert!(cluster.ok(&["cluster-info"]).await.contains("is running at"));
    cluster.end().await;
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}
