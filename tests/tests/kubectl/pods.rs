//! Pods that run: roll-outs, nodes drained, logs, and the shell that there is not.

use crate::cluster::{Cluster, WEB};

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_is_followed_to_its_end_and_undone() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.apply(WEB).await;
    let told = cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=60s"])
        .await;
    assert!(told.contains(r#"deployment "web" successfully rolled out"#), "{told}");
    cluster.apply(&WEB.replace("sleeper:1", "sleeper:2")).await;
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=60s"])
        .await;
    let history = cluster.ok(&["rollout", "history", "deployment/web"]).await;
    assert!(history.contains("1         <none>\n2         <none>\n"), "{history}");
    cluster.ok(&["rollout", "undo", "deployment/web"]).await;
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=60s"])
        .await;
    assert_eq!(
        cluster.field("deployment/web", "..containers[0].image").await,
        "sleeper:1"
    );
    cluster.ok(&["rollout", "restart", "deployment/web"]).await;
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=60s"])
        .await;
    // An image that nobody has: the roll-out does not end.
    cluster.ok(&["set", "image", "deployment/web", "main=nowhere:1"]).await;
    let stuck = cluster
        .fails(&["rollout", "status", "deployment/web", "--timeout=2s"])
        .await;
    assert!(stuck.contains("timed out waiting for the condition"), "{stuck}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_and_comes_back() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.apply(WEB).await;
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=60s"])
        .await;
    cluster.ok(&["drain", "edge-1", "--timeout=60s"]).await;
    assert!(
        cluster
            .ok(&["get", "node", "edge-1"])
            .await
            .contains("Ready,SchedulingDisabled")
    );
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=60s"])
        .await;
    let nodes = cluster
        .ok(&[
            "get",
            "pods",
            "-l",
            "app=web",
            "-o",
            "jsonpath={.items[*].spec.nodeName}",
        ])
        .await;
    assert_eq!(nodes, "cloud-1 cloud-1");
    cluster.ok(&["uncordon", "edge-1"]).await;
    cluster.ok(&["taint", "node", "edge-1", "a=b:NoSchedule"]).await;
    assert_eq!(cluster.field("node/edge-1", ".spec.taints[*].key").await, "a");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_followed_and_no_shell_is_opened() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.ok(&["run", "clock", "--image=ticker:1"]).await;
    cluster
        .ok(&["wait", "--for=condition=Ready", "pod/clock", "--timeout=60s"])
        .await;
    let mut logs = cluster.follow(&["logs", "-f", "clock"]);
    for _ in 0..3 {
        logs.line_with("tick").await;
    }
    assert_eq!(cluster.ok(&["logs", "clock", "--tail=2"]).await, "tick\ntick\n");
    for (into, told) in [
        (["exec", "clock", "--", "ls"].as_slice(), "opens no shell"),
        (&["attach", "clock"], "opens no shell"),
        (&["cp", "clock:/etc/hosts", "hosts"], "opens no shell"),
        (&["port-forward", "clock", "8080:80"], "forwards no ports"),
    ] {
        let refused = cluster.fails(into).await;
        assert!(refused.contains(told), "{into:?}: {refused}");
    }
    cluster
        .ok(&["delete", "pod", "clock", "--grace-period=0", "--force"])
        .await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_does_not_come_up_says_why() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.ok(&["run", "clock", "--image=nowhere:1"]).await;
    let reason = "--for=jsonpath={..waiting.reason}";
    cluster
        .ok(&[
            "wait",
            &format!("{reason}=ImagePullBackOff"),
            "pod/clock",
            "--timeout=60s",
        ])
        .await;
    if cluster.has_processes() {
        let none = cluster.fails(&["logs", "clock"]).await;
        assert!(
            none.contains("is waiting to start: trying and failing to pull image"),
            "{none}"
        );
    }
    cluster.ok(&["run", "ender", "--image=ender:1"]).await;
    cluster
        .ok(&[
            "wait",
            &format!("{reason}=CrashLoopBackOff"),
            "pod/ender",
            "--timeout=60s",
        ])
        .await;
    if cluster.has_processes() {
        let said = cluster.ok(&["describe", "pod", "ender"]).await;
        assert!(
            said.contains("Back-off restarting failed container ender in pod ender_default("),
            "{said}"
        );
        assert_eq!(cluster.ok(&["logs", "ender", "--previous"]).await, "the end\n");
    }
    cluster.end().await;
}
