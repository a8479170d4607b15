//! What a node's count changes: `status.numberOfSamples`, `updateTime` and `countError`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use skerry_crds::sedna::v1alpha1::{Dataset, DatasetStatus};

use crate::{Kind, Payload, Refusal, Report, StatusChange, render::owner::Owner};

/// What a count changes. Only the node that the Dataset names may count.
pub(crate) fn report(dataset: &Dataset, report: &Report, now: Timestamp) -> Result<Vec<StatusChange>, Refusal> {
    if report.node != dataset.spec.node_name {
        return Err(Refusal::Node {
            found: report.node.clone(),
            right: dataset.spec.node_name.clone(),
        });
    }
    let DatasetStatus {
        number_of_samples,
        update_time,
        ..
    } = dataset.status.clone().unwrap_or_default();
    let reported = match &report.payload {
        Payload::Samples(count) => {
            let count = i64::try_from(*count).map_err(|_| Refusal::Value {
                field: "numberOfSamples",
                found: count.to_string(),
                right: "a count below 2^63 is right",
            })?;
            let update_time = update_time
                .filter(|_| number_of_samples == Some(count))
                .unwrap_or(Time(now));
            DatasetStatus {
                number_of_samples: Some(count),
                update_time: Some(update_time),
                ..DatasetStatus::default()
            }
        }
        // The last good count stands beside the error.
        Payload::SamplesFailed(error) => DatasetStatus {
            number_of_samples,
            update_time,
            count_error: Some(error.clone()),
            ..DatasetStatus::default()
        },
        other @ Payload::Worker(_) => return Err(Refusal::form(Dataset::KIND, other)),
    };
    let status = match serde_json::to_value(&reported) {
        Ok(Value::Object(status)) => status,
        _ => serde_json::Map::new(),
    };
    Ok(vec![StatusChange {
        kind: Dataset::KIND,
        name: Owner::of(dataset).name,
        status,
    }])
}
