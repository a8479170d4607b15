//! Figures that workers reported, and how they are told.

use skerry_crds::sedna::v1alpha1::Metric;

/// A figure by its name; nothing where it was not reported.
pub(super) fn figure(metrics: &[Metric], key: &str) -> String {
    metrics
        .iter()
        .find(|metric| metric.key == key)
        .map(|metric| metric.value.clone())
        .unwrap_or_default()
}

/// The same as a number.
pub(super) fn number(metrics: &[Metric], key: &str) -> Option<f64> {
    figure(metrics, key).parse().ok()
}

/// `0.935` as people say it.
pub(super) fn percent(share: &str) -> String {
    let tenths = |share: f64| (share * 1000.0).round() / 10.0;
    share
        .parse()
        .map_or_else(|_| share.to_owned(), |share| format!("{} %", tenths(share)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_told_as_people_say_them() {
        let told = ["0.935", "0.8375", "1.0", "0", "unknown"].map(percent);
        assert_eq!(told, ["93.5 %", "83.8 %", "100 %", "0 %", "unknown"]);
    }
}
