//! A node that reports as fast as it can, against the real engine and an API server: what that costs, and that nothing
//! that counts is lost.

use std::time::Duration;

use serde_json::json;
use skerry_edge::{Body, ObjectKey, ReportPayload, ReportResult, limits};
use tokio::time::{Instant, sleep};

use super::cluster::{Cluster, Running, dataset, job, model, service, settle};

/// How long the node floods.
const SECONDS: u64 = 20;

fn round(number: u64) -> ReportPayload {
    let message = json!({
        "name": "trainer", "kind": "train", "status": "running",
        "ownerInfo": {"currentRound": number, "startTime": "t", "sampleCount": 9},
        "results": [{"metrics": {"accuracy": number.to_string()}}],
    });
    ReportPayload::Round {
        round: number,
        message: Body::from(&message),
    }
}

fn figures(count: u64) -> ReportPayload {
    let message = json!({"name": "little", "kind": "inference", "ownerInfo": {"inferenceNumber": count}});
    ReportPayload::Metrics {
        message: Body::from(&message),
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_costs_one_write_a_second_and_resource_and_no_read_and_no_round_is_lost() {
    let cluster = Cluster::start().await;
    let node = Running::start(cluster.serve());
    for object in [model(), dataset(), job(), service()] {
        cluster.create(&object).await;
    }
    settle().await;
    let put = |key: &ObjectKey, payload| {
        assert!(node.disk.lock().say(key, payload), "the node holds {key}");
        node.signals.outbox.notify_one();
    };
    let job_key = ObjectKey::new("federatedlearningjob", "default", "job");
    let service_key = ObjectKey::new("jointinferenceservice", "default", "service");
    let dataset_key = ObjectKey::new("dataset", "default", "d");
    cluster.asked.lock().clear();
    let began = Instant::now();
    let (rounds, floods) = (5 * SECONDS, 50 * SECONDS);
    for tick in 1..=floods {
        put(&service_key, figures(tick));
        put(&dataset_key, ReportPayload::DatasetSamples { count: tick });
        if tick.is_multiple_of(floods / rounds) {
            put(&job_key, round(tick / (floods / rounds)));
        }
        sleep(Duration::from_millis(20)).await;
    }
    while !node.disk.lock().outbox.is_empty() {
        sleep(Duration::from_millis(100)).await;
    }
    let seconds = began.elapsed().as_secs() + 1;
    let settled = node.disk.lock().settled.len() as u64;
    assert_eq!(settled, 2 * floods + rounds, "each is answered");
    let accepted = |(_, result): &(_, ReportResult)| *result == ReportResult::Accepted {};
    assert!(node.disk.lock().settled.values().all(accepted));

    let asked = cluster.asked.lock().clone();
    let reads: Vec<_> = asked.iter().filter(|asked| asked.reads()).collect();
    assert!(reads.is_empty(), "{reads:?}");
    for (path, least) in [
        ("jointinferenceservices/service/status", SECONDS / 2),
        ("federatedlearningjobs/job/status", SECONDS / 2),
        ("models/m/status", SECONDS / 2),
        ("datasets/d/status", SECONDS / 2),
    ] {
        let writes: Vec<_> = asked
            .iter()
            .filter(|asked| asked.by_nodes() && asked.path.ends_with(path))
            .collect();
        assert!(writes.iter().all(|write| write.verb == "PATCH"), "{writes:?}");
        assert!(
            writes.len() as u64 <= seconds,
            "{path}: {} writes in {seconds} s",
            writes.len()
        );
        assert!(
            writes.len() as u64 >= least,
            "{path}: the status follows while the flood lasts"
        );
        for pair in writes.windows(2) {
            assert!(pair[1].at - pair[0].at >= limits::STATUS_PACE, "{path}: {pair:?}");
        }
    }
    let own = asked.iter().filter(|asked| asked.verb != "GET" && !asked.by_nodes());
    let (of_rounds, others): (Vec<_>, Vec<_>) = own
        .filter(|asked| !asked.path.ends_with("/events"))
        .partition(|asked| asked.path.ends_with("job/status"));
    assert!(of_rounds.len() as u64 <= seconds, "the job's conditions tell of rounds");
    assert!(
        others.len() == 1 && others.iter().all(|asked| asked.path.ends_with("d/status")),
        "the Dataset is ready once it is counted, and nothing else follows: {others:?}"
    );

    let told = cluster.status(&job()).await;
    let numbers: Vec<_> = told["rounds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|round| round["round"].clone())
        .collect();
    assert_eq!(
        json!(numbers),
        json!((1..=rounds).collect::<Vec<_>>()),
        "all rounds arrive"
    );
    let last = |key: &str, value: u64| json!([{"key": key, "value": value.to_string()}]);
    assert_eq!(cluster.status(&model()).await["metrics"], last("accuracy", rounds));
    assert_eq!(
        cluster.status(&service()).await["metrics"],
        last("inferenceNumber", floods)
    );
    assert_eq!(cluster.status(&dataset()).await["numberOfSamples"], json!(floods));
}

#[tokio::test(start_paused = true)]
async fn what_waits_on_one_resource_does_not_hold_up_what_is_said_of_others() {
    let cluster = Cluster::start().await;
    let node = Running::start(cluster.serve());
    for object in [model(), dataset(), job(), service()] {
        cluster.create(&object).await;
    }
    settle().await;
    let job_key = ObjectKey::new("federatedlearningjob", "default", "job");
    let (service_key, dataset_key) = (
        ObjectKey::new("jointinferenceservice", "default", "service"),
        ObjectKey::new("dataset", "default", "d"),
    );
    let rounds = 5 * limits::REPORT_WINDOW as u64;
    {
        let mut disk = node.disk.lock();
        for number in 1..=rounds {
            assert!(disk.say(&job_key, round(number)));
        }
        assert!(disk.say(&service_key, figures(7)) && disk.report(&dataset_key, 9));
    }
    node.signals.outbox.notify_one();
    sleep(limits::STATUS_PACE / 2).await;
    let settled = || node.disk.lock().settled.len() as u64;
    assert!(settled() < rounds / 2, "most of the rounds wait");
    assert_eq!(cluster.status(&dataset()).await["numberOfSamples"], json!(9));
    assert_eq!(
        cluster.status(&service()).await["metrics"],
        json!([{"key": "inferenceNumber", "value": "7"}])
    );
    while settled() < rounds + 2 {
        sleep(limits::STATUS_PACE).await;
    }
    let accepted = |(_, result): &(_, ReportResult)| *result == ReportResult::Accepted {};
    assert!(node.disk.lock().settled.values().all(accepted));
    let told = cluster.status(&job()).await;
    let numbers: Vec<_> = told["rounds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|round| &round["round"])
        .collect();
    let kept = numbers.len() as u64;
    assert_eq!(
        json!(numbers),
        json!((rounds - kept + 1..=rounds).collect::<Vec<_>>()),
        "of the rounds the last are kept, each"
    );
    assert!(kept >= 100);
}
