//! What trainers report.

use jiff::Timestamp;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, Round, RoundWorker};

use super::{super::rounds, world::World};
use crate::{Kind, ObjectKind, Payload, Refusal, Report, StatusChange, WorkerMessage};

fn message(worker: &str, owner_info: &Value, results: &Value) -> Report {
    let message: WorkerMessage =
        serde_json::from_value(json!({"name": worker, "ownerInfo": owner_info, "results": results})).unwrap();
    Report {
        node: "edge-1".to_owned(),
        payload: Payload::Worker(Box::new(message)),
    }
}

fn round(worker: &str, round: i64, samples: i64, accuracy: f64) -> Report {
    let began = format!("2024-05-01 10:{:02}:{:02}", round / 60, round % 60);
    message(
        worker,
        &json!({"currentRound": round, "sampleCount": samples, "startTime": began, "updateTime": "x"}),
        &json!([{"format": "pb", "url": "/m", "metrics": {"accuracy": accuracy}}]),
    )
}

fn now() -> Timestamp {
    "2024-05-01T10:00:00Z".parse().unwrap()
}

/// Takes in a report as the engine does.
fn take(job: &mut FederatedLearningJob, report: &Report) -> Vec<StatusChange> {
    let changes = job.report(report, now()).unwrap();
    for change in changes
        .iter()
        .filter(|change| change.kind == ObjectKind::FEDERATED_LEARNING_JOB)
    {
        let mut status = job.status.clone().unwrap_or_default();
        status.rounds = serde_json::from_value(change.status["rounds"].clone()).unwrap();
        job.status = Some(status);
    }
    changes
}

#[test]
fn a_round_is_one_entry_with_what_each_trainer_said() {
    let mut job = World::new().job;
    take(&mut job, &round("trainworker-b", 1, 400, 0.5));
    let changes = take(&mut job, &round("trainworker-a", 1, 400, 0.9));
    insta::assert_yaml_snapshot!(
        changes
            .iter()
            .map(|change| json!({
                "kind": change.kind.kind, "name": change.name, "status": change.status,
            }))
            .collect::<Vec<_>>()
    );
}

#[test]
fn the_same_report_twice_changes_nothing() {
    let mut job = World::new().job;
    take(&mut job, &round("a", 1, 100, 0.5));
    assert_eq!(job.report(&round("a", 1, 100, 0.5), now()), Ok(vec![]));
}

#[test]
fn a_late_report_of_an_early_round_leaves_the_model_alone() {
    let mut job = World::new().job;
    take(&mut job, &round("a", 2, 100, 0.7));
    let changes = take(&mut job, &round("b", 1, 100, 0.1));
    assert_eq!(
        changes.iter().map(|change| change.kind).collect::<Vec<_>>(),
        [ObjectKind::FEDERATED_LEARNING_JOB]
    );
}

#[test]
fn a_trainer_that_began_anew_takes_back_what_it_reported() {
    let mut job = World::new().job;
    for number in 1..=5 {
        take(&mut job, &round("a", number, 100, 0.5));
    }
    let again = message(
        "a",
        &json!({"currentRound": 1, "startTime": "2024-05-01 11:00:00"}),
        &json!([]),
    );
    take(&mut job, &again);
    let rounds = job.status.unwrap().rounds;
    assert_eq!(rounds.iter().map(|round| round.round).collect::<Vec<_>>(), [1]);
}

/// An answer that was lost lets a node send again what is there already, while newer reports are too.
#[test]
fn reports_that_come_again_in_order_change_nothing_for_good() {
    let mut job = World::new().job;
    for number in 1..=3 {
        take(&mut job, &round("a", number, 100, 0.5));
    }
    let before = job.status.clone();
    for number in 2..=3 {
        assert_eq!(take(&mut job, &round("a", number, 100, 0.5)), []);
    }
    assert_eq!(job.status, before);
}

#[test]
fn only_the_newest_hundred_rounds_are_kept_and_the_newest_twenty_told() {
    let mut world = World::running();
    for number in 1..=150 {
        take(&mut world.job, &round("a", number, 1, 0.5));
    }
    let rounds = world.status().rounds;
    assert_eq!((rounds.len(), rounds[0].round, rounds[99].round), (100, 51, 150));
    assert_eq!(
        world.job.report(&round("b", 7, 1, 0.5), now()),
        Ok(vec![]),
        "too old to be kept"
    );
    world.pass(None);
    let told: Vec<_> = world
        .status()
        .conditions
        .into_iter()
        .filter(|told| told.type_ == "Training")
        .collect();
    assert_eq!(told.len(), 20);
    assert_eq!(
        told[19].message.as_deref(),
        Some("Round 150 reaches at 2024-05-01T10:00:00Z")
    );
    assert_eq!(told[19].reason.as_deref(), Some("DoTraining"));
    assert!(
        world.status().rounds.is_empty(),
        "the manager leaves to the nodes what nodes report"
    );
}

#[test]
fn a_report_without_a_round_tells_of_the_model_alone() {
    let mut job = World::new().job;
    let completed = message(
        "a",
        &json!({"currentRound": 0}),
        &json!([{"metrics": {"accuracy": 0.9}}]),
    );
    let changes = take(&mut job, &completed);
    assert_eq!(changes.len(), 1);
    assert_eq!(
        (changes[0].kind, changes[0].name.as_str()),
        (ObjectKind::MODEL, "defects")
    );
    assert_eq!(
        changes[0].status["metrics"],
        json!([{"key": "accuracy", "value": "0.9"}])
    );
    assert_eq!(job.report(&message("a", &json!({}), &json!([])), now()), Ok(vec![]));
}

#[rstest]
#[case(
    Payload::Samples(1),
    "a FederatedLearningJob takes no report of this form: a count of samples"
)]
#[case(
    message("a", &json!({"currentRound": "three"}), &json!([])).payload,
    "ownerInfo.currentRound makes no sense: \"three\"; a whole number is right"
)]
#[case(
    message("a", &json!({"currentRound": 1.5}), &json!([])).payload,
    "ownerInfo.currentRound makes no sense: 1.5; a whole number is right"
)]
#[case(
    message("a", &json!({"currentRound": 1}), &json!([{"metrics": [1]}])).payload,
    "results[0].metrics makes no sense: [1]; an object of figures by name is right"
)]
fn what_makes_no_sense_is_refused(#[case] payload: Payload, #[case] why: &str) {
    let report = Report {
        node: "edge-1".to_owned(),
        payload,
    };
    let refused: Refusal = World::new().job.report(&report, now()).unwrap_err();
    assert_eq!(refused.to_string(), why);
}

fn figures(values: &[&str]) -> Vec<(String, String)> {
    let mut merged: Vec<Round> = vec![];
    for (number, value) in values.iter().enumerate() {
        let metrics = serde_json::from_value(json!([{"key": "k", "value": value}])).unwrap();
        let worker = RoundWorker {
            name: format!("w{number}"),
            metrics,
            ..RoundWorker::default()
        };
        merged = rounds::merge(&merged, 1, &worker, now());
    }
    merged
        .remove(0)
        .metrics
        .into_iter()
        .map(|metric| (metric.key, metric.value))
        .collect()
}

#[rstest]
#[case(&["0.9", "0.9"], "0.9")]
#[case(&["0.5", "0.9"], "0.7")]
#[case(&["[1]", "[2]"], "[1]")]
#[case(&["0.1", "0.2", "0.2"], "0.166667")]
#[case(&["inf", "1"], "inf")]
fn the_joint_figure_is_what_all_say_or_their_mean(#[case] values: &[&str], #[case] joint: &str) {
    assert_eq!(figures(values), [("k".to_owned(), joint.to_owned())]);
}

proptest! {
    /// Each trainer's reports come in order; how those of several interleave does not count.
    #[test]
    fn rounds_are_ordered_and_the_same_however_reports_interleave(
        order in Just((0..3_usize).flat_map(|worker| [worker; 8]).collect::<Vec<_>>()).prop_shuffle(),
        repeats in prop::collection::vec(any::<bool>(), 24),
    ) {
        let run = |order: &[usize], repeats: &[bool]| {
            let mut job = World::new().job;
            let mut next = [0; 3];
            for (worker, repeat) in order.iter().zip(repeats) {
                next[*worker] += 1;
                let report = round(&format!("w{worker}"), next[*worker], 10, 0.5);
                for _ in 0..=usize::from(*repeat) {
                    let before = job.status.clone().unwrap_or_default().rounds;
                    take(&mut job, &report);
                    let after = &job.status.as_ref().unwrap().rounds;
                    assert!(after.windows(2).all(|pair| pair[0].round < pair[1].round));
                    assert!(after.last().map(|round| round.round) >= before.last().map(|round| round.round));
                }
            }
            job.status.unwrap().rounds
        };
        let mut sorted = order.clone();
        sorted.sort_unstable();
        prop_assert_eq!(run(&order, &repeats), run(&sorted, &[false; 24]));
    }
}
