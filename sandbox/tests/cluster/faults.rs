//! The controllers when the API server is not at its best.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use skerry_sandbox::api::{Fault, Match};

use crate::support::{CONTROLLERS, deployment, eventually, world};

#[tokio::test(start_paused = true)]
async fn refusals_and_lost_answers_change_nothing_in_the_end() {
    for fault in [
        Fault::Conflict,
        Fault::InternalError,
        Fault::TooManyRequests { retry_after: 1 },
        Fault::Timeout { applied: true },
        Fault::Timeout { applied: false },
    ] {
        let world = world().await;
        let name = format!("{fault:?}");
        world
            .server
            .faults()
            .inject(Match::writes().user(CONTROLLERS).times(20), fault);
        world
            .create::<Deployment>(deployment("web", &json!({"replicas": 3})))
            .await;
        eventually(async || {
            let status = world
                .api::<Deployment>()
                .get("web")
                .await
                .unwrap()
                .status
                .unwrap_or_default();
            let pods = world.list::<Pod>().await.len();
            if (status.available_replicas, pods) == (Some(3), 3) {
                Ok(())
            } else {
                Err(format!("{name}: {pods} pods, {status:?}"))
            }
        })
        .await;
    }
}
