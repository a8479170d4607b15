//! What edits and events cost and come to, against the real engine and an API server.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value, json};
use skerry_edge::{Body, Item, ItemKey, ObjectKey, ReportPayload};
use skerry_sandbox::api::{Fault, Match};
use tokio::time::sleep;

use super::{
    super::{Answers, Reported, Reports},
    cluster::{dataset, model, service, settle, world},
};
use crate::engine::Taken;

#[tokio::test(start_paused = true)]
async fn edits_reach_their_node_and_cost_no_read() {
    let (cluster, node) = world().await;
    cluster.asked.lock().clear();
    for edit in 1..=100 {
        let url = format!("/var/{edit}.txt");
        cluster.edit(&dataset(), &json!({"spec": {"url": url}})).await;
        if edit % 5 == 0 {
            let image = format!("example/i:v{edit}");
            let template = json!({"spec": {"nodeName": "edge-1", "containers": [{"name": "c", "image": image}]}});
            let edit = json!({"spec": {"edgeWorker": {"template": template}}});
            cluster.edit(&service(), &edit).await;
        }
        sleep(Duration::from_millis(50)).await;
    }
    settle().await;
    let held = |kind: &str, name: &str| {
        let key = ItemKey::from(ObjectKey::new(kind, "default", name));
        let Item::Object(object) = node.disk.lock().items[&key].clone() else {
            panic!("{key} is no object")
        };
        object.body.json().to_owned()
    };
    assert!(held("dataset", "d").contains("/var/100.txt"));
    assert!(held("jointinferenceservice", "service").contains("example/i:v100"));
    let asked = cluster.asked.lock();
    let reads: Vec<_> = asked.iter().filter(|asked| asked.reads()).collect();
    // Another Dataset means other workers of the job, and none is deleted without a second look at its owner.
    let job = |path: &str| path.ends_with("federatedlearningjobs/job");
    assert!(
        reads.len() <= 1 && reads.iter().all(|read| job(&read.path)),
        "{reads:?}"
    );
}

/// Notes which events of a job were taken, in their order.
struct Noted<R> {
    reports: R,
    taken: Arc<Mutex<Vec<u64>>>,
}

#[async_trait]
impl<R: Reports> Reports for Noted<R> {
    async fn take(&self, key: &ObjectKey, reports: &[Reported]) -> Answers {
        let answers = self.reports.take(key, reports).await;
        for (reported, taken) in reports.iter().zip(&answers.each) {
            if let (ReportPayload::Event { message }, Taken::Accepted) = (&reported.report.payload, taken) {
                let message: Value = serde_json::from_str(message.json()).unwrap();
                self.taken.lock().push(message["ownerInfo"]["number"].as_u64().unwrap());
            }
        }
        answers
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_flood_of_figures_no_event_is_lost_whatever_the_api_server_does() {
    const EVENTS: u64 = 1_000;
    let (cluster, node) = world().await;
    let taken = Arc::<Mutex<Vec<u64>>>::default();
    let noted = taken.clone();
    cluster.hub.stand_down();
    cluster.lead_with(|reports| Arc::new(Noted { reports, taken: noted }));
    settle().await;
    let job_key = ObjectKey::new("federatedlearningjob", "default", "job");
    let service_key = ObjectKey::new("jointinferenceservice", "default", "service");
    let writes = || Match::writes().resource("models").subresource("status");
    let slow = cluster
        .api
        .faults()
        .inject(writes().times(3), Fault::Latency(Duration::from_secs(3)));
    let never = cluster
        .api
        .faults()
        .inject(writes().times(1), Fault::Crash { applied: true });
    for number in 1..=EVENTS {
        let figures = json!({"name": "little", "kind": "inference", "ownerInfo": {"inferenceNumber": number}});
        let event = json!({
            "name": "trainer", "kind": "train", "status": "running", "ownerInfo": {"number": number},
            "results": [{"metrics": {"accuracy": number.to_string()}}],
        });
        let message = |message: &Value| Body::from(message);
        {
            let mut disk = node.disk.lock();
            assert!(disk.say(
                &service_key,
                ReportPayload::Metrics {
                    message: message(&figures)
                }
            ));
            assert!(disk.say(
                &job_key,
                ReportPayload::Event {
                    message: message(&event)
                }
            ));
        }
        node.signals.outbox.notify_one();
        sleep(Duration::from_millis(20)).await;
    }
    while !node.disk.lock().outbox.is_empty() {
        sleep(Duration::from_millis(100)).await;
    }
    assert!(slow.hits() > 0 && never.hits() > 0, "the API server was not disturbed");
    // One whose write was cut off comes again: it was not known what became of it.
    let mut came = taken.lock().clone();
    came.dedup();
    assert_eq!(came, (1..=EVENTS).collect::<Vec<_>>());
    let last = json!([{"key": "accuracy", "value": EVENTS.to_string()}]);
    assert_eq!(cluster.status(&model()).await["metrics"], last);
}
