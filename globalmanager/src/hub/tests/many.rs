//! What a node says of many resources, against the real engine and an API server: one that comes back with a full outbox,
//! and one that does not keep to the rate that it is told.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};
use skerry_edge::{
    Downstream, ItemKey, ObjectKey, ReportResult, Upstream, limits, message::Received, transport::Event,
};
use tokio::time::{Instant, sleep};

use super::{
    cluster::{Cluster, NODE, PipeDialer, Running, object, settle},
    node::Disk,
    storm::come,
};

fn dataset(number: usize) -> Value {
    let spec = json!({"url": "/d.txt", "format": "txt", "nodeName": NODE});
    object("Dataset", &format!("d{number}"), &spec)
}

fn key(number: usize) -> ObjectKey {
    ObjectKey::new("dataset", "default", format!("d{number}"))
}

/// A manager with so many Datasets on a node, and what is left of that node, which is away.
async fn away(datasets: usize) -> (Cluster, PipeDialer, Arc<Mutex<Disk>>) {
    let cluster = Cluster::start().await;
    let dialer = cluster.serve();
    let node = Running::start(dialer.clone());
    for number in 0..datasets {
        cluster.create(&dataset(number)).await;
    }
    settle().await;
    let disk = node.kill();
    let held: BTreeSet<_> = disk.lock().items.keys().cloned().collect();
    assert_eq!(held, (0..datasets).map(|number| ItemKey::from(key(number))).collect());
    settle().await;
    cluster.asked.lock().clear();
    (cluster, dialer, disk)
}

/// How many reports may have gone in this time.
fn most(elapsed: Duration) -> u128 {
    limits::REPORT_WINDOW as u128 + elapsed.as_millis() * u128::from(limits::REPORTS_PER_SECOND) / 1000
}

/// A node comes back that has so many reports on each of so many Datasets; how long it takes until all are answered.
async fn returns(datasets: usize, each: u64) -> Duration {
    let (cluster, dialer, disk) = away(datasets).await;
    for count in 1..=each {
        for number in 0..datasets {
            assert!(disk.lock().report(&key(number), count));
        }
    }
    let owed = disk.lock().outbox.len();
    let began = Instant::now();
    let node = Running::start_on(disk, 2, dialer);
    while !node.disk.lock().outbox.is_empty() {
        sleep(Duration::from_millis(10)).await;
        let (settled, elapsed) = (node.disk.lock().settled.len(), began.elapsed());
        assert!(
            settled as u128 <= most(elapsed),
            "{settled} of {owed} after {elapsed:?}"
        );
        assert!(elapsed < Duration::from_secs(300), "{settled} of {owed}, and no more");
    }
    let took = began.elapsed();
    {
        let disk = node.disk.lock();
        assert_eq!(disk.settled.len(), owed, "each is answered");
        let accepted = |(_, result): &(_, ReportResult)| *result == ReportResult::Accepted {};
        assert!(disk.settled.values().all(accepted));
    }
    for number in 0..datasets {
        let counted = cluster.status(&dataset(number)).await["numberOfSamples"].clone();
        assert_eq!(counted, json!(each), "of {}", key(number));
    }
    took
}

#[tokio::test(start_paused = true)]
async fn what_a_node_owes_that_comes_back_goes_at_the_rate_that_it_is_told() {
    // Of few resources the writes of their statuses are waited for, which takes longer.
    returns(20, 150).await;
    let took = returns(600, 5).await;
    let least = Duration::from_secs(3_000 / u64::from(limits::REPORTS_PER_SECOND));
    assert!(
        took < least + Duration::from_secs(1),
        "{took:?}: it goes no slower, either"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_keeps_to_no_rate_costs_one_write_a_second_of_each_resource() {
    const DATASETS: usize = 300;
    const EACH: u64 = 5;
    let (cluster, dialer, disk) = away(DATASETS).await;
    for count in 1..=EACH {
        for number in 0..DATASETS {
            assert!(disk.lock().report(&key(number), count));
        }
    }
    let mut owed = std::mem::take(&mut disk.lock().outbox).into_values();
    // In turn, so that as few as can be go in one write.
    let mut socket = come(&dialer, 1).await.unwrap();
    let holds_all = Upstream::Rows {
        chunks: vec![],
        rows: vec![],
        more: false,
    };
    socket.send(holds_all);
    let (began, mut in_flight) = (Instant::now(), BTreeSet::new());
    loop {
        let room = limits::REPORT_WINDOW - in_flight.len();
        for report in owed.by_ref().take(room) {
            in_flight.insert(report.seq);
            let settled = in_flight.first().copied().unwrap_or_default();
            let after = None;
            socket.send(Upstream::Report { settled, after, report });
        }
        if in_flight.is_empty() {
            break;
        }
        match socket.next().await.unwrap() {
            Event::Frame(Ok(Received::Message(Downstream::ReportResult { seq, result }))) => {
                assert_eq!(result, ReportResult::Accepted {});
                assert!(in_flight.remove(&seq));
            }
            Event::Frame(Ok(Received::Message(Downstream::Synced { .. }))) | Event::Heard | Event::Pong(_) => {}
            Event::Frame(frame) => panic!("{frame:?}"),
        }
    }
    let seconds = began.elapsed().as_secs();
    assert!(seconds < 2 * EACH, "{seconds} s: that is no flood");
    let asked = cluster.asked.lock().clone();
    let reads: Vec<_> = asked.iter().filter(|asked| asked.reads()).collect();
    assert!(reads.is_empty(), "{reads:?}");
    let writes = |number| {
        let path = format!("/datasets/d{number}/status");
        let writes = asked
            .iter()
            .filter(|asked| asked.by_nodes() && asked.path.ends_with(&path));
        writes.map(|asked| asked.at).collect::<Vec<_>>()
    };
    for number in 0..DATASETS {
        let writes = writes(number);
        assert!(writes.len() as u64 <= seconds + 1, "{} in {seconds} s", writes.len());
        assert!(writes.windows(2).all(|pair| pair[1] - pair[0] >= limits::STATUS_PACE));
        let counted = cluster.status(&dataset(number)).await["numberOfSamples"].clone();
        assert_eq!(counted, json!(EACH), "of {}", key(number));
    }
    // That it is counted makes a Dataset ready, which the manager writes once.
    let others = asked
        .iter()
        .filter(|asked| asked.verb != "GET" && !asked.by_nodes())
        .count();
    assert!(others <= DATASETS, "{others}");
}
