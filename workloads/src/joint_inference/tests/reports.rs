//! What the edge worker reports.

use serde_json::{Value, json};

use super::Case;
use crate::{Kind, ObjectKind, Payload, Report, WorkerMessage};

fn reported(owner_info: &Value) -> Report {
    let message = WorkerMessage {
        owner_info: owner_info.as_object().unwrap().clone(),
        ..WorkerMessage::default()
    };
    Report {
        node: "edge-1".to_owned(),
        payload: Payload::Worker(Box::new(message)),
    }
}

#[test]
fn figures_become_metrics_in_order_of_name() {
    let case = Case::new();
    let report = reported(&json!({
        "uploadCloudRatio": 0.25, "inferenceNumber": 8, "startTime": "x", "updateTime": "y", "note": "text",
        "parts": [1, 2],
    }));
    let changes = case.ji.report(&report, jiff::Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(
        (changes.len(), changes[0].kind, changes[0].name.as_str()),
        (1, ObjectKind::JOINT_INFERENCE_SERVICE, "helmet")
    );
    assert_eq!(
        Value::Object(changes[0].status.clone()),
        json!({"metrics": [
            {"key": "inferenceNumber", "value": "8"}, {"key": "note", "value": "text"},
            {"key": "parts", "value": "[1,2]"}, {"key": "uploadCloudRatio", "value": "0.25"},
        ]})
    );
}

#[test]
fn a_report_without_figures_changes_nothing_and_one_of_another_kind_is_refused() {
    let case = Case::new();
    assert_eq!(
        case.ji
            .report(&reported(&json!({"startTime": "x"})), jiff::Timestamp::UNIX_EPOCH),
        Ok(vec![])
    );
    let samples = Report {
        node: "edge-1".to_owned(),
        payload: Payload::Samples(3),
    };
    let refusal = case.ji.report(&samples, jiff::Timestamp::UNIX_EPOCH).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "a JointInferenceService takes no report of this form: a count of samples"
    );
}
