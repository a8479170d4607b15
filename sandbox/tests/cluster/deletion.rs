//! Deletion with all three policies, the garbage collector, and namespaces.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{World, deployment, eventually, world};

impl World {
    /// A Deployment, its set and two pods that run.
    async fn family(&self) {
        self.create::<Deployment>(deployment("web", &json!({"replicas": 2})))
            .await;
        eventually(async || {
            let status = self
                .api::<Deployment>()
                .get("web")
                .await
                .unwrap()
                .status
                .unwrap_or_default();
            if status.available_replicas == Some(2) {
                Ok(())
            } else {
                Err(format!("{status:?}"))
            }
        })
        .await;
    }

    async fn delete(&self, policy: PropagationPolicy) {
        let params = DeleteParams {
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        self.api::<Deployment>().delete("web", &params).await.unwrap();
    }

    /// How many Deployments, sets and pods there are.
    async fn counts(&self) -> (usize, usize, usize) {
        let deployments = self.list::<Deployment>().await.len();
        (
            deployments,
            self.list::<ReplicaSet>().await.len(),
            self.list::<Pod>().await.len(),
        )
    }

    async fn counted(&self, wanted: (usize, usize, usize)) {
        eventually(async || match self.counts().await {
            counts if counts == wanted => Ok(()),
            counts => Err(format!("{counts:?}, wanted {wanted:?}")),
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn background_deletion_takes_the_family_along() {
    let world = world().await;
    world.family().await;
    world.delete(PropagationPolicy::Background).await;
    assert_eq!(world.counts().await.0, 0, "the owner is gone at once");
    world.counted((0, 0, 0)).await;
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_takes_the_owner_last() {
    let world = world().await;
    world.family().await;
    world.delete(PropagationPolicy::Foreground).await;
    let waiting = world.api::<Deployment>().get("web").await.unwrap();
    assert_eq!(waiting.finalizers(), ["foregroundDeletion"]);
    eventually(async || match world.counts().await {
        (0, 0, 0) => Ok(()),
        (0, sets, pods) => panic!("the owner went before {sets} sets and {pods} pods"),
        counts => Err(format!("{counts:?}")),
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn orphan_deletion_leaves_the_children_without_an_owner() {
    let world = world().await;
    world.family().await;
    world.delete(PropagationPolicy::Orphan).await;
    world.counted((0, 1, 2)).await;
    let set = world.list::<ReplicaSet>().await.remove(0);
    assert_eq!(set.owner_references(), []);
    tokio::time::sleep(std::time::Duration::from_secs(120)).await;
    assert_eq!(world.counts().await, (0, 1, 2), "they stay");
    // The same Deployment again takes them back.
    world.family().await;
    let adopted = world.list::<ReplicaSet>().await.remove(0);
    assert_eq!(adopted.uid(), set.uid());
    assert_eq!(adopted.owner_references()[0].name, "web");
}

fn config_map(name: &str, owners: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owners}})
}

fn owner(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
}

#[tokio::test(start_paused = true)]
async fn an_owner_counts_by_its_uid() {
    let world = world().await;
    let first = world.create::<ConfigMap>(config_map("owner", &json!([]))).await;
    let uid = first.uid().unwrap();
    world
        .create::<ConfigMap>(config_map("right", &json!([owner("owner", &uid)])))
        .await;
    world
        .create::<ConfigMap>(config_map("another", &json!([owner("owner", "another-uid")])))
        .await;
    world
        .create::<ConfigMap>(config_map("absent", &json!([owner("nobody", "absent-uid")])))
        .await;
    world
        .create::<ConfigMap>(config_map(
            "both",
            &json!([owner("owner", &uid), owner("nobody", "absent-uid")]),
        ))
        .await;
    let names = async |wanted: &[&str]| {
        eventually(async || {
            let mut names: Vec<_> = world
                .list::<ConfigMap>()
                .await
                .iter()
                .map(ResourceExt::name_any)
                .collect();
            names.sort();
            if names == wanted {
                Ok(())
            } else {
                Err(format!("{names:?}"))
            }
        })
        .await;
    };
    names(&["both", "owner", "right"]).await;
    eventually(async || {
        match world
            .api::<ConfigMap>()
            .get("both")
            .await
            .unwrap()
            .owner_references()
            .len()
        {
            1 => Ok(()),
            other => Err(format!("{other} references")),
        }
    })
    .await;
    world
        .api::<ConfigMap>()
        .delete("owner", &DeleteParams::default())
        .await
        .unwrap();
    world.create::<ConfigMap>(config_map("owner", &json!([]))).await;
    names(&["owner"]).await;
}

#[tokio::test(start_paused = true)]
async fn custom_owners_are_found_as_soon_as_their_kind_is_served() {
    let world = world().await;
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "boats.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"kind": "Boat", "plural": "boats", "singular": "boat"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .unwrap();
    let definitions = Api::<CustomResourceDefinition>::all(world.client());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.org", "v1", "Boat"), "boats");
    let boats = Api::<DynamicObject>::namespaced_with(world.client(), "default", &kind);
    let boat = eventually(async || {
        let boat = DynamicObject::new("ferry", &kind);
        boats
            .create(&PostParams::default(), &boat)
            .await
            .map_err(|error| error.to_string())
    })
    .await;
    let reference = json!([{"apiVersion": "example.org/v1", "kind": "Boat", "name": "ferry",
        "uid": boat.uid().unwrap(), "controller": true, "blockOwnerDeletion": true}]);
    world.create::<ConfigMap>(config_map("anchor", &reference)).await;
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    assert!(world.api::<ConfigMap>().get_opt("anchor").await.unwrap().is_some());
    boats.delete("ferry", &DeleteParams::foreground()).await.unwrap();
    eventually(async || {
        let boat = boats.get_opt("ferry").await.unwrap();
        let anchor = world.api::<ConfigMap>().get_opt("anchor").await.unwrap();
        match (boat, anchor) {
            (None, None) => Ok(()),
            (None, Some(_)) => panic!("the owner went first"),
            (boat, anchor) => Err(format!("{boat:?} {anchor:?}")),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_with_a_finalizer_holds_its_owner_up() {
    let world = world().await;
    let owner_map = world.create::<ConfigMap>(config_map("owner", &json!([]))).await;
    let mut reference = owner("owner", &owner_map.uid().unwrap());
    reference["blockOwnerDeletion"] = json!(true);
    let mut child = config_map("child", &json!([reference]));
    child["metadata"]["finalizers"] = json!(["example.org/wait"]);
    world.create::<ConfigMap>(child).await;
    let maps = world.api::<ConfigMap>();
    maps.delete("owner", &DeleteParams::foreground()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert!(maps.get("child").await.unwrap().metadata.deletion_timestamp.is_some());
    assert!(maps.get_opt("owner").await.unwrap().is_some());
    let free = json!({"metadata": {"finalizers": null}});
    maps.patch("child", &PatchParams::default(), &Patch::Merge(free))
        .await
        .unwrap();
    eventually(async || match maps.get_opt("owner").await.unwrap() {
        None => Ok(()),
        Some(owner) => Err(format!("{owner:?}")),
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_all_that_it_holds() {
    let world = world().await;
    let namespaces = Api::<Namespace>::all(world.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "team"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let mut web = deployment("web", &json!({"replicas": 2}));
    web["metadata"]["namespace"] = json!("team");
    let web: Deployment = serde_json::from_value(web).unwrap();
    let deployments = Api::<Deployment>::namespaced(world.client(), "team");
    deployments.create(&PostParams::default(), &web).await.unwrap();
    let pods = Api::<Pod>::namespaced(world.client(), "team");
    eventually(
        async || match pods.list(&kube::api::ListParams::default()).await.unwrap().items.len() {
            2 => Ok(()),
            other => Err(format!("{other} pods")),
        },
    )
    .await;
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    eventually(async || match namespaces.get_opt("team").await.unwrap() {
        None => Ok(()),
        Some(namespace) => Err(format!("{namespace:?}")),
    })
    .await;
    assert_eq!(
        pods.list(&kube::api::ListParams::default()).await.unwrap().items.len(),
        0
    );
}
