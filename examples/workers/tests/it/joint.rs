//! The joint inference example over real sockets: edge worker, cloud worker, local controller.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::support::{LocalController, federated, page_tells, percent, serve};
use serde_json::{Value, json};
use skerry_workers::data::{Parts, Sample};
use skerry_workers::env::Env;
use skerry_workers::hard_example::{Answer, Filter};
use skerry_workers::network::Network;
use skerry_workers::recipe::LARGE;
use skerry_workers::{cloud, edge, model};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// An edge worker at work.
struct Edge {
    lc: LocalController,
    stop: CancellationToken,
    work: JoinHandle<Result<(), edge::EdgeError>>,
    _models: tempfile::TempDir,
}

/// The model that the federated example arrives at, and the large one; made once for all tests.
static MODELS: LazyLock<(Network, Network)> = LazyLock::new(|| {
    let shares = Parts::built_in().unwrap().train;
    (federated(&shares, 10), LARGE.train(&shares.concat()))
});

fn small_model() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.json");
    model::save(&path, &MODELS.0.weights()).unwrap();
    (folder, path)
}

impl Edge {
    async fn start(filter: &str, parameters: &Value, cloud_port: u16) -> Self {
        let lc = LocalController::start().await;
        let (models, small) = small_model();
        let env = [
            ("BIG_MODEL_IP", "localhost".to_owned()),
            ("BIG_MODEL_PORT", cloud_port.to_string()),
            ("HEM_NAME", filter.to_owned()),
            ("HEM_PARAMETERS", parameters.to_string()),
            ("LC_PERIOD", "0.05".to_owned()),
            ("LC_SERVER", lc.url.clone()),
            ("MODEL_URL", small.to_str().unwrap().to_owned()),
            ("NAMESPACE", "default".to_owned()),
            ("SAMPLES_PER_SECOND", "1000".to_owned()),
            ("SERVICE_NAME", "digits".to_owned()),
            ("WORKER_NAME", "edge".to_owned()),
        ];
        let settings = edge::Settings::from_env(&env.into_iter().collect::<Env>()).unwrap();
        let stop = CancellationToken::new();
        let work = tokio::spawn(edge::run(settings, stop.clone()));
        Self {
            lc,
            stop,
            work,
            _models: models,
        }
    }

    /// What is reported once every sample of the stream was met.
    async fn report_of_a_whole_pass(&mut self) -> Value {
        loop {
            let report = self.lc.next().await;
            if report["ownerInfo"]["inferenceNumber"].as_u64().unwrap() >= 400 {
                return report;
            }
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.work.await.unwrap().unwrap();
    }
}

async fn cloud() -> u16 {
    serve(cloud::router("digits", MODELS.1.clone())).await.port()
}

fn cross_entropy(threshold: &str) -> Value {
    json!([{"key": "threshold_cross_entropy", "value": threshold}])
}

fn number(report: &Value, key: &str) -> f64 {
    report["ownerInfo"][key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key} in {report}"))
}

#[test]
fn the_page_tells_what_the_cloud_gains() {
    let env = [
        ("HEM_NAME", "CrossEntropy".to_owned()),
        ("HEM_PARAMETERS", cross_entropy("0.8").to_string()),
    ];
    let mut filter = Filter::from_env(&env.into_iter().collect()).unwrap();
    let stream = Parts::built_in().unwrap().stream;
    let (small, large) = &*MODELS;
    let of_all = |some: &[Sample]| f64::from(u32::try_from(some.len()).unwrap()) / 400.0;
    assert_eq!(stream.len(), 400);

    let (hard, easy): (Vec<Sample>, Vec<Sample>) = stream.iter().cloned().partition(|sample| {
        let probabilities = small.probabilities(&sample.pixels);
        filter.is_hard(&Answer {
            probabilities,
            boxes: vec![],
        })
    });
    let joint = small.accuracy(&easy) * of_all(&easy) + large.accuracy(&hard) * of_all(&hard);
    page_tells(&format!("goes to the cloud: {}.", percent(of_all(&hard))));
    page_tells(&format!("right: {};", percent(small.accuracy(&stream))));
    page_tells(&format!("how often both together are: {}.", percent(joint)));
}

#[tokio::test(flavor = "multi_thread")]
async fn together_they_are_right_more_often_than_the_small_model_alone() {
    let mut edge = Edge::start("CrossEntropy", &cross_entropy("0.8"), cloud().await).await;
    let report = edge.report_of_a_whole_pass().await;
    let (joint, alone) = (number(&report, "jointAccuracy"), number(&report, "edgeAccuracy"));
    assert!(joint > alone + 0.01, "{report}");
    let ratio = number(&report, "uploadCloudRatio");
    assert!(ratio > 0.05 && ratio < 0.6, "{report}");
    let share = number(&report, "hardExampleNumber") / number(&report, "inferenceNumber");
    assert!((ratio - share).abs() < 1e-4);
    assert_eq!(number(&report, "cloudFailures").to_string(), "0");
    let expected = [
        ("name", "edge"),
        ("namespace", "default"),
        ("ownerName", "digits"),
        ("kind", "inference"),
    ];
    assert!(expected.iter().all(|(key, value)| report[key] == *value), "{report}");
    assert_eq!(
        (&report["ownerKind"], &report["results"]),
        (&json!("jointinferenceservice"), &json!([]))
    );
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_ends_of_the_scale_nothing_or_everything_goes_to_the_cloud() {
    let port = cloud().await;
    for (filter, parameters) in [("CrossEntropy", "threshold_cross_entropy"), ("Threshold", "threshold")] {
        for (threshold, ratio) in [("0", 0.0), ("1", 1.0)] {
            let parameters = json!([{"key": parameters, "value": threshold}]);
            let mut edge = Edge::start(filter, &parameters, port).await;
            let report = edge.report_of_a_whole_pass().await;
            assert!(
                (number(&report, "uploadCloudRatio") - ratio).abs() < f64::EPSILON,
                "{filter}: {report}"
            );
            edge.stop().await;
        }
    }
}

#[tokio::test]
async fn without_a_cloud_the_small_models_answers_stand() {
    let unused = tokio::net::TcpSocket::new_v4().unwrap();
    unused.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = unused.local_addr().unwrap().port();
    let mut edge = Edge::start("CloudOnly", &Value::Null, port).await;
    let report = edge.report_of_a_whole_pass().await;
    assert_eq!(number(&report, "uploadCloudRatio").to_string(), "1");
    assert_eq!(
        report["ownerInfo"]["cloudFailures"],
        report["ownerInfo"]["hardExampleNumber"]
    );
    assert_eq!(
        report["ownerInfo"]["jointAccuracy"],
        report["ownerInfo"]["edgeAccuracy"]
    );
    edge.stop().await;
}

#[tokio::test]
async fn an_absent_local_controller_costs_neither_the_worker_nor_a_count() {
    let mut edge = Edge::start("EdgeOnly", &Value::Null, 1).await;
    let before = number(&edge.lc.next().await, "inferenceNumber");
    edge.lc.refuse(5);
    edge.lc.rest();
    let after = number(&edge.lc.next().await, "inferenceNumber");
    assert!(after > before, "{before}, then {after}");
    edge.stop().await;
}

#[tokio::test]
async fn a_model_that_is_not_there_is_named() {
    let lc = LocalController::start().await;
    let env = [
        ("BIG_MODEL_IP", "c"),
        ("MODEL_URL", "/none/m.json"),
        ("JOB_NAME", "j"),
        ("WORKER_NAME", "w"),
    ];
    let settings = edge::Settings::from_env(&env.into_iter().collect()).unwrap();
    let error = edge::run(settings, CancellationToken::new())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("MODEL_URL: cannot read the model /none/m.json"),
        "{error}"
    );
    drop(lc);
}
