//! The federated example over real sockets: an aggregator, two trainers, a local controller.

use std::path::Path;

use crate::support::{LocalController, federated, page_tells, percent};
use serde_json::{Value, json};
use skerry_workers::data::{self, Parts, Sample};
use skerry_workers::env::Env;
use skerry_workers::network::Network;
use skerry_workers::recipe::{ROUND, Recipe};
use skerry_workers::{aggregator, model, trainer};
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;

const ROUNDS: u32 = 10;

fn aggregator_settings(model: &Path) -> aggregator::Settings {
    let env: Env = [("PARTICIPANTS_COUNT", "2"), ("MODEL_URL", model.to_str().unwrap())]
        .into_iter()
        .collect();
    aggregator::Settings::from_env(&env).unwrap()
}

/// The environment that the manager gives a trainer, on a node whose files lie below `node`.
fn trainer_settings(lc: &LocalController, port: u16, worker: &str, node: &Path) -> trainer::Settings {
    let (port, node) = (port.to_string(), node.to_str().unwrap());
    let (model, train) = (format!("{node}/models/m.json"), format!("{node}/digits/train.csv"));
    let env = [
        ("AGG_IP", "localhost"),
        ("AGG_PORT", &port),
        ("DATA_PATH_PREFIX", node),
        ("JOB_NAME", "digits"),
        ("LC_SERVER", &lc.url),
        ("MODEL_URL", &model),
        ("NAMESPACE", "default"),
        ("TRAIN_DATASET_URL", &train),
        ("WORKER_NAME", worker),
    ];
    trainer::Settings::from_env(&env.into_iter().collect()).unwrap()
}

/// A folder as a node has it.
fn node(share: &[Sample]) -> tempfile::TempDir {
    let node = tempfile::tempdir().unwrap();
    std::fs::create_dir(node.path().join("models")).unwrap();
    std::fs::create_dir(node.path().join("digits")).unwrap();
    std::fs::write(node.path().join("digits/train.csv"), data::to_csv(share)).unwrap();
    node
}

/// The accuracy that each report of one trainer tells, in order.
fn accuracies(reports: &[Value], worker: &str) -> Vec<f64> {
    let own = reports.iter().filter(|report| report["name"] == worker);
    own.map(|report| report["results"][0]["metrics"]["accuracy"].as_f64().unwrap())
        .collect()
}

/// What a trainer learns from its own share, with as much training as all rounds are.
fn alone(share: &[Sample]) -> Network {
    let recipe = Recipe {
        epochs: ROUND.epochs * ROUNDS,
        ..ROUND
    };
    recipe.train(share)
}

#[test]
fn the_page_tells_what_the_federation_gains() {
    let parts = Parts::built_in().unwrap();
    let judged = |network: &Network| percent(network.accuracy(&parts.test));
    let [first, second] = parts.train.each_ref().map(|share| judged(&alone(share)));
    let together = judged(&federated(&parts.train, ROUNDS));
    page_tells(&format!("After ten rounds the model is right on {together} of samples"));
    page_tells(&format!("nodes reach {first} and {second}"));
}

#[tokio::test]
async fn two_trainers_learn_together_what_neither_learns_alone() {
    let parts = Parts::built_in().unwrap();
    let mut lc = LocalController::start().await;
    lc.refuse(3);
    let nodes = parts.train.each_ref().map(|share| node(share));
    let cloud = tempfile::tempdir().unwrap();
    // Nobody listens yet, so the trainers have to wait.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let stop = CancellationToken::new();
    let [first, second] = ["train-0", "train-1"].map(|worker| {
        let node = &nodes[usize::from(worker == "train-1")];
        tokio::spawn(trainer::run(
            trainer_settings(&lc, port, worker, node.path()),
            stop.clone(),
        ))
    });
    let settings = aggregator_settings(&cloud.path().join("m.json"));
    let aggregating = tokio::spawn(aggregator::serve(socket.listen(16).unwrap(), settings, stop.clone()));

    let network = first.await.unwrap().unwrap();
    assert!(second.await.unwrap().unwrap() == network);
    aggregating.await.unwrap().unwrap();

    let judged = |accuracy: f64| (accuracy * 10_000.0).round() / 10_000.0;
    let accuracy = network.accuracy(&parts.test);
    assert!(accuracy >= 0.92, "accuracy {accuracy}");
    for share in &parts.train {
        let alone = alone(share).accuracy(&parts.test);
        assert!(alone < accuracy - 0.1, "alone {alone}, together {accuracy}");
    }

    let reports = lc.rest();
    assert_eq!(
        reports.len(),
        2 * ROUNDS as usize,
        "every round of every trainer, the refused ones too"
    );
    for worker in ["train-0", "train-1"] {
        let own: Vec<_> = reports.iter().filter(|report| report["name"] == worker).collect();
        let rounds: Vec<_> = own
            .iter()
            .map(|report| report["ownerInfo"]["currentRound"].clone())
            .collect();
        assert_eq!(rounds, (1..=ROUNDS).map(Value::from).collect::<Vec<_>>());
        let statuses: Vec<_> = own.iter().map(|report| report["status"].as_str().unwrap()).collect();
        assert!(statuses[..9].iter().all(|status| *status == "running") && statuses[9] == "completed");
        let accuracies = accuracies(&reports, worker);
        assert_eq!(accuracies[9].to_string(), judged(accuracy).to_string());
        let mean = |part: &[f64]| part.iter().sum::<f64>() / 3.0;
        assert!(mean(&accuracies[..3]) < mean(&accuracies[3..6]) && mean(&accuracies[3..6]) < mean(&accuracies[7..]));
    }

    let expected = federated(&parts.train, ROUNDS);
    assert_eq!(
        judged(accuracy).to_string(),
        judged(expected.accuracy(&parts.test)).to_string()
    );
    for folder in [
        &nodes[0].path().join("models"),
        &nodes[1].path().join("models"),
        &cloud.path().to_owned(),
    ] {
        let saved = model::load(&folder.join("m.json")).unwrap();
        assert!((saved.accuracy(&parts.stream) - expected.accuracy(&parts.stream)).abs() < f64::EPSILON);
    }
}

#[tokio::test]
async fn a_report_has_the_form_that_the_local_controller_knows() {
    let parts = Parts::built_in().unwrap();
    let mut lc = LocalController::start().await;
    let node = node(&parts.train[1][..20]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = trainer_settings(&lc, listener.local_addr().unwrap().port(), "train-1", node.path());
    let env: Env = [("EXIT_ROUND", "1")].into_iter().collect();
    let aggregator = aggregator::Settings::from_env(&env).unwrap();
    let stop = CancellationToken::new();
    let (trained, aggregated) = tokio::join!(
        trainer::run(settings, stop.clone()),
        aggregator::serve(listener, aggregator, stop)
    );
    let accuracy = trained.unwrap().accuracy(&parts.test);
    aggregated.unwrap();

    let mut report = lc.next().await;
    for time in ["startTime", "updateTime"] {
        let time = report["ownerInfo"][time].take();
        let form: String = time
            .as_str()
            .unwrap()
            .chars()
            .map(|c| if c.is_ascii_digit() { '0' } else { c })
            .collect();
        assert_eq!(form, "0000-00-00 00:00:00");
    }
    let expected = json!({
        "name": "train-1",
        "namespace": "default",
        "ownerName": "digits",
        "ownerKind": "federatedlearningjob",
        "kind": "train",
        "status": "completed",
        "results": [{"format": "json", "url": "/models/m.json", "metrics": {"accuracy": accuracy}}],
        "ownerInfo": {"currentRound": 1, "sampleCount": 20, "startTime": null, "updateTime": null},
    });
    assert_eq!(report, expected);
}

#[tokio::test]
async fn whoever_is_stopped_early_does_not_succeed() {
    let lc = LocalController::start().await;
    let node = node(&Parts::built_in().unwrap().train[0]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop_aggregator, stop_trainer) = (CancellationToken::new(), CancellationToken::new());
    // The second participant never comes.
    let settings = aggregator_settings(&node.path().join("models/a.json"));
    let aggregating = tokio::spawn(aggregator::serve(listener, settings, stop_aggregator.clone()));
    let start = |worker| {
        let settings = trainer_settings(&lc, address.port(), worker, node.path());
        tokio::spawn(trainer::run(settings, stop_trainer.clone()))
    };
    let stopped = start("train-0");
    let clients = |expected: Value| async move {
        loop {
            let answer = reqwest::get(format!("http://{address}/FedAvg"))
                .await
                .unwrap()
                .bytes()
                .await
                .unwrap();
            if serde_json::from_slice::<Value>(&answer).unwrap() == expected {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    clients(json!({"clients": ["train-0"]})).await;
    stop_trainer.cancel();
    let error = stopped.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "stopped before the last round");
    clients(json!({"clients": []})).await;

    let settings = trainer_settings(&lc, address.port(), "train-0", node.path());
    let left_alone = tokio::spawn(trainer::run(settings, CancellationToken::new()));
    clients(json!({"clients": ["train-0"]})).await;
    stop_aggregator.cancel();
    let error = aggregating.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "stopped after 0 of 10 rounds");
    let error = left_alone.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("cannot resume"), "{error}");
}
