//! Tests of the decisions about a job.

mod adoption;
mod convergence;
mod ending;
mod making;
mod replacing;
mod reports;
mod world;

use insta::assert_yaml_snapshot;
use rstest::rstest;

use crate::{Settings, offline, testing};

#[rstest]
#[case("federated-learning")]
#[case("federated-learning-s3")]
fn the_plan_of_a_job(#[case] name: &str) {
    let documents = testing::fixture(&format!("{name}.yaml"));
    let plans = offline(&documents, &Settings::default()).unwrap();
    let (title, plan) = plans.first().unwrap();
    let told = serde_json::to_string(plan).unwrap();
    assert!(!told.contains("ZG8tbm90LXNob3ctbWU"), "credentials are in the plan");
    insta::with_settings!({ description => title, snapshot_suffix => name }, { assert_yaml_snapshot!("plan", plan) });
}

#[test]
fn the_status_of_a_job_that_runs() {
    assert_yaml_snapshot!(world::World::running().status());
}
