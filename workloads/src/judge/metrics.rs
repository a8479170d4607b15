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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_are_text_in_order_of_name() {
        let reported = json!({"b": 0.5, "a": "text", "list": [1, {"x": null}], "none": null, "dropped": 1});
        let told: Vec<_> = metrics(reported.as_object().unwrap(), &["dropped"])
            .into_iter()
            .map(|metric| format!("{}={}", metric.key, metric.value))
            .collect();
        assert_eq!(told, ["a=text", "b=0.5", r#"list=[1,{"x":null}]"#, "none=null"]);
    }
}
