//! What a trainer's message changes: `status.rounds` of the job, and the metrics of the Model that it trains.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value};
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, Metric, ModelStatus, Round, RoundWorker};

use super::rounds;
use crate::{
    Kind, ObjectKind, Payload, Refusal, Report, StatusChange, WorkerMessage, judge::metrics::metrics,
    render::owner::Owner,
};

/// What a report changes.
pub(crate) fn report(
    job: &FederatedLearningJob,
    report: &Report,
    now: Timestamp,
) -> Result<Vec<StatusChange>, Refusal> {
    let Payload::Worker(message) = &report.payload else {
        return Err(Refusal::form(FederatedLearningJob::KIND, &report.payload));
    };
    let figures = figures(message)?;
    let Some(number) = round(message)? else {
        return Ok(model(job, figures, now).into_iter().collect());
    };
    let name = if message.name.is_empty() {
        &report.node
    } else {
        &message.name
    };
    let worker = RoundWorker {
        name: name.clone(),
        start_time: message
            .owner_info
            .get("startTime")
            .and_then(Value::as_str)
            .map(str::to_owned),
        samples: message.owner_info.get("sampleCount").and_then(Value::as_i64),
        metrics: figures,
    };
    let before: &[Round] = job
        .status
        .as_ref()
        .map(|status| status.rounds.as_slice())
        .unwrap_or_default();
    let merged = rounds::merge(before, number, &worker, now);
    if merged == before {
        return Ok(Vec::new());
    }
    // A late report of an early round says nothing about the model as it is now.
    let newest = merged.last().filter(|newest| newest.round == number);
    let model = newest.and_then(|newest| model(job, newest.metrics.clone(), now));
    let rounds = StatusChange::field(FederatedLearningJob::KIND, Owner::of(job).name, "rounds", merged);
    Ok(std::iter::once(rounds).chain(model).collect())
}

/// The round that the message is about; a worker that has not finished one says none, or 0.
fn round(message: &WorkerMessage) -> Result<Option<i64>, Refusal> {
    let Some(value) = message.owner_info.get("currentRound").filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let number = value.as_i64().ok_or_else(|| Refusal::Value {
        field: "ownerInfo.currentRound",
        found: value.to_string(),
        right: "a whole number is right",
    })?;
    Ok(Some(number).filter(|number| *number > 0))
}

/// The figures of the model that came of it; there is only one.
fn figures(message: &WorkerMessage) -> Result<Vec<Metric>, Refusal> {
    let found = message.results.first().and_then(|model| model.get("metrics"));
    match found {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Object(figures)) => Ok(metrics(figures, &[])),
        Some(other) => Err(Refusal::Value {
            field: "results[0].metrics",
            found: other.to_string(),
            right: "an object of figures by name is right",
        }),
    }
}

/// The Model's change.
fn model(job: &FederatedLearningJob, metrics: Vec<Metric>, now: Timestamp) -> Option<StatusChange> {
    if metrics.is_empty() {
        return None;
    }
    let status = ModelStatus {
        metrics,
        update_time: Some(Time(now)),
        ..ModelStatus::default()
    };
    let status: Map<String, Value> = match serde_json::to_value(&status) {
        Ok(Value::Object(status)) => status,
        _ => return None,
    };
    Some(StatusChange {
        kind: ObjectKind::MODEL,
        name: job.spec.aggregation_worker.model.name.clone(),
        status,
    })
}
