//! Figures that workers report, as Sedna's statuses hold them: text by name, in order of name.

use serde_json::{Map, Value};
use skerry_crds::sedna::v1alpha1::Metric;

/// The figures in `reported`, without those named in `but`. What is not text becomes JSON, as in Sedna.
pub(crate) fn metrics(reported: &Map<String, Value>, but: &[&str]) -> Vec<Metric> {
    let mut metrics: Vec<_> = reported
        .iter()
        .filter(|(key, _)| !but.contains(&key.as_str()))
        .map(|(key, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Metric {
                key: key.clone(),
                value,
            }
        })
        .collect();
    metrics.sort();
    metrics
}
