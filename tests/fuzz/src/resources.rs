//! What comes from the API server and from users' files: resources, and what is decided about them; and what workers say
//! about them.

use std::cell::OnceCell;

use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use skerry_crds::{sedna::v1alpha1 as sedna, skerry::v1alpha1 as skerry};
use skerry_globalmanager::{hub::NodeStatus, identity::operator::with_others};
use skerry_workloads::{Kind, Payload, Report, Settings, WorkerMessage, offline};

use crate::Came;

/// Some time: no target looks at a clock.
fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 50)
}

pub(crate) fn resource(data: &[u8]) -> Came {
    let object: Value = match serde_json::from_slice(data) {
        Ok(object) => object,
        Err(error) => return Came::refused(error),
    };
    if object.is_array() {
        return nodes(object);
    }
    match object.get("kind").and_then(Value::as_str) {
        Some("Dataset") => read::<sedna::Dataset>(object),
        Some("FeatureExtractionService") => read::<sedna::FeatureExtractionService>(object),
        Some("FederatedLearningJob") => read::<sedna::FederatedLearningJob>(object),
        Some("IncrementalLearningJob") => read::<sedna::IncrementalLearningJob>(object),
        Some("JointInferenceService") => read::<sedna::JointInferenceService>(object),
        Some("LifelongLearningJob") => read::<sedna::LifelongLearningJob>(object),
        Some("Model") => read::<sedna::Model>(object),
        Some("ObjectSearchService") => read::<sedna::ObjectSearchService>(object),
        Some("ObjectTrackingService") => read::<sedna::ObjectTrackingService>(object),
        Some("ReidJob") => read::<sedna::ReidJob>(object),
        Some("VideoAnalyticsJob") => read::<sedna::VideoAnalyticsJob>(object),
        Some("EdgeNode") => read::<skerry::EdgeNode>(object),
        _ => Came::refused("no kind of ours"),
    }
}

/// What `skerry nodes` lists of what a manager says: each node, as long as it may have been there.
fn nodes(said: Value) -> Came {
    let known: Vec<NodeStatus> = match serde_json::from_value(said) {
        Ok(known) => known,
        Err(error) => return Came::refused(error),
    };
    let rows = with_others(Vec::new(), &known, now());
    assert_eq!(rows.len(), known.len(), "a node is left out");
    serde_json::to_string(&rows.iter().map(|row| &row.session).collect::<Vec<_>>()).unwrap();
    Came::taken("nodes")
}

/// Reads a resource; what was read is the same once it is written and read again.
fn read<K: DeserializeOwned + Serialize>(object: Value) -> Came {
    let resource: K = match serde_json::from_value(object) {
        Ok(resource) => resource,
        Err(error) => return Came::refused(error),
    };
    let written = serde_json::to_value(&resource).unwrap();
    let again: K = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(
        serde_json::to_value(&again).unwrap(),
        written,
        "read differently once written"
    );
    Came::taken(written.get("kind").and_then(Value::as_str).unwrap_or_default())
}

/// All decisions, about whatever manifests. They are the same each time, and can be printed.
pub(crate) fn plan(data: &[u8]) -> Came {
    let Ok(text) = std::str::from_utf8(data) else {
        return Came::refused("not text");
    };
    let documents: Vec<Value> = match serde_saphyr::from_multiple(text) {
        Ok(documents) => documents,
        Err(error) => return Came::refused(error.without_snippet()),
    };
    match offline(&documents, &Settings::default()) {
        Ok(plans) => {
            let again = offline(&documents, &Settings::default()).unwrap();
            assert_eq!(again, plans, "decided differently the second time");
            let found = plans.iter().flat_map(|(_, plan)| &plan.findings);
            let reasons: Vec<_> = found.map(|finding| finding.reason).collect();
            serde_saphyr::to_string(&json!(plans)).unwrap();
            Came::taken(format!("{} {}", "plan ".repeat(plans.len().min(3)), reasons.join(" ")))
        }
        Err(error) => Came::refused(error),
    }
}

/// What each kind makes of a worker's message. A status that came of it can be written.
pub(crate) fn report(data: &[u8]) -> Came {
    thread_local! {
        static REPORTED: OnceCell<Reported> = const { OnceCell::new() };
    }
    let message: WorkerMessage = match serde_json::from_slice(data) {
        Ok(message) => message,
        Err(error) => return Came::refused(error),
    };
    let report = Report {
        node: "edge-1".to_owned(),
        payload: Payload::Worker(Box::new(message)),
    };
    REPORTED.with(|reported| {
        let reported = reported.get_or_init(Reported::new);
        let ways = [
            change(&reported.service, &report),
            change(&reported.job, &report),
            change(&reported.dataset, &report),
            change(&reported.model, &report),
        ];
        Came::taken(ways.join(" "))
    })
}

/// What is reported on.
struct Reported {
    service: sedna::JointInferenceService,
    job: sedna::FederatedLearningJob,
    dataset: sedna::Dataset,
    model: sedna::Model,
}

impl Reported {
    fn new() -> Self {
        let template = json!({"spec": {"nodeName": "edge-1", "containers": [{"name": "c", "image": "i"}]}});
        let service = json!({
            "edgeWorker": {"model": {"name": "m"}, "hardExampleMining": {"name": "IBT"}, "template": template},
            "cloudWorker": {"model": {"name": "m"}, "template": template},
        });
        let job = json!({
            "aggregationWorker": {"model": {"name": "m"}, "template": template},
            "trainingWorkers": [{"dataset": {"name": "d"}, "template": template}],
        });
        Self {
            service: made("JointInferenceService", &service),
            job: made("FederatedLearningJob", &job),
            dataset: made("Dataset", &json!({"url": "/d", "format": "txt", "nodeName": "edge-1"})),
            model: made("Model", &json!({"url": "/m", "format": "pb"})),
        }
    }
}

fn made<K: DeserializeOwned>(kind: &str, spec: &Value) -> K {
    let metadata = json!({"name": "r", "namespace": "default", "uid": "uid", "generation": 1});
    let object = json!({"apiVersion": "sedna.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec});
    serde_json::from_value(object).unwrap()
}

/// What a report changes at a resource, in a word.
fn change<K: Kind>(resource: &K, report: &Report) -> String {
    match resource.report(report, now()) {
        Ok(changes) => {
            for change in &changes {
                serde_json::to_string(&change.status).unwrap();
            }
            format!("{} changes", if changes.is_empty() { "no" } else { "some" })
        }
        Err(refusal) => refusal.to_string(),
    }
}
