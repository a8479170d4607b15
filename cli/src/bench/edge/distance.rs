//! What distance costs: one node that is far away is filled, and then told of edits, all through a proxy that delays.
//!
//! One node, since what could suffer is the window of a session: with many nodes there would be many windows. Rates are of
//! what arrives, from the first arrival to the last: how long the first is under way is a figure of its own. A node that
//! cannot keep up is sent fewer versions, each in the place of several edits; so arrivals are counted, too.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;

use super::{
    super::figures::{Round, percentile},
    Sizes, clock,
    declared::Kind,
    delay::Delay,
    edits::{count, newest},
    fleet::Target,
    matched,
    orders::Stored,
    world::{Link, World},
};
use crate::failure::Failure;

/// Measures with the node so many milliseconds away, in each direction.
pub(super) async fn take(world: &World, milliseconds: u32, sizes: &Sizes) -> Result<Round, Failure> {
    let load = world.load(Kind::Dataset, sizes.far, 1);
    load.declare().await?;
    let generations = load.generations().await?;
    let (manager, target) = world.manager(Link::Plain).await?;
    manager.quiet().await;
    let one_way = Duration::from_millis(milliseconds.into());
    let delay = Delay::before(target.manager, one_way).await?;
    let target = Target {
        manager: delay.address,
        ..target
    };
    let mut fleet = world.fleet()?;
    let begun = clock::now();
    fleet.connect(&target, 0..1, 1).await?;
    fleet.have(generations).await?;
    let filled = Arrivals::of(&fleet.stored().await?, begun);
    manager.quiet().await;

    let begun = clock::now();
    let edits = load.edit_in_rounds(sizes.rounds).await?;
    fleet.have(newest(&edits)).await?;
    let stored = fleet.stored().await?;
    let (reached, told) = (matched::reached(&edits, &stored), Arrivals::of(&stored, begun));
    manager.end().await;

    let mut round = Round::new(world.conditions([
        ("one_way_delay_ms", json!(milliseconds)),
        ("nodes", json!(1)),
        ("objects", json!(sizes.far)),
        ("edits", json!(edits.len())),
    ]));
    round.took(
        "far_acked_edits_per_second",
        count(edits.len()) / reached.seconds,
        "edits/s",
    );
    round.took("far_edit_to_ack_p50_seconds", percentile(&reached.from_answer, 50), "s");
    round.took("far_edit_to_ack_p99_seconds", percentile(&reached.from_answer, 99), "s");
    round.took("far_bodies_per_second", told.per_second, "bodies/s");
    round.took("far_bodies_per_edit", told.number / count(edits.len()), "bodies");
    round.took("far_first_object_seconds", filled.first, "s");
    round.took("far_filled_objects_per_second", filled.per_second, "objects/s");
    Ok(round)
}

/// What of the throughput of the first round, the one of the first delay, is left at this distance.
pub(super) fn compare(near: &Round, far: &mut Round) {
    for (share, figure) in [
        ("far_share.acked_edits", "far_acked_edits_per_second"),
        ("far_share.bodies", "far_bodies_per_second"),
        ("far_share.filled_objects", "far_filled_objects_per_second"),
    ] {
        if let (Some(near), Some(there)) = (near.value(figure), far.value(figure)) {
            far.took(share, there / near, "ratio");
        }
    }
}

/// What arrived at the node.
#[derive(Debug, PartialEq)]
struct Arrivals {
    /// Bodies.
    number: f64,
    /// Seconds until the first was there.
    first: f64,
    /// How many a second came after the first; since the beginning, where all came at once.
    per_second: f64,
}

impl Arrivals {
    fn of(stored: &BTreeMap<String, Vec<Stored>>, begun: Duration) -> Self {
        let at = || stored.values().flatten().map(|stored| stored.at);
        let (first, last) = (at().min().unwrap_or(begun), at().max().unwrap_or(begun));
        let number = at().count();
        let (counted, since) = match at().filter(|at| *at > first).count() {
            0 => (number, begun),
            later => (later, first),
        };
        Self {
            number: count(number),
            first: first.saturating_sub(begun).as_secs_f64(),
            per_second: count(counted) / last.saturating_sub(since).as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(at: &[u64]) -> Arrivals {
        let stored = at.iter().map(|seconds| Stored {
            generation: 1,
            at: Duration::from_secs(*seconds),
        });
        Arrivals::of(&[("d".to_owned(), stored.collect())].into(), Duration::from_secs(10))
    }

    #[test]
    fn a_rate_does_not_count_the_way_of_the_first() {
        let wanted = Arrivals {
            number: 4.0,
            first: 90.0,
            per_second: 1.0,
        };
        assert_eq!(arrivals(&[100, 100, 101, 102]), wanted);
        let at_once = Arrivals {
            number: 2.0,
            first: 4.0,
            per_second: 0.5,
        };
        assert_eq!(arrivals(&[14, 14]), at_once);
    }

    #[test]
    fn what_is_left_is_the_share_of_the_nearest() {
        let round = |edits: f64| {
            let mut round = Round::default();
            round.took("far_acked_edits_per_second", edits, "edits/s");
            round
        };
        let mut far = round(30.0);
        compare(&round(40.0), &mut far);
        assert_eq!(far.value("far_share.acked_edits"), Some(0.75));
        assert_eq!(far.value("far_share.bodies"), None);
    }
}
