//! What the manager weighs with as many services as nodes, all connected and up to date.

use serde_json::json;

use super::{
    super::figures::Round,
    Sizes,
    declared::Kind,
    world::{Link, World},
};
use crate::failure::Failure;

/// Measures with so many services, each on a node of its own.
pub(super) async fn take(world: &World, services: u32, sizes: &Sizes) -> Result<Round, Failure> {
    let load = world.load(Kind::Service, services, services);
    let mut round = Round::new(world.conditions([("services", json!(services)), ("nodes", json!(services))]));
    for link in Link::ALL {
        // Declared anew: either manager makes the children itself, which is what it weighs most by.
        load.declare().await?;
        let (manager, target) = world.manager(link).await?;
        let mut fleet = world.fleet()?;
        fleet.connect(&target, 0..services, sizes.connects_per_second).await?;
        fleet.have(load.generations().await?).await?;
        manager.quiet().await;
        let memory = manager.costs.memory()?;
        let suffix = link.word();
        round.took(format!("manager_rss_bytes.{suffix}"), memory.resident, "bytes");
        round.took(format!("manager_rss_peak_bytes.{suffix}"), memory.peak, "bytes");
        drop(fleet);
        manager.end().await;
        load.withdraw().await?;
    }
    Ok(round)
}
