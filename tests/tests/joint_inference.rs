//! Joint inference services, from the manifest to the children and back.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::unwrap_used)]

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use skerry_crds::sedna::v1alpha1::JointInferenceService;
use skerry_tests::World;

const SERVICE: &str = include_str!("manifests/joint-inference.yaml");

#[tokio::test(start_paused = true)]
async fn a_service_becomes_ready_with_one_write_per_child_and_rest_costs_nothing() {
    let world = World::start().await;
    let mark = world.mark();
    world.apply(SERVICE).await;
    let service = world.view::<JointInferenceService>().get("helmet").await.unwrap();
    let status = service.status.unwrap_or_default();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    assert_eq!(ready.map(|ready| ready.status.as_str()), Some("True"), "{status:#?}");
    let writes = world.writes_since(mark);
    let children: Vec<_> = writes.iter().filter(|write| !write.contains("/status")).collect();
    assert_eq!(children.len(), 3, "{writes:#?}");
    let deployments = world.view::<Deployment>().list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = deployments.iter().map(kube::ResourceExt::name_any).collect();
    assert_eq!(names, ["helmet-deployment-cloud", "helmet-deployment-edge"]);
    println!("{writes:#?}");
    let mark = world.mark();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
}
