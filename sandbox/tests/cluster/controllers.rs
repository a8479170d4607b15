//! Deployments, ReplicaSets, endpoints and the scheduler.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use skerry_sandbox::cluster::{Behaviour, NodeSpec};

use crate::support::{World, condition, deployment, eventually, phase, pod, pod_when, world};

impl World {
    async fn rolled_out(&self, name: &str, replicas: i32) -> Deployment {
        eventually(async || {
            let found = self.api::<Deployment>().get(name).await.unwrap();
            let status = found.status.clone().unwrap_or_default();
            let done = status.observed_generation == found.metadata.generation
                && [status.replicas, status.updated_replicas, status.available_replicas] == [Some(replicas); 3];
            if done {
                Ok(found)
            } else {
                Err(serde_json::to_string(&status).unwrap())
            }
        })
        .await
    }

    async fn patch(&self, name: &str, spec: Value) {
        let patch = json!({"spec": spec});
        self.api::<Deployment>()
            .patch(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .unwrap();
    }
}

fn image(image: &str) -> Value {
    json!({"template": {"spec": {"containers": [{"name": "main", "image": image}]}}})
}

#[tokio::test(start_paused = true)]
async fn a_deployment_gets_running_pods_and_an_available_status() {
    let world = world().await;
    world
        .create::<Deployment>(deployment("web", &json!({"replicas": 3})))
        .await;
    let done = world.rolled_out("web", 3).await;
    let conditions = done.status.unwrap().conditions.unwrap();
    let said: Vec<_> = conditions
        .iter()
        .map(|known| (known.type_.as_str(), known.reason.as_deref().unwrap()))
        .collect();
    assert_eq!(
        said,
        [
            ("Available", "MinimumReplicasAvailable"),
            ("Progressing", "NewReplicaSetAvailable")
        ]
    );
    let pods = world.list::<Pod>().await;
    assert!(
        pods.iter()
            .all(|pod| phase(pod) == "Running" && condition(pod, "Ready").as_deref() == Some("True"))
    );
    let events = world.events("web").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].0, "ScalingReplicaSet");
}

#[tokio::test(start_paused = true)]
async fn a_rollout_replaces_pods_and_a_bad_one_stops_and_can_be_undone() {
    let world = world().await;
    world.kubelet.behave(|pod| {
        let image = pod.spec.as_ref()?.containers[0].image.clone()?;
        (image == "example/bad:1").then_some(Behaviour::BadImage)
    });
    world
        .create::<Deployment>(deployment(
            "web",
            &json!({"replicas": 4, "progressDeadlineSeconds": 60}),
        ))
        .await;
    world.rolled_out("web", 4).await;
    world.patch("web", image("example/main:2")).await;
    world.rolled_out("web", 4).await;
    world.patch("web", image("example/bad:1")).await;
    let stuck = eventually(async || {
        let found = world.api::<Deployment>().get("web").await.unwrap();
        let conditions = found.status.clone().unwrap().conditions.unwrap();
        let timed_out = conditions
            .iter()
            .any(|known| known.reason.as_deref() == Some("ProgressDeadlineExceeded"));
        if timed_out {
            Ok(found)
        } else {
            Err(format!("{conditions:?}"))
        }
    })
    .await;
    let status = stuck.status.unwrap();
    assert!(status.available_replicas >= Some(3), "the old pods go on: {status:?}");
    world.patch("web", image("example/main:2")).await;
    let done = world.rolled_out("web", 4).await;
    assert_eq!(done.annotations()["deployment.kubernetes.io/revision"], "4");
}

#[tokio::test(start_paused = true)]
async fn pods_that_fail_are_deleted_or_evicted_are_replaced() {
    let world = world().await;
    world
        .create::<Deployment>(deployment("web", &json!({"replicas": 2})))
        .await;
    world.rolled_out("web", 2).await;
    let [deleted, evicted] = world.list::<Pod>().await.try_into().unwrap();
    world
        .api::<Pod>()
        .delete(&deleted.name_any(), &DeleteParams::default())
        .await
        .unwrap();
    world.kubelet.evict("default", &evicted.name_any());
    eventually(async || {
        let pods = world.list::<Pod>().await;
        let fresh = pods.iter().filter(|pod| {
            phase(pod) == "Running" && ![deleted.name_any(), evicted.name_any()].contains(&pod.name_any())
        });
        match fresh.count() {
            2 => Ok(()),
            other => Err(format!("{other} fresh pods")),
        }
    })
    .await;
    let evicted = world.api::<Pod>().get(&evicted.name_any()).await.unwrap();
    let status = evicted.status.unwrap();
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Failed"), Some("Evicted"))
    );
    assert!(world.api::<Pod>().get_opt(&deleted.name_any()).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn orphaned_pods_are_adopted_and_relabelled_ones_let_go() {
    let world = world().await;
    world
        .create::<Deployment>(deployment("web", &json!({"replicas": 2})))
        .await;
    world.rolled_out("web", 2).await;
    let set = world.list::<ReplicaSet>().await.remove(0);
    let hash = set.labels()["pod-template-hash"].clone();
    let name = world.list::<Pod>().await[0].name_any();
    let relabel = json!({"metadata": {"labels": {"app": "debug"}}});
    world
        .api::<Pod>()
        .patch(&name, &PatchParams::default(), &Patch::Merge(relabel))
        .await
        .unwrap();
    eventually(async || {
        let freed = world.api::<Pod>().get(&name).await.unwrap();
        if freed.owner_references().is_empty() {
            Ok(())
        } else {
            Err("still owned".to_owned())
        }
    })
    .await;
    world.rolled_out("web", 2).await;
    assert_eq!(world.list::<Pod>().await.len(), 3);
    let mut orphan = pod("orphan", &json!({}));
    orphan["metadata"]["labels"] = json!({"app": "web", "pod-template-hash": hash});
    world.create::<Pod>(orphan).await;
    eventually(async || {
        // One pod too many now: the one that is dispensable goes.
        let pods = world.list::<Pod>().await;
        let owned = pods.iter().filter(|pod| {
            pod.owner_references()
                .iter()
                .any(|owner| owner.uid == set.uid().unwrap())
        });
        match (owned.count(), pods.len()) {
            (2, 3) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_set_that_may_not_make_pods_says_so() {
    let world = world().await;
    let mut bad = deployment("web", &json!({}));
    bad["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "2"}, "limits": {"cpu": "2"}});
    world.create::<Deployment>(bad).await;
    world.rolled_out("web", 1).await;
}

#[tokio::test(start_paused = true)]
async fn endpoints_follow_pods() {
    let world = world().await;
    world
        .create::<Deployment>(deployment("web", &json!({"replicas": 2})))
        .await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "tcp-0", "port": 80, "targetPort": 8080}]},
    });
    world.create::<Service>(service).await;
    let ready = async |wanted: usize| {
        eventually(async || {
            let slices = world.list::<EndpointSlice>().await;
            let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
            let ready = endpoints
                .filter(|endpoint| endpoint.conditions.as_ref().unwrap().ready == Some(true))
                .count();
            if ready == wanted {
                Ok(slices)
            } else {
                Err(format!("{ready} ready in {slices:?}"))
            }
        })
        .await
    };
    let slices = ready(2).await;
    assert_eq!(slices[0].ports.as_ref().unwrap()[0].port, Some(8080));
    let broken = world.list::<Pod>().await[0].name_any();
    world
        .kubelet
        .behave(move |pod| (pod.name_any() == broken).then_some(Behaviour::NeverReady));
    ready(1).await;
    world.patch("web", json!({"replicas": 0})).await;
    ready(0).await;
    world
        .api::<Service>()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    eventually(async || {
        let left = world.list::<EndpointSlice>().await.len();
        if left == 0 {
            Ok(())
        } else {
            Err(format!("{left} slices left"))
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_nowhere_waits_until_a_node_comes() {
    let world = world().await;
    world
        .create::<Pod>(pod("picky", &json!({"nodeSelector": {"gpu": "yes"}})))
        .await;
    let waiting = pod_when(&world.client(), "picky", |pod| {
        condition(pod, "PodScheduled").as_deref() == Some("False")
    })
    .await;
    assert_eq!(phase(&waiting), "Pending");
    let (reason, message) = world.events("picky").await.remove(0);
    assert_eq!(reason, "FailedScheduling");
    assert!(
        message.starts_with("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."),
        "{message}"
    );
    let gpu = NodeSpec {
        labels: [("gpu".to_owned(), "yes".to_owned())].into(),
        ..NodeSpec::cloud("gpu-1")
    };
    let _more =
        skerry_sandbox::cluster::FakeKubelet::spawn(world.server.client_as("system:node"), world.server.clock(), [gpu])
            .await
            .unwrap();
    let running = pod_when(&world.client(), "picky", |pod| phase(pod) == "Running").await;
    assert_eq!(running.spec.unwrap().node_name.as_deref(), Some("gpu-1"));
}

#[tokio::test(start_paused = true)]
async fn restart_policies_and_crash_loops() {
    use std::time::Duration;
    let world = world().await;
    world.kubelet.behave(|pod| match pod.name_any().as_str() {
        "job" => Some(Behaviour::succeed_after(Duration::from_secs(5))),
        "failing" | "looping" => Some(Behaviour::fail_after(Duration::from_secs(5))),
        _ => None,
    });
    world
        .create::<Pod>(pod("job", &json!({"restartPolicy": "OnFailure"})))
        .await;
    world
        .create::<Pod>(pod("failing", &json!({"restartPolicy": "Never"})))
        .await;
    world.create::<Pod>(pod("looping", &json!({}))).await;
    pod_when(&world.client(), "job", |pod| phase(pod) == "Succeeded").await;
    pod_when(&world.client(), "failing", |pod| phase(pod) == "Failed").await;
    let looping = pod_when(&world.client(), "looping", |pod| {
        let statuses = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.as_ref());
        statuses.is_some_and(|statuses| statuses[0].restart_count >= 3)
    })
    .await;
    assert_eq!(phase(&looping), "Running");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_where_nothing_happens() {
    let world = world().await;
    world
        .create::<Deployment>(deployment("web", &json!({"replicas": 3})))
        .await;
    world.rolled_out("web", 3).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let mark = world.server.requests().mark();
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    let mut written = world.server.requests().writes_since(mark);
    written.retain(|entry| entry.request.resource != "leases");
    assert!(written.is_empty(), "{written:?}");
}
