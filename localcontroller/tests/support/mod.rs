//! A manager that is nothing but the protocol's own state machine, and the real local controller as a process.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "no test uses all of it")]

pub mod cloud;
pub mod process;

use rand::{SeedableRng as _, rngs::StdRng};

pub use cloud::Cloud;
pub use process::{Process, Root};
use skerry_edge::{ReportPayload, report::Report};

/// The name of the node.
pub const NODE: &str = "edge-1";

/// Random numbers that a failed test can be run with again: `SEED=… cargo test`.
pub fn random() -> StdRng {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(rand::random::<u64>);
    eprintln!("SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// The rounds that these reports tell of, in their order.
pub fn rounds(reports: &[Report]) -> Vec<u64> {
    let round = |report: &Report| match report.payload {
        ReportPayload::Round { round, .. } => round,
        ref other => panic!("{other:?}"),
    };
    reports.iter().map(round).collect()
}
