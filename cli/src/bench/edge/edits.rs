//! How many edits a second reach the nodes, and how soon: through the API server, the real engine, the real protocol.
//!
//! The API server is measured alone, with the same edits of the same objects, before and after: nothing can be faster than
//! that. A server that grows slower or faster with what it holds does so on both sides. What a manager says of an object is a
//! part of it, and makes each edit dearer, so it has been said before the first of these. And once with somebody who only
//! listens to what changes: nothing that hears of edits can be faster than that.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    super::{
        figures::{Round, percentile},
        manager::Manager,
    },
    Sizes,
    busy::Busy,
    declared::{Declared, Kind},
    fleet::Fleet,
    matched::{self, Edit},
    world::{Link, World},
};
use crate::{failure::Failure, scrape::Scraped};

/// Measures with one resource on each of so many nodes.
pub(super) async fn take(world: &World, kind: Kind, nodes: u32, sizes: &Sizes) -> Result<Round, Failure> {
    let load = world.load(kind, nodes, nodes);
    load.declare().await?;
    let (manager, fleet) = followed(world, &load, nodes, sizes).await?;
    drop(fleet);
    manager.end().await;
    let before = load.edit_in_rounds(sizes.rounds).await?;
    let listener = load.listener().await?;
    let watched = load.edit_in_rounds(sizes.rounds).await?;
    let heard = matched::reached(&watched, &listener.heard(&watched).await);
    let (manager, mut fleet) = followed(world, &load, nodes, sizes).await?;
    // What was stored before the edits is not theirs.
    fleet.stored().await?;
    let (calls, bodies) = (manager.counted().await?, fleet.look().await?.bodies);
    let processor = manager.costs.processor_seconds()?;
    let begun = Busy::now(&manager, &fleet)?;

    let edits = load.edit_in_rounds(sizes.rounds).await?;
    fleet.have(newest(&edits)).await?;
    let over = Busy::now(&manager, &fleet)?;
    let writes = writes(&difference(&calls, &manager.counted().await?));
    let stored = fleet.stored().await?;
    let reached = matched::reached(&edits, &stored);
    let processor = manager.costs.processor_seconds()? - processor;
    let bodies = fleet.look().await?.bodies - bodies;
    manager.quiet().await;
    let calls = difference(&calls, &manager.counted().await?);
    drop(fleet);
    manager.end().await;
    let after = load.edit_in_rounds(sizes.rounds).await?;
    let alone = count(before.len() + after.len()) / (seconds(&before) + seconds(&after));

    let mut round = Round::new(world.conditions([
        ("kind", json!(kind.object_kind().kind)),
        ("nodes", json!(nodes)),
        ("edits", json!(edits.len())),
    ]));
    let suffix = suffix(kind);
    let mut took = |name: &str, value: f64, unit| round.took(format!("{name}{suffix}"), value, unit);
    let number = count(edits.len());
    took("acked_edits_per_second", number / reached.seconds, "edits/s");
    took("edit_to_ack_p50_seconds", percentile(&reached.from_answer, 50), "s");
    took("edit_to_ack_p99_seconds", percentile(&reached.from_answer, 99), "s");
    took("edit_sent_to_ack_p50_seconds", percentile(&reached.from_sent, 50), "s");
    took("edit_sent_to_ack_p99_seconds", percentile(&reached.from_sent, 99), "s");
    took("edits_unacked", count(reached.never), "edits");
    took("api_server_edits_per_second", number / seconds(&edits), "edits/s");
    took("api_server_alone_edits_per_second", alone, "edits/s");
    took("share_of_api_server_alone", number / reached.seconds / alone, "ratio");
    took("api_server_event_p50_seconds", percentile(&heard.from_answer, 50), "s");
    took("api_server_event_p99_seconds", percentile(&heard.from_answer, 99), "s");
    took("api_server_events_missed", count(heard.never), "edits");
    let watched = count(watched.len()) / seconds(&watched);
    took("api_server_watched_edits_per_second", watched, "edits/s");
    took(
        "share_of_api_server_watched",
        number / reached.seconds / watched,
        "ratio",
    );
    let written = (number + writes) / over.seconds_since(&begun);
    took("writes_per_second", written, "writes/s");
    took("writes_share_of_api_server_alone", written / alone, "ratio");
    for (part, cores) in over.since(&begun) {
        took(&format!("cores_busy.{part}"), cores, "cores");
    }
    #[expect(clippy::cast_precision_loss, reason = "bodies of a bench fit")]
    took("bodies_per_edit", bodies as f64 / number, "bodies");
    took("manager_cpu_seconds_per_edit", processor / number, "s");
    for (verb, calls) in calls {
        took(&format!("api_calls_per_edit.{verb}"), calls / number, "requests");
    }
    Ok(round)
}

/// A manager that has nothing more to do, and nodes that have all that is declared.
async fn followed(world: &World, load: &Declared<'_>, nodes: u32, sizes: &Sizes) -> Result<(Manager, Fleet), Failure> {
    let (manager, target) = world.manager(Link::Plain).await?;
    let mut fleet = world.fleet()?;
    fleet.connect(&target, 0..nodes, sizes.connects_per_second).await?;
    fleet.have(load.generations().await?).await?;
    manager.quiet().await;
    Ok((manager, fleet))
}

/// What tells the figures of services from those of Datasets.
fn suffix(kind: Kind) -> &'static str {
    match kind {
        Kind::Dataset => "",
        Kind::Service => ".services",
    }
}

/// The newest generation of each resource.
pub(super) fn newest(edits: &[Edit]) -> BTreeMap<String, i64> {
    let mut newest = BTreeMap::new();
    for edit in edits {
        let known: &mut i64 = newest.entry(edit.name.clone()).or_default();
        *known = edit.generation.max(*known);
    }
    newest
}

/// How long the API server took for edits.
fn seconds(edits: &[Edit]) -> f64 {
    let first = edits.iter().map(|edit| edit.sent).min().unwrap_or_default();
    let last = edits.iter().map(|edit| edit.answered).max().unwrap_or_default();
    last.saturating_sub(first).as_secs_f64()
}

/// Those requests that are writes.
fn writes(calls: &BTreeMap<String, f64>) -> f64 {
    let writes = ["create", "update", "patch", "delete"];
    writes.iter().filter_map(|verb| calls.get(*verb)).sum()
}

/// Requests by verb, between two moments.
fn difference(before: &Scraped, after: &Scraped) -> BTreeMap<String, f64> {
    let calls = |scraped: &Scraped| scraped.by("skerry_api_requests_total", "verb");
    let before = calls(before);
    let mut calls = calls(after);
    for (verb, calls) in &mut calls {
        *calls -= before.get(verb).copied().unwrap_or_default();
    }
    calls
}

/// A number of things.
#[expect(clippy::cast_precision_loss, reason = "what a bench counts fits")]
pub(super) fn count(things: usize) -> f64 {
    things as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn edit(generation: i64, sent: u64, answered: u64) -> Edit {
        Edit {
            name: "d".to_owned(),
            generation,
            sent: Duration::from_secs(sent),
            answered: Duration::from_secs(answered),
        }
    }

    #[test]
    fn edits_are_timed_from_the_first_sent_to_the_last_answered() {
        let edits = [edit(3, 2, 5), edit(2, 1, 3)];
        assert!((seconds(&edits) - 4.0).abs() < f64::EPSILON);
        assert_eq!(newest(&edits), BTreeMap::from([("d".to_owned(), 3)]));
    }

    #[test]
    fn what_reads_is_no_write() {
        let calls = [("get", 5.0), ("watch", 1.0), ("patch", 3.0), ("update", 0.5)];
        let calls = calls.map(|(verb, calls)| (verb.to_owned(), calls));
        assert!((writes(&calls.into()) - 3.5).abs() < f64::EPSILON);
    }
}
