//! The contract of the sandbox: the same requests to it and to a real API server, their answers compared field by field.
//!
//! Requests are written by hand (`cases/`, one file per feature) or generated ([`generated`]). What differs and is not in
//! the table of [`allowed`] differences is a defect of the sandbox. It runs where `SKERRY_CONTROL_PLANES` names an API
//! server without controllers beside it, as `tests/cluster/run --only contract` does; an argument filters cases by name. It
//! lists its cases and tells what came of them as other test programs do.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests may fail as tests do"
)]

mod allowed;
mod answer;
mod case;
mod compare;
mod generated;
mod kinds;
mod normal;
mod run;
mod server;

use std::{env, process::ExitCode, time::Instant};

use allowed::Allowances;
use futures::StreamExt;
use server::Pair;
use skerry_cluster::table;

/// How many cases are under way at once.
const AT_ONCE: usize = 8;

fn main() -> ExitCode {
    if env::args().any(|argument| argument == "--list") {
        for name in names() {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    // Arguments of the test harness are not for us.
    let filter = env::args().skip(1).find(|argument| !argument.starts_with('-'));
    if runtime.block_on(run(filter.as_deref())) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The names of all cases, and of the kinds for which some are generated.
fn names() -> Vec<String> {
    let written = case::read_all().into_iter().map(|case| case.name);
    written.chain(kinds::KINDS.iter().map(generated::name)).collect()
}

/// Says what came of a case.
fn tell(name: &str, holds: bool) {
    println!("test {name} ... {}", if holds { "ok" } else { "FAILED" });
}

async fn run(filter: Option<&str>) -> bool {
    let Some(pair) = Box::pin(Pair::start()).await else {
        table::names_all("contract", &names()).expect("the page of scenarios names each case");
        println!("skipped: {}", skerry_tests::tools::NO_CONTROL_PLANE);
        return true;
    };
    let begun = Instant::now();
    let allowances = Allowances::new();
    let mut good = written(&pair, &allowances, filter).await;
    good &= tokio::task::block_in_place(|| generated::run_all(&pair, &allowances, filter));
    if filter.is_none() {
        good &= allowances.all_are_needed();
    }
    println!("contract: {} s", begun.elapsed().as_secs());
    good
}

/// The cases that are written by hand.
async fn written(pair: &Pair, allowances: &Allowances, filter: Option<&str>) -> bool {
    let cases = case::read_all();
    let cases = cases
        .into_iter()
        .filter(|case| filter.is_none_or(|filter| case.name.contains(filter)));
    let outcomes: Vec<_> = futures::stream::iter(cases)
        .map(|case| async move {
            let outcome = run::run(pair, &case).await;
            (case.name, outcome)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let requests: usize = outcomes.iter().map(|(_, outcome)| outcome.requests).sum();
    let mut failed = 0;
    for (name, outcome) in &outcomes {
        let differences: Vec<_> = outcome
            .differences
            .iter()
            .filter(|difference| !allowances.allow(difference))
            .collect();
        tell(name, differences.is_empty());
        failed += usize::from(!differences.is_empty());
        for difference in differences {
            println!("  {difference}");
        }
    }
    println!(
        "written by hand: {} cases, {requests} requests, {failed} cases differ",
        outcomes.len()
    );
    failed == 0 && (filter.is_some() || !outcomes.is_empty())
}
