//! Watches that break, and history that etcd has forgotten meanwhile: nothing is missed, nothing is doubled.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
};
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, JointInferenceService};
use skerry_sandbox::api::{Fault, Mark, Match, Verb};
use skerry_tests::world::MANAGER;

use crate::{CLOUD, Cluster, EDGE, READY, SERVICE};

/// The manager's lists since: what it asks for when it cannot go on from where it was.
fn lists(cluster: &Cluster, mark: Mark) -> Vec<String> {
    let asked = cluster.api.requests().since(mark);
    let lists = asked
        .iter()
        .map(|entry| &entry.request)
        .filter(|asked| asked.user == MANAGER && asked.verb == Verb::List);
    lists.map(|asked| asked.resource.clone()).collect()
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn what_happened_while_the_manager_was_cut_off_is_made_good_though_etcd_forgot_it() {
    let cluster = Cluster::at_work().await;
    let cloud = cluster.uid::<Deployment>(CLOUD).await;
    // The manager reaches nothing, and its watches break.
    let cut = cluster
        .api
        .faults()
        .inject(Match::any().user(MANAGER), Fault::Timeout { applied: false });
    cluster.plane().command("kill the API server").await;
    cluster.plane().command("restore").await;
    cluster.patch_edge_image("example/little:v2").await;
    cluster.patch_edge_image("example/little:v3").await;
    cluster.kubectl.ok(&["delete", "service", "helmet-cloud"]).await;
    cluster.kubectl.ok(&["delete", "fl", "surface", "--timeout=60s"]).await;
    let visor = SERVICE.replace("name: helmet", "name: visor");
    cluster.kubectl.apply(&visor).await;
    cluster.api.compact().await;
    // What an API server has in memory begins when it starts.
    cluster.plane().command("kill the API server").await;
    cluster.plane().command("restore").await;
    let mark = cluster.mark();
    cut.remove();
    cluster
        .until("the second service at work", async || {
            let found = cluster.find::<JointInferenceService>("visor").await?;
            let ready = skerry_tests::look::conditions(&found)
                .iter()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
            ready.then_some(())
        })
        .await;
    // Each kind is asked for again in its own time: whoever was refused for long waits the longest.
    for kind in [
        "jointinferenceservices",
        "federatedlearningjobs",
        "deployments",
        "pods",
        "services",
    ] {
        cluster
            .until(&format!("a new list of {kind}"), async || {
                lists(&cluster, mark).iter().any(|list| list == kind).then_some(())
            })
            .await;
    }
    cluster.settle().await;
    assert_eq!(cluster.image(EDGE).await, "example/little:v3");
    assert_eq!(cluster.uid::<Deployment>(CLOUD).await, cloud);
    assert_eq!(cluster.names::<Service>().await, ["helmet-cloud", "visor-cloud"]);
    assert_eq!(cluster.names::<Deployment>().await.len(), 4);
    assert_eq!(cluster.names::<FederatedLearningJob>().await, Vec::<String>::new());
    assert_eq!(
        cluster.names::<Pod>().await.len(),
        4,
        "{:?}",
        cluster.names::<Pod>().await
    );
    for service in ["helmet", "visor"] {
        assert_eq!(
            cluster.condition::<JointInferenceService>(service, "Ready").await,
            READY
        );
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn watches_that_break_again_and_again_lose_no_edit() {
    let cluster = Cluster::at_work().await;
    let before = cluster.uid::<Deployment>(EDGE).await;
    // One that is asked to end ends its watches; one that is killed leaves them in the air.
    for (version, end) in [("v2", "stop"), ("v3", "kill"), ("v4", "stop")] {
        cluster.plane().command(&format!("{end} the API server")).await;
        cluster.plane().command("restore").await;
        let image = format!("example/little:{version}");
        cluster.patch_edge_image(&image).await;
        cluster
            .until(&format!("{version} in the Deployment"), async || {
                (cluster.image(EDGE).await == image).then_some(())
            })
            .await;
    }
    cluster.rolled_out(EDGE).await;
    cluster.settle().await;
    assert_eq!(cluster.uid::<Deployment>(EDGE).await, before);
    cluster.is_well().await;
}
