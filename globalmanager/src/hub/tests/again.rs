//! Reports that come again, against the real engine and an API server: what was acknowledged, or written and not
//! acknowledged, takes effect once.

use std::time::Duration;

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};
use skerry_edge::{Body, ObjectKey, ReportPayload, ReportResult};
use skerry_sandbox::api::{Fault, Match};
use tokio::time::sleep;

use super::{
    cluster::{Cluster, Running, dataset, job, model, service, settle, world},
    node::Disk,
};

/// The node says one of everything, at this time of its clock.
fn say(node: &Running, second: i64, number: u64) {
    say_in("t", node, second, number);
}

/// Likewise; by its trainer's clock, this is when the round began.
fn say_in(began: &str, node: &Running, second: i64, number: u64) {
    let round = json!({
        "name": "trainer", "kind": "train", "status": "running",
        "ownerInfo": {"currentRound": number, "startTime": began, "sampleCount": 9},
        "results": [{"metrics": {"accuracy": number.to_string()}}],
    });
    let figures = json!({"name": "little", "kind": "inference", "ownerInfo": {"inferenceNumber": number}});
    let (round, figures) = (Body::from(&round), Body::from(&figures));
    let mut disk = node.disk.lock();
    disk.clock = Timestamp::from_second(second).unwrap();
    for (kind, name, payload) in [
        (
            "federatedlearningjob",
            "job",
            ReportPayload::Round {
                round: number,
                message: round,
            },
        ),
        (
            "jointinferenceservice",
            "service",
            ReportPayload::Metrics { message: figures },
        ),
        ("dataset", "d", ReportPayload::DatasetSamples { count: number }),
    ] {
        let key = ObjectKey::new(kind, "default", name);
        assert!(disk.say(&key, payload), "the node holds {key}");
    }
    drop(disk);
    node.signals.outbox.notify_one();
}

fn answers(node: &Running) -> Vec<ReportResult> {
    let disk = node.disk.lock();
    assert!(disk.outbox.is_empty(), "{:?}", disk.outbox);
    disk.settled.values().map(|(_, result)| result.clone()).collect()
}

/// What stands in the API server of all that was reported.
async fn told(cluster: &Cluster) -> Vec<Value> {
    let mut told = Vec::new();
    for object in [model(), dataset(), job(), service()] {
        told.push(cluster.status(&object).await);
    }
    told
}

fn written(cluster: &Cluster) -> Vec<String> {
    let asked = cluster.asked.lock();
    let written = asked.iter().filter(|asked| asked.by_nodes());
    written.map(|asked| asked.path.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_manager_took_takes_no_effect_again_when_its_node_starts_anew() {
    let (cluster, node) = world().await;
    let statuses = ["federatedlearningjobs", "jointinferenceservices", "datasets"];
    let unanswered = statuses.map(|resource| {
        let writes = Match::writes().resource(resource).subresource("status").times(1);
        cluster.api.faults().inject(writes, Fault::Crash { applied: true })
    });
    say(&node, 100, 1);
    sleep(Duration::from_secs(1)).await;
    assert!(unanswered.iter().all(|fault| fault.hits() == 1), "all is written");
    assert_eq!(node.disk.lock().settled.len(), 0, "and nothing answered");

    let disk = node.kill();
    let cluster = cluster.another_manager();
    settle().await;
    let before = told(&cluster).await;
    assert_eq!(before[1]["numberOfSamples"], 1);
    assert_eq!(before[2]["rounds"].as_array().unwrap().len(), 1);
    cluster.asked.lock().clear();
    let node = Running::start_on(disk, 2, cluster.serve());
    settle().await;
    assert_eq!(answers(&node), vec![ReportResult::Accepted {}; 3]);
    assert_eq!(written(&cluster), Vec::<String>::new());
    assert_eq!(told(&cluster).await, before);
}

#[tokio::test(start_paused = true)]
async fn what_was_answered_takes_no_effect_again_when_an_old_store_is_put_back() {
    let (cluster, node) = world().await;
    say(&node, 100, 1);
    say(&node, 101, 2);
    let old = node.disk.lock().clone();
    settle().await;
    for (second, number) in [(102, 3), (103, 4)] {
        say(&node, second, number);
        settle().await;
    }
    assert_eq!(answers(&node), vec![ReportResult::Accepted {}; 12]);
    let before = told(&cluster).await;
    cluster.asked.lock().clear();

    let disk = node.kill();
    *disk.lock() = old;
    let node = Running::start_on(disk, 2, cluster.serve());
    settle().await;
    assert_eq!(answers(&node), vec![ReportResult::Accepted {}; 6]);
    assert_eq!(written(&cluster), Vec::<String>::new());
    assert_eq!(told(&cluster).await, before);

    say(&node, 104, 5);
    settle().await;
    let after = told(&cluster).await;
    assert_eq!(after[0]["metrics"], json!([{"key": "accuracy", "value": "5"}]));
    assert_eq!(
        after[1]["numberOfSamples"], 5,
        "what is new is taken, whatever its number"
    );
    assert_eq!(after[2]["rounds"].as_array().unwrap().len(), 5);
    assert_eq!(after[3]["metrics"], json!([{"key": "inferenceNumber", "value": "5"}]));
}

/// The figures that stand, and each round with when its trainer began.
async fn standing(cluster: &Cluster) -> (Value, Value) {
    let told = told(cluster).await;
    let figures = json!([
        told[0]["metrics"][0]["value"],
        told[1]["numberOfSamples"],
        told[3]["metrics"][0]["value"]
    ]);
    let rounds = told[2]["rounds"].as_array().unwrap().iter();
    let rounds = rounds.map(|round| json!([round["round"], round["workers"][0]["startTime"]]));
    (figures, rounds.collect())
}

#[tokio::test(start_paused = true)]
async fn what_was_answered_takes_no_effect_again_with_a_manager_that_leads_since() {
    let (cluster, node) = world().await;
    say(&node, 100, 1);
    settle().await;
    for (second, number) in [(101, 2), (102, 3), (103, 4)] {
        say(&node, second, number);
    }
    let old = node.disk.lock().clone();
    settle().await;
    for (second, number) in [(200, 1), (201, 2)] {
        say_in("u", &node, second, number);
        settle().await;
    }
    let before = standing(&cluster).await;
    assert_eq!(before, (json!(["2", 2, "2"]), json!([[1, "u"], [2, "u"]])));

    let disk = node.kill();
    *disk.lock() = old;
    let cluster = cluster.another_manager();
    let node = Running::start_on(disk, 2, cluster.serve());
    settle().await;
    assert_eq!(answers(&node), vec![ReportResult::Accepted {}; 12]);
    assert_eq!(written(&cluster), Vec::<String>::new());
    assert_eq!(standing(&cluster).await, before);

    // Numbers that were given before, and a clock that was put back as well.
    say_in("u", &node, 99, 3);
    settle().await;
    let after = standing(&cluster).await;
    assert_eq!(after, (json!(["3", 3, "3"]), json!([[1, "u"], [2, "u"], [3, "u"]])));
}

/// Neither of a start nor of another whose store had not been kept.
#[tokio::test(start_paused = true)]
async fn what_changed_nothing_when_it_was_answered_undoes_nothing_later_out_of_an_old_store() {
    for kept in [true, false] {
        let (cluster, node) = world().await;
        say(&node, 100, 1);
        settle().await;
        say(&node, 101, 1);
        let old = node.disk.lock().clone();
        settle().await;
        let disk = node.kill();
        if !kept {
            *disk.lock() = Disk::default();
        }
        let node = Running::start_on(disk, 2, cluster.serve());
        settle().await;
        say_in("u", &node, 102, 2);
        settle().await;
        let before = standing(&cluster).await;
        assert_eq!(before, (json!(["2", 2, "2"]), json!([[1, "t"], [2, "u"]])));

        let disk = node.kill();
        *disk.lock() = old;
        cluster.asked.lock().clear();
        let node = Running::start_on(disk, 3, cluster.serve());
        settle().await;
        assert_eq!(answers(&node), vec![ReportResult::Accepted {}; 6]);
        assert_eq!(written(&cluster), Vec::<String>::new());
        assert_eq!(standing(&cluster).await, before);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_answered_when_a_copy_was_made_nor_since_takes_effect_from_the_copy() {
    let (cluster, node) = world().await;
    say(&node, 100, 1);
    settle().await;
    let away = cluster
        .api
        .faults()
        .inject(Match::writes().subresource("status"), Fault::InternalError);
    say(&node, 101, 2);
    sleep(Duration::from_secs(1)).await;
    assert!(away.hits() > 0, "it was tried");
    let old = node.disk.lock().clone();
    let disk = node.kill();
    *disk.lock() = old;
    away.remove();
    let cluster = cluster.another_manager();
    let node = Running::start_on(disk, 2, cluster.serve());
    settle().await;
    assert_eq!(answers(&node), vec![ReportResult::Accepted {}; 6]);
    let (figures, rounds) = standing(&cluster).await;
    assert_eq!((figures, rounds), (json!(["2", 2, "2"]), json!([[1, "t"], [2, "t"]])));
}

#[rstest]
#[case("federatedlearningjobs")]
#[case("models")]
#[tokio::test(start_paused = true)]
async fn what_a_deposed_manager_writes_late_undoes_nothing(#[case] resource: &str) {
    let (cluster, node) = world().await;
    let writes = Match::writes().resource(resource).subresource("status").times(1);
    let late = cluster
        .api
        .faults()
        .inject(writes, Fault::Latency(Duration::from_secs(50)));
    say(&node, 100, 1);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(late.hits(), 1, "it is under way");
    let disk = node.kill();
    let next = cluster.manager_beside();
    let node = Running::start_on(disk, 2, next.serve());
    sleep(Duration::from_secs(15)).await;
    say(&node, 101, 2);
    sleep(Duration::from_secs(15)).await;
    let before = standing(&next).await;
    assert_eq!(before, (json!(["2", 2, "2"]), json!([[1, "t"], [2, "t"]])));
    settle().await;
    assert_eq!(standing(&next).await, before);
    assert_eq!(
        cluster.status(&job()).await["reportedUpTo"].as_array().unwrap().len(),
        2
    );
}

/// An agent of before does not say which report it is: each counts, as often as it comes.
#[tokio::test(start_paused = true)]
async fn of_an_older_agent_every_report_is_new() {
    let (cluster, node) = world().await;
    node.disk.lock().boot = None;
    say(&node, 100, 1);
    let old = node.disk.lock().clone();
    settle().await;
    say(&node, 101, 2);
    settle().await;
    assert_eq!(standing(&cluster).await.0, json!(["2", 2, "2"]));
    let disk = node.kill();
    *disk.lock() = old;
    let node = Running::start_on(disk, 2, cluster.serve());
    settle().await;
    assert_eq!(answers(&node), vec![ReportResult::Accepted {}; 3]);
    assert_eq!(standing(&cluster).await.0, json!(["2", 1, "1"]));
    assert_eq!(cluster.status(&service()).await["reportedUpTo"], json!(null));
}
