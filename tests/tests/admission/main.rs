//! What the API server takes and what it refuses, asked through a client with strict field validation, as `kubectl` asks.
//!
//! Runs on the sandbox, or on a real control plane where one is lent (see `skerry_tests::cluster`).

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests may fail as tests do"
)]

mod cases;
mod manifests;
mod server;

use cases::cases;
use manifests::{manifests, missing, named, title};
use serde_json::json;
use server::Server;

#[tokio::test]
async fn manifests_in_the_manner_of_sedna_are_taken() {
    let server = Server::start().await;
    for manifest in manifests() {
        let name = title(&manifest);
        if let Err(refusal) = server.create(&manifest).await {
            panic!("{name}: {}", refusal.message);
        }
    }
}

/// Labels and annotations of a template reach the children, so the API server must not prune them.
#[tokio::test]
async fn nothing_of_a_manifest_is_lost() {
    let server = Server::start().await;
    for mut manifest in manifests() {
        let name = title(&manifest);
        let stored = server
            .create(&manifest)
            .await
            .unwrap_or_else(|refusal| panic!("{name}: {}", refusal.message));
        manifests::drop_null(&mut manifest);
        let lost = missing(&manifest["spec"], &stored["spec"]);
        // `template.metadata.creationTimestamp: null` may be kept, other nulls are dropped.
        assert_eq!(lost, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn the_poll_period_has_a_default() {
    let server = Server::start().await;
    let stored = server
        .create(&named("IncrementalLearningJob", "digits.over-time"))
        .await
        .unwrap();
    assert_eq!(stored["spec"]["deploySpec"]["model"]["pollPeriodSeconds"], 60);
}

#[tokio::test]
async fn required_fields() {
    refused("required").await;
}

#[tokio::test]
async fn wrong_types() {
    refused("wrong types").await;
}

#[tokio::test]
async fn wrong_quantities() {
    refused("wrong quantities").await;
}

#[tokio::test]
async fn misspelt_fields() {
    refused("misspelt").await;
}

#[tokio::test]
async fn values_that_can_only_be_wrong() {
    refused("wrong values").await;
}

#[tokio::test]
async fn names_too_long_for_their_children() {
    refused("wrong names").await;
}

/// What Sedna's manager and ours write.
#[tokio::test]
async fn statuses_are_taken() {
    let server = Server::start().await;
    for manifest in manifests::with_status() {
        let name = title(&manifest);
        let mut object = server.create(&manifest).await.unwrap();
        assert_eq!(object.get("status"), None, "{name}: a new object has no status");
        object["status"] = manifest["status"].clone();
        let stored = server.replace_status(&object).await;
        let stored = stored.unwrap_or_else(|refusal| panic!("{name}: {}", refusal.message));
        let lost = missing(&manifest["status"], &stored["status"]);
        assert_eq!(lost, Vec::<String>::new(), "{name}");
    }
}

/// Each writer of a status applies its own part, so no part may need another.
#[tokio::test]
async fn a_status_may_say_one_thing_alone() {
    let server = Server::start().await;
    for manifest in manifests::with_status() {
        if manifest["kind"] == "EdgeNode" {
            continue; // Its status has one field.
        }
        let name = title(&manifest);
        let mut object = server.create(&manifest).await.unwrap();
        object["status"] = json!({"observedGeneration": 1});
        let stored = server.replace_status(&object).await;
        let stored = stored.unwrap_or_else(|refusal| panic!("{name}: {}", refusal.message));
        assert_eq!(stored["status"], json!({"observedGeneration": 1}), "{name}");
    }
}

#[test]
fn the_page_of_scenarios_names_each_of_these() {
    skerry_cluster::table::names_all_of_this_program("admission").unwrap();
}

async fn refused(heading: &str) {
    let server = Server::start().await;
    let mut wrong = Vec::new();
    for case in cases(heading) {
        match server.try_create(&case.manifest()).await {
            Ok(_) => wrong.push(format!("{case}: taken")),
            Err(refusal) if case.is_told_by(&refusal.message) => {}
            Err(refusal) => wrong.push(format!("{case}: said {}", refusal.message)),
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
