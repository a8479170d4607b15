//! What becomes of reports whose write never ends, or whose resources go while it is under way.

use std::time::Duration;

use serde_json::{Value, json};
use skerry_edge::{Body, ObjectKey, ReportPayload, ReportResult};
use skerry_sandbox::api::{Fault, Match};
use tokio::time::sleep;

use super::cluster::{Cluster, Running, dataset, job, model, settle};

/// A manager with a job, and a node that holds it.
async fn world() -> (Cluster, Running) {
    let cluster = Cluster::start().await;
    let node = Running::start(cluster.serve());
    for object in [model(), dataset(), job()] {
        cluster.create(&object).await;
    }
    settle().await;
    (cluster, node)
}

fn report_round(node: &Running, number: u64) {
    let message = json!({
        "name": "trainer", "kind": "train", "status": "running", "ownerInfo": {"currentRound": number},
        "results": [{"metrics": {"accuracy": number.to_string()}}],
    });
    let message = Body::from(&message);
    let round = ReportPayload::Round { round: number, message };
    let job = ObjectKey::new("federatedlearningjob", "default", "job");
    assert!(node.disk.lock().say(&job, round), "the node holds the job");
    node.signals.outbox.notify_one();
}

fn answers(node: &Running) -> Vec<ReportResult> {
    let disk = node.disk.lock();
    disk.settled.values().map(|(_, result)| result.clone()).collect()
}

async fn rounds(cluster: &Cluster) -> Vec<Value> {
    let status = cluster.status(&job()).await;
    let rounds = status["rounds"].as_array().cloned().unwrap_or_default();
    rounds.into_iter().map(|round| round["round"].clone()).collect()
}

fn status_of(resource: &str) -> Match {
    Match::writes().resource(resource).subresource("status").times(1)
}

#[tokio::test(start_paused = true)]
async fn a_write_that_never_ends_holds_up_its_reports_for_a_minute_only() {
    let (cluster, node) = world().await;
    let never = Fault::Crash { applied: false };
    let hit = cluster.api.faults().inject(status_of("federatedlearningjobs"), never);
    report_round(&node, 1);
    sleep(Duration::from_secs(1)).await;
    report_round(&node, 2);
    sleep(Duration::from_secs(50)).await;
    assert_eq!((hit.hits(), answers(&node)), (1, vec![]));
    settle().await;
    assert_eq!(answers(&node), [ReportResult::Accepted {}, ReportResult::Accepted {}]);
    assert_eq!(rounds(&cluster).await, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_round_whose_model_goes_while_it_is_written_is_taken() {
    let (cluster, node) = world().await;
    let slow = Fault::Latency(Duration::from_secs(5));
    let hit = cluster.api.faults().inject(status_of("models"), slow);
    report_round(&node, 1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(hit.hits(), 1, "the write is under way");
    cluster.delete(&model()).await;
    settle().await;
    assert_eq!(answers(&node), [ReportResult::Accepted {}]);
    assert_eq!(rounds(&cluster).await, [1]);
    assert_eq!(cluster.hub.snapshot().reports_refused, 0);
}
