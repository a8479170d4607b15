//! How much a node keeps of what it has to report, each bound with its reason. The manager may be away for weeks, and the disk of a
//! small node is small.

use std::time::Duration;

/// Reports in the outbox: what ten workers have to say in a week, one each minute. As fast as a manager lets one node
/// send ([`skerry_edge::limits::REPORTS_PER_SECOND`]) all of them are told in 200 s.
pub const REPORTS: u64 = 100_000;

/// Their bytes: as many reports of 670 bytes, which is more than a round with its results has; 512 of the largest.
pub const BYTES: u64 = 64 * 1024 * 1024;

/// Of these, reports on resources that the node has not heard of. A worker is seldom up before its resource is told, and then
/// by seconds; whoever invents names takes no place of what is known.
pub const HOMELESS: u64 = 1_000;

/// For how long figures are worth something that nobody has fetched: a week shows what a node did over a weekend without the
/// cloud, and whoever looks at it later wants figures of now. Events and rounds are kept whatever their age.
pub const METRICS_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::super::OutboxLimits;

    #[test]
    fn every_limit_is_documented_with_the_value_that_an_outbox_has() {
        let documented = include_str!("../../../docs/edge-limits.md");
        let OutboxLimits {
            bytes,
            count,
            homeless,
            metrics_age,
        } = OutboxLimits::default();
        let values = [
            ("REPORTS", count.to_string()),
            ("BYTES", format!("{} MiB", bytes >> 20)),
            ("HOMELESS", homeless.to_string()),
            ("METRICS_AGE", format!("{} days", metrics_age.as_secs() / (24 * 3600))),
        ];
        let (_, ours) = documented.split_once("## Of the outbox").unwrap();
        for (name, value) in &values {
            let row = format!("| `{name}` | {value} |");
            assert!(ours.contains(&row), "docs/edge-limits.md has no row {row}");
        }
        assert_eq!(include_str!("limits.rs").matches("\npub const ").count(), values.len());
    }
}
