//! What distance costs: one node that is far away is filled, and then told of edits, all through a proxy that delays.
//!
//! One node, since what could suffer is the window of a session: with many nodes there would be many windows.

use std::time::Duration;

use serde_json::json;

use super::{
    super::figures::{Round, percentile},
    Sizes, clock,
    declared::Kind,
    delay::Delay,
    edits::{count, newest},
    fleet::Target,
    matched,
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
    let stored = fleet.stored().await?;
    let filled = stored.values().flatten().map(|stored| stored.at).max();
    let filled = filled.unwrap_or(begun).saturating_sub(begun);
    manager.quiet().await;

    let edits = load.edit_in_rounds(sizes.rounds).await?;
    fleet.have(newest(&edits)).await?;
    let reached = matched::reached(&edits, &fleet.stored().await?);
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
    round.took(
        "far_filled_objects_per_second",
        f64::from(sizes.far) / filled.as_secs_f64(),
        "objects/s",
    );
    Ok(round)
}
