//! Reports of nodes that come too late.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use skerry_globalmanager::engine::Taken;
use skerry_tests::{NAMESPACE, World};
use skerry_workloads::Payload;

use crate::{JOB, SERVICE};

#[tokio::test(start_paused = true)]
async fn a_report_on_what_is_gone_is_refused_for_good() {
    let world = World::start().await;
    world.apply(SERVICE).await;
    world.apply(JOB).await;
    let before = world.all::<Pod>().await;
    let mark = world.mark();
    for (kind, title, name) in [
        ("dataset", "Dataset", "share-0"),
        ("federatedlearningjob", "FederatedLearningJob", "surface"),
        ("jointinferenceservice", "JointInferenceService", "helmet"),
        ("model", "Model", "small"),
    ] {
        // One of the same name is there, but it is another.
        for name in [name, "nobody"] {
            let taken = world
                .engine()
                .take_report("edge-1", kind, NAMESPACE, name, "its-uid", Payload::Samples(9))
                .await;
            let told = format!("{title} {NAMESPACE}/{name} of uid its-uid is gone");
            assert_eq!(taken, Taken::Refused(told));
        }
    }
    world.settle().await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    assert_eq!(json!(world.all::<Pod>().await), json!(before));
}
