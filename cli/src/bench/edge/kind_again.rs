//! Whether nodes end up right when a kind is deleted and made again under a running manager: its resources go with it, and
//! others come under the same names.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    super::figures::Round,
    Sizes,
    declared::{Declared, Kind},
    edits::count,
    fleet::Fleet,
    matched::{self, Difference},
    world::{Link, World},
};
use crate::failure::Failure;

/// How often what nodes hold is compared.
const LOOK: Duration = Duration::from_millis(500);
/// What is not there by then does not come: longer than the longest wait of a watch before it is tried again.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures with one Dataset on each of so many nodes.
pub(super) async fn take(world: &World, nodes: u32, sizes: &Sizes) -> Result<Round, Failure> {
    let load = world.load(Kind::Dataset, nodes, nodes);
    load.declare().await?;
    let (manager, target) = world.manager(Link::Plain).await?;
    let mut fleet = world.fleet()?;
    fleet.connect(&target, 0..nodes, sizes.connects_per_second).await?;
    fleet.have(load.generations().await?).await?;
    manager.quiet().await;

    world.make_kind_again(Kind::Dataset).await?;
    load.declare().await?;
    load.edit_in_rounds(1).await?;
    let begun = Instant::now();
    let difference = settled(&load, &mut fleet).await?;
    let took = begun.elapsed();
    let backwards = fleet.look().await?.backwards;
    manager.end().await;

    let mut round = Round::new(world.conditions([("nodes", json!(nodes))]));
    round.took("kind_again_lost", count(difference.lost), "objects");
    round.took("kind_again_stale_final_versions", count(difference.stale), "objects");
    round.took("kind_again_held_in_excess", count(difference.extra), "objects");
    #[expect(clippy::cast_precision_loss, reason = "versions of a bench fit")]
    round.took("kind_again_out_of_order", backwards as f64, "versions");
    round.took("kind_again_settled_seconds", took.as_secs_f64(), "s");
    Ok(round)
}

/// Waits until nodes hold what they should, or for long enough; what differs then.
async fn settled(load: &Declared<'_>, fleet: &mut Fleet) -> Result<Difference, Failure> {
    let wanted = load.wanted().await?;
    let begun = Instant::now();
    loop {
        let difference = matched::difference(&wanted, &fleet.held().await?);
        if difference == Difference::default() || begun.elapsed() > PATIENCE {
            return Ok(difference);
        }
        sleep(LOOK).await;
    }
}
