//! A manager that fails while a cluster changes hands.

use std::sync::Arc;

use futures::future::LocalBoxFuture;
use rstest::rstest;
use serde_json::json;
use skerry_crds::sedna::v1alpha1::{JointInferenceService, Model};
use skerry_sandbox::api::{Fault, Match};
use skerry_tests::{World, world::MANAGER};
use tokio::sync::OnceCell;

use super::sednas_under_ours;
use crate::{
    JOB, edited,
    faults::{Life, Lived, assert_same, kill_after_each_write, live_in},
};

/// One worker after the other is replaced, with all that hangs on it.
fn life_after_sedna(world: &World) -> LocalBoxFuture<'_, ()> {
    Box::pin(async {
        let filter = json!({"spec": {"edgeWorker": {"hardExampleMining": {"name": "CloudOnly"}}}});
        world.edit::<JointInferenceService>("helmet", filter).await;
        let edit = edited(JOB, "example/trainer-1:v1", "example/trainer-1:v2");
        world.apply(&edit).await;
        let url = json!({"spec": {"url": "/var/models/other.pb"}});
        world.edit::<Model>("large", url).await;
        let edit = edited(&edit, "example/aggregator:v1", "example/aggregator:v2");
        world.apply(&edit).await;
    })
}

async fn live(faults: impl FnOnce(&World)) -> Lived {
    let world = sednas_under_ours().await;
    live_in(&world, life_after_sedna as Life, faults).await
}

/// What comes of it where nothing fails; lived once, for all tests that compare.
async fn undisturbed() -> Arc<Lived> {
    static LIVED: OnceCell<Arc<Lived>> = OnceCell::const_new();
    LIVED.get_or_init(async || Arc::new(live(|_| {}).await)).await.clone()
}

#[tokio::test(start_paused = true)]
async fn a_manager_killed_after_any_write_leaves_nothing_of_sednas_and_nothing_double() {
    let expected = undisturbed().await;
    kill_after_each_write(&expected, async |faults| live(faults).await).await;
}

#[rstest]
#[case::conflict(Fault::Conflict)]
#[case::internal_error(Fault::InternalError)]
#[case::timed_out_but_applied(Fault::Timeout { applied: true })]
#[tokio::test(start_paused = true)]
async fn every_second_write_may_fail(#[case] failure: Fault) {
    let expected = undisturbed().await;
    let found = live(|world| {
        for number in (1..200).step_by(2) {
            let here = Match::writes().user(MANAGER).nth(number);
            world.api.faults().inject(here, failure.clone());
        }
    })
    .await;
    assert_same(&found, &expected, &format!("{failure:?}"));
}
