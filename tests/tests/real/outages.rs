//! The API server killed, and etcd stopped under it: the process says that it cannot work, outlives it, and goes on where
//! it was.

use k8s_openapi::api::core::v1::Service;
use skerry_globalmanager::{
    config::{Config, Flags},
    run::run,
};
use skerry_tests::{NAMESPACE, World, loopback::free_port, manager::LEASE};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{CLOUD, Cluster, EDGE, JOB, SERVICE};

/// The whole manager, with the rights of the chart's: lease, hub, and what it says of itself.
struct Manager {
    admin: String,
    running: JoinHandle<()>,
}

impl Manager {
    fn start(cluster: &Cluster) -> Self {
        let admin = format!("127.0.0.1:{}", free_port());
        let account = cluster.plane().manager.as_ref().unwrap();
        let config = Config::load(Flags {
            kubeconfig: Some(account.clone()),
            websocket_address: Some("127.0.0.1".to_owned()),
            websocket_port: Some(free_port()),
            admin_address: Some(admin.clone()),
            lease_namespace: Some(NAMESPACE.to_owned()),
            ..Flags::default()
        });
        let running = tokio::spawn(async move { run(config.unwrap(), CancellationToken::new()).await.unwrap() });
        Self { admin, running }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        assert!(!self.running.is_finished(), "the manager ended");
        let answer = reqwest::get(format!("http://{}{path}", self.admin)).await;
        match answer {
            Ok(answer) => (answer.status().as_u16(), answer.text().await.unwrap()),
            // It has just been started.
            Err(_) => (0, String::new()),
        }
    }

    /// Waits for an answer with this code and this text in it.
    async fn says(&self, cluster: &Cluster, path: &str, code: u16, what: &str) {
        cluster
            .until(&format!("{code} and {what:?} at {path}"), async || {
                let (found, text) = self.get(path).await;
                (found == code && text.contains(what)).then_some(())
            })
            .await;
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// A manifest whose pods stay for five minutes on a node that is not heard of, as they do by default: these control planes
/// give nodes up within seconds, and outages take longer.
fn patient(manifest: &str) -> String {
    let lines = manifest.lines().flat_map(|line| {
        let key = line.trim_start();
        let indent = " ".repeat(line.len() - key.len());
        // Data sets have a node, too, at the first level.
        let is_of_pod = key.starts_with("nodeName: ") && indent.len() > 2;
        let tolerations = is_of_pod.then(|| {
            let [not_ready, unreachable] = ["not-ready", "unreachable"].map(|taint| {
                format!(
                    "{{key: node.kubernetes.io/{taint}, operator: Exists, effect: NoExecute, tolerationSeconds: 300}}"
                )
            });
            format!("{indent}tolerations: [{not_ready}, {unreachable}]")
        });
        tolerations.into_iter().chain([line.to_owned()])
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A service and a job at work under a whole manager.
async fn at_work() -> (Cluster, Manager) {
    let cluster = Cluster::of(World::without_manager().await);
    let manager = Manager::start(&cluster);
    manager.says(&cluster, "/readyz", 200, "ok").await;
    manager.says(&cluster, "/metrics", 200, "skerry_leader 1").await;
    cluster.kubectl.apply(&patient(SERVICE)).await;
    cluster.kubectl.apply(&patient(JOB)).await;
    cluster.settle().await;
    cluster.becomes_well().await;
    (cluster, manager)
}

/// What the manager says while nothing can be done.
async fn is_out_of_work(cluster: &Cluster, manager: &Manager) {
    let lease = format!("Lease {NAMESPACE}/{LEASE}: ");
    manager.says(cluster, "/readyz", 503, &lease).await;
    // It cannot know any more that nobody else began.
    manager.says(cluster, "/metrics", 200, "skerry_leader 0").await;
    assert_eq!(manager.get("/healthz").await, (200, "ok\n".to_owned()));
}

/// Edits right after the outage are carried out, and what was there before is there once.
async fn goes_on(cluster: &Cluster, manager: &Manager, before: &[String]) {
    cluster.patch_edge_image("example/little:v2").await;
    cluster.kubectl.ok(&["delete", "service", "helmet-cloud"]).await;
    manager.says(cluster, "/readyz", 200, "ok").await;
    manager.says(cluster, "/metrics", 200, "skerry_leader 1").await;
    cluster
        .until("the edit in the Deployment", async || {
            (cluster.image(EDGE).await == "example/little:v2").then_some(())
        })
        .await;
    cluster
        .until("the Service made again", async || {
            let services = cluster.names::<Service>().await;
            services.contains(&"helmet-cloud".to_owned()).then_some(())
        })
        .await;
    cluster.rolled_out(EDGE).await;
    cluster.settle().await;
    cluster.becomes_well().await;
    let after = cluster.very_children().await;
    // All but the worker that was edited and the Service that was deleted are the very same.
    let same = |child: &&String| !child.contains(&format!("{EDGE}-")) && !child.contains("helmet-cloud");
    assert_eq!(
        after.iter().filter(same).collect::<Vec<_>>(),
        before.iter().filter(same).collect::<Vec<_>>()
    );
    let count = |name: &str| after.iter().filter(|child| child.contains(name)).count();
    assert_eq!(count("helmet-cloud"), 1, "{after:#?}");
    for worker in [CLOUD, EDGE] {
        assert_eq!(count(worker), 3, "a Deployment, its ReplicaSet and its pod: {after:#?}");
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn a_killed_api_server_is_told_by_readiness_and_outlived_and_nothing_is_doubled() {
    let (cluster, manager) = at_work().await;
    let before = cluster.very_children().await;
    cluster.plane().command("kill the API server").await;
    is_out_of_work(&cluster, &manager).await;
    let (_, metrics) = manager.get("/metrics").await;
    let unanswered = metrics
        .lines()
        .any(|line| line.starts_with("skerry_api_requests_total{") && line.contains(r#"code="0""#));
    assert!(unanswered, "{metrics}");
    cluster.plane().command("restore").await;
    goes_on(&cluster, &manager, &before).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn a_stopped_etcd_is_told_by_readiness_and_outlived_and_nothing_is_doubled() {
    let (cluster, manager) = at_work().await;
    let before = cluster.very_children().await;
    cluster.plane().command("stop etcd").await;
    let label = ["label", "ji/helmet", "written=no", "--request-timeout=5s"];
    cluster.kubectl.fails(&label).await;
    is_out_of_work(&cluster, &manager).await;
    cluster.plane().command("restore").await;
    goes_on(&cluster, &manager, &before).await;
}
