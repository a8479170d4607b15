use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use async_trait::async_trait;
use proptest::prelude::*;
use serde_json::{Map, json};
use skerry_crds::sedna::v1alpha1::{Dataset, FederatedLearningJob, JointInferenceService};
use skerry_edge::ReportId;
use skerry_workloads::{Kind, ObjectKind, Payload, Report, WorkerMessage};

use super::{
    super::{
        Engine,
        driver::{Change, Driven, Follows, Open},
        pass,
        queue::Ended,
        reports::Start,
    },
    *,
};

/// Counts how often a resource is read.
struct Counting<D>(D, AtomicUsize);

#[async_trait]
impl<D: Driver> Driver for Counting<D> {
    fn watched(&self) -> Vec<ObjectKind> {
        self.0.watched()
    }

    fn follows(&self, of: ObjectKind, change: Change) -> Follows {
        self.0.follows(of, change)
    }

    fn reported(&self) -> &'static [&'static str] {
        self.0.reported()
    }

    async fn pass(&self, engine: &Engine, key: &ResourceKey) -> Result<Ended, pass::Error> {
        self.0.pass(engine, key).await
    }

    fn place(&self, engine: &Engine, key: &ResourceKey) {
        self.0.place(engine, key);
    }

    fn open(&self, resource: Value) -> Result<Box<dyn Open>, serde_json::Error> {
        self.1.fetch_add(1, Relaxed);
        self.0.open(resource)
    }
}

fn key<K: Kind>() -> ResourceKey {
    ResourceKey {
        kind: K::KIND,
        namespace: "default".to_owned(),
        name: "it".to_owned(),
    }
}

fn job() -> Value {
    let template = json!({"spec": {"containers": []}});
    json!({
        "apiVersion": "sedna.io/v1alpha1", "kind": "FederatedLearningJob",
        "metadata": {"name": "it", "namespace": "default", "uid": "u"},
        "spec": {
            "aggregationWorker": {"model": {"name": "m"}, "template": template},
            "trainingWorkers": [{"dataset": {"name": "d"}, "template": template}],
        },
    })
}

fn service() -> Value {
    let template = json!({"spec": {"containers": []}});
    json!({
        "apiVersion": "sedna.io/v1alpha1", "kind": "JointInferenceService",
        "metadata": {"name": "it", "namespace": "default", "uid": "u"},
        "spec": {
            "edgeWorker": {"model": {"name": "m"}, "template": template,
                "hardExampleMining": {"name": "IBT", "parameters": []}},
            "cloudWorker": {"model": {"name": "m"}, "template": template},
        },
    })
}

/// A report whose node does not say which it is.
fn said(payload: Payload) -> NodeReport {
    let node = "edge-1".to_owned();
    NodeReport {
        uid: "u".to_owned(),
        id: None,
        from: Start::Present,
        report: Report { node, payload },
    }
}

fn numbered(boot: &str, number: u64, report: NodeReport) -> NodeReport {
    let boot = boot.to_owned();
    NodeReport {
        id: Some(ReportId { boot, number }),
        ..report
    }
}

fn message(worker: &str, owner_info: &Value, accuracy: Option<u8>) -> NodeReport {
    let results = accuracy.map(|accuracy| json!({"metrics": {"accuracy": accuracy}}));
    let message = WorkerMessage {
        name: worker.to_owned(),
        owner_info: owner_info.as_object().cloned().unwrap_or_default(),
        results: results.iter().filter_map(Value::as_object).cloned().collect(),
        ..WorkerMessage::default()
    };
    said(Payload::Worker(Box::new(message)))
}

fn round(worker: &str, number: u8) -> NodeReport {
    message(worker, &json!({"currentRound": number, "startTime": "t"}), Some(number))
}

fn status(folded: &Folded, kind: ObjectKind) -> &Map<String, Value> {
    let change = folded.changes.iter().find(|change| change.kind == kind);
    &change.unwrap().status
}

#[test]
fn a_batch_reads_its_resource_once() {
    let (driver, key) = (
        Counting(Driven::<FederatedLearningJob>::new(), AtomicUsize::new(0)),
        key::<FederatedLearningJob>(),
    );
    let rounds: Vec<_> = (1..=40).map(|number| round("a", number)).collect();
    let folded = fold(&driver, &key, job(), &rounds, Timestamp::UNIX_EPOCH);
    assert_eq!(status(&folded, key.kind)["rounds"].as_array().unwrap().len(), 40);
    assert_eq!(driver.1.load(Relaxed), 1);
}

#[test]
fn all_rounds_are_in_one_write_of_the_job_and_the_last_figures_in_one_of_the_model_before_it() {
    let reports: Vec<_> = (1..=50).map(|number| round("w", number)).collect();
    let key = key::<FederatedLearningJob>();
    let folded = fold(
        &Driven::<FederatedLearningJob>::new(),
        &key,
        job(),
        &reports,
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(folded.without, vec![None; 50]);
    let kinds: Vec<_> = folded.changes.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ObjectKind::MODEL, FederatedLearningJob::KIND]);
    let rounds = status(&folded, FederatedLearningJob::KIND)["rounds"]
        .as_array()
        .unwrap();
    let numbers: Vec<_> = rounds.iter().map(|round| round["round"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=50).collect::<Vec<_>>());
    assert_eq!(
        status(&folded, ObjectKind::MODEL)["metrics"],
        json!([{"key": "accuracy", "value": "50"}])
    );
}

#[test]
fn a_report_that_makes_no_sense_is_refused_alone() {
    let bad = message("w", &json!({"currentRound": "three"}), None);
    let key = key::<FederatedLearningJob>();
    let driver = Driven::<FederatedLearningJob>::new();
    let reports = [round("w", 1), bad, round("w", 2)];
    let folded = fold(&driver, &key, job(), &reports, Timestamp::UNIX_EPOCH);
    let [None, Some(Taken::Refused(reason)), None] = &folded.without[..] else {
        panic!("{folded:?}")
    };
    assert!(reason.contains("currentRound"), "{reason}");
    assert_eq!(
        status(&folded, FederatedLearningJob::KIND)["rounds"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let nonsense = json!({"metadata": {"name": "it"}, "spec": 7});
    let folded = fold(&driver, &key, nonsense, &reports, Timestamp::UNIX_EPOCH);
    assert!(
        folded
            .without
            .iter()
            .all(|taken| matches!(taken, Some(Taken::Later(_))))
    );
    assert_eq!(folded.changes, []);
}

#[test]
fn of_figures_the_newest_is_written() {
    let reports = [1, 2, 3].map(|count| message("w", &json!({"inferenceNumber": count}), None));
    let key = key::<JointInferenceService>();
    let driver = Driven::<JointInferenceService>::new();
    let folded = fold(&driver, &key, service(), &reports, Timestamp::UNIX_EPOCH);
    assert_eq!(folded.changes.len(), 1);
    assert_eq!(
        status(&folded, JointInferenceService::KIND)["metrics"],
        json!([{"key": "inferenceNumber", "value": "3"}])
    );
}

/// What stands in the end, and how much of it was written.
fn told(resource: &mut Value, reports: &[NodeReport]) -> Vec<Map<String, Value>> {
    let (driver, key) = (Driven::<JointInferenceService>::new(), key::<JointInferenceService>());
    let Folded { without, changes } = fold(&driver, &key, resource.clone(), reports, Timestamp::UNIX_EPOCH);
    assert!(
        without
            .iter()
            .all(|taken| matches!(taken, None | Some(Taken::Accepted)))
    );
    for change in &changes {
        put(resource, driver.reported(), &change.status);
    }
    changes.into_iter().map(|change| change.status).collect()
}

#[test]
fn a_report_and_that_it_was_heard_are_one_write_and_it_is_not_carried_out_again() {
    let count = |count: u8| message("w", &json!({"inferenceNumber": count}), None);
    let mut service = service();
    let [first, same, second] = [(7, 5), (8, 5), (9, 6)].map(|(number, value)| numbered("a", number, count(value)));
    let mut heard = |reports: &[NodeReport]| {
        let written = told(&mut service, reports);
        let last = written.last().map(|status| status["reportedUpTo"][0]["number"].clone());
        (written.len(), last)
    };
    assert_eq!(heard(std::slice::from_ref(&first)), (1, Some(json!(7))));
    assert_eq!(
        heard(std::slice::from_ref(&same)),
        (1, Some(json!(8))),
        "it says what is there already, which need not be so when it comes again"
    );
    assert_eq!(heard(&[second]), (1, Some(json!(9))));
    assert_eq!(heard(&[first, same]), (0, None), "they were carried out");
    let (other, back) = (numbered("b", 7, count(5)), numbered("b", 8, count(6)));
    let written = told(&mut service, &[other, back]);
    let all = json!([
        {"node": "edge-1", "boot": "a", "number": 9}, {"node": "edge-1", "boot": "b", "number": 8},
    ]);
    assert_eq!(
        written.iter().map(|status| &status["reportedUpTo"]).collect::<Vec<_>>(),
        [&all],
        "the second undoes what the first does, and neither may come again"
    );
}

#[test]
fn of_what_changes_only_the_model_it_is_known_too() {
    let last = numbered("a", 3, message("w", &json!({}), Some(9)));
    let (driver, key) = (Driven::<FederatedLearningJob>::new(), key::<FederatedLearningJob>());
    let mut job = job();
    let folded = fold(
        &driver,
        &key,
        job.clone(),
        std::slice::from_ref(&last),
        Timestamp::UNIX_EPOCH,
    );
    let kinds: Vec<_> = folded.changes.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ObjectKind::MODEL, FederatedLearningJob::KIND]);
    put(&mut job, driver.reported(), status(&folded, FederatedLearningJob::KIND));
    let again = fold(&driver, &key, job, &[last], Timestamp::UNIX_EPOCH);
    assert_eq!((again.without, again.changes), (vec![Some(Taken::Accepted)], vec![]));
}

#[test]
fn what_comes_twice_in_a_batch_is_answered_when_the_first_of_it_is_written() {
    let twice = numbered("a", 1, message("w", &json!({"inferenceNumber": 1}), None));
    let (driver, key) = (Driven::<JointInferenceService>::new(), key::<JointInferenceService>());
    let folded = fold(&driver, &key, service(), &[twice.clone(), twice], Timestamp::UNIX_EPOCH);
    assert_eq!((folded.without, folded.changes.len()), (vec![None, None], 1));
}

#[test]
fn a_failed_count_keeps_the_good_one_of_the_same_batch() {
    let dataset = json!({
        "apiVersion": "sedna.io/v1alpha1", "kind": "Dataset",
        "metadata": {"name": "it", "namespace": "default", "uid": "u"},
        "spec": {"url": "/data", "format": "csv", "nodeName": "edge-1"},
    });
    let reports = [
        said(Payload::Samples(7)),
        said(Payload::SamplesFailed("no such file".to_owned())),
    ];
    let folded = fold(
        &Driven::<Dataset>::new(),
        &key::<Dataset>(),
        dataset,
        &reports,
        Timestamp::UNIX_EPOCH,
    );
    let status = status(&folded, Dataset::KIND);
    assert_eq!(
        (&status["numberOfSamples"], &status["countError"]),
        (&json!(7), &json!("no such file"))
    );
}

/// As the API server does with what one field manager applies.
fn put(resource: &mut Value, reported: &[&str], news: &Map<String, Value>) {
    let status = resource.as_object_mut().unwrap().entry("status").or_insert(json!({}));
    let status = status.as_object_mut().unwrap();
    status.retain(|field, _| !reported.contains(&field.as_str()));
    status.extend(news.clone());
}

/// What stands in the end, written change by change.
fn written(driver: &dyn Driver, key: &ResourceKey, batches: &[&[NodeReport]]) -> (Value, Vec<StatusChange>, usize) {
    let (mut resource, mut model, mut refused) = (job(), Vec::new(), 0);
    for batch in batches {
        let folded = fold(driver, key, resource.clone(), batch, Timestamp::UNIX_EPOCH);
        refused += folded.without.iter().flatten().count();
        for change in folded.changes {
            if change.kind == key.kind {
                put(&mut resource, driver.reported(), &change.status);
            } else {
                model = vec![change];
            }
        }
    }
    (resource, model, refused)
}

fn any_report() -> impl Strategy<Value = NodeReport> {
    let worker = prop::sample::select(&["a", "b", "c"][..]);
    let number = prop_oneof![(0..12_u8).prop_map(Value::from), Just(json!("x")), Just(json!(null))];
    let start = prop::sample::select(&["1", "2", "3"][..]);
    (worker, number, start, prop::option::of(0..5_u8)).prop_map(|(worker, number, start, accuracy)| {
        message(worker, &json!({"currentRound": number, "startTime": start}), accuracy)
    })
}

proptest! {
    #[test]
    fn however_reports_are_divided_into_batches_the_same_stands_in_the_end(
        reports in prop::collection::vec(any_report(), 1..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let (driver, key) = (Driven::<FederatedLearningJob>::new(), key::<FederatedLearningJob>());
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(reports.len())).collect();
        cuts.extend([0, reports.len()]);
        cuts.sort_unstable();
        let batches: Vec<_> = cuts.windows(2).map(|cut| &reports[cut[0]..cut[1]]).collect();
        let one_by_one: Vec<_> = reports.chunks(1).collect();
        prop_assert_eq!(written(&driver, &key, &batches), written(&driver, &key, &one_by_one));
    }
}
