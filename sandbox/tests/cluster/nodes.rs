//! Nodes that are lost, come back, or are deleted.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::support::{World, condition, deployment, eventually, phase, pod, pod_when, world};

impl World {
    async fn node_when(&self, name: &str, ready: &str) -> Node {
        let nodes = Api::<Node>::all(self.client());
        eventually(async || {
            let node = nodes.get(name).await.unwrap();
            let conditions = node.status.as_ref().unwrap().conditions.clone().unwrap();
            let is = conditions
                .iter()
                .find(|known| known.type_ == "Ready")
                .unwrap()
                .status
                .clone();
            if is == ready { Ok(node) } else { Err(is) }
        })
        .await
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_node_is_noticed_and_its_pods_are_moved_after_their_patience() {
    let world = world().await;
    let tolerations: Vec<_> = ["unreachable", "not-ready"]
        .iter()
        .map(|what| {
            json!({"key": format!("node.kubernetes.io/{what}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60})
        })
        .collect();
    let spec = json!({"template": {"spec": {"tolerations": tolerations}}});
    world.create::<Deployment>(deployment("web", &spec)).await;
    let ran = eventually(async || {
        let pods = world.list::<Pod>().await;
        pods.into_iter()
            .find(|pod| phase(pod) == "Running")
            .ok_or_else(|| "no pod runs".to_owned())
    })
    .await;
    let node = ran.spec.as_ref().unwrap().node_name.clone().unwrap();
    let lost_at = tokio::time::Instant::now();
    world.kubelet.lose_node(&node);
    world.node_when(&node, "Unknown").await;
    let noticed = lost_at.elapsed();
    assert!(
        (Duration::from_secs(30)..Duration::from_secs(60)).contains(&noticed),
        "noticed after {noticed:?}"
    );
    pod_when(&world.client(), &ran.name_any(), |pod| {
        condition(pod, "Ready").as_deref() == Some("False")
    })
    .await;
    let moved = eventually(async || {
        let pods = world.list::<Pod>().await;
        let running = pods
            .iter()
            .find(|pod| phase(pod) == "Running" && pod.name_any() != ran.name_any());
        running.cloned().ok_or_else(|| format!("{} pods", pods.len()))
    })
    .await;
    assert_ne!(moved.spec.unwrap().node_name.unwrap(), node);
    let old = world.api::<Pod>().get(&ran.name_any()).await.unwrap();
    assert!(
        old.metadata.deletion_timestamp.is_some(),
        "nobody can say that it has ended"
    );
    world.kubelet.restore_node(&node);
    let back = world.node_when(&node, "True").await;
    eventually(
        async || match world.api::<Pod>().get_opt(&ran.name_any()).await.unwrap() {
            None => Ok(()),
            Some(pod) => Err(format!("{:?}", pod.status)),
        },
    )
    .await;
    assert!(back.spec.unwrap().taints.unwrap_or_default().len() <= 2);
    eventually(async || {
        let taints = Api::<Node>::all(world.client())
            .get(&node)
            .await
            .unwrap()
            .spec
            .unwrap()
            .taints;
        if taints.is_none() {
            Ok(())
        } else {
            Err(format!("{taints:?}"))
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_tolerates_everything_stays_and_recovers() {
    let world = world().await;
    let spec = json!({"nodeName": "edge-1", "tolerations": [{"operator": "Exists"}]});
    world.create::<Pod>(pod("stoic", &spec)).await;
    pod_when(&world.client(), "stoic", |pod| phase(pod) == "Running").await;
    world.kubelet.lose_node("edge-1");
    world.node_when("edge-1", "Unknown").await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let stoic = world.api::<Pod>().get("stoic").await.unwrap();
    assert!(stoic.metadata.deletion_timestamp.is_none());
    assert_eq!(condition(&stoic, "Ready").as_deref(), Some("False"));
    world.kubelet.restore_node("edge-1");
    pod_when(&world.client(), "stoic", |pod| {
        condition(pod, "Ready").as_deref() == Some("True")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_deleted_node_are_removed() {
    let world = world().await;
    world.create::<Pod>(pod("stray", &json!({"nodeName": "edge-1"}))).await;
    pod_when(&world.client(), "stray", |pod| phase(pod) == "Running").await;
    world.kubelet.lose_node("edge-1");
    Api::<Node>::all(world.client())
        .delete("edge-1", &DeleteParams::default())
        .await
        .unwrap();
    eventually(async || match world.api::<Pod>().get_opt("stray").await.unwrap() {
        None => Ok(()),
        Some(pod) => Err(format!("{:?}", pod.status)),
    })
    .await;
}
