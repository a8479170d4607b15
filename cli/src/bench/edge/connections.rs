//! What a connection costs the manager: resident memory, in plain and over TLS, and processor time.

use serde_json::json;
use tokio::time::Instant;

use super::{
    super::figures::Round,
    Sizes,
    world::{Link, World},
};
use crate::failure::Failure;

/// Measures with so many nodes that hold nothing.
pub(super) async fn take(world: &World, nodes: u32, sizes: &Sizes) -> Result<Round, Failure> {
    let mut round = Round::new(world.conditions([("nodes", json!(nodes))]));
    for link in Link::ALL {
        let (manager, target) = world.manager(link).await?;
        let mut fleet = world.fleet()?;
        fleet.certify(&target, 0..nodes).await?;
        manager.quiet().await;
        let (memory, processor) = (manager.costs.memory()?, manager.costs.processor_seconds()?);
        let begun = Instant::now();
        fleet.connect(&target, 0..nodes, sizes.connects_per_second).await?;
        let took = begun.elapsed();
        // What the handshakes took is given back by then, as far as it ever is.
        manager.quiet().await;
        let after = manager.costs.memory()?;
        let suffix = link.word();
        let each = f64::from(nodes);
        round.took(
            format!("rss_per_connection_bytes.{suffix}"),
            (after.resident - memory.resident) / each,
            "bytes",
        );
        round.took(format!("unconnected_rss_bytes.{suffix}"), memory.resident, "bytes");
        round.took(format!("connected_rss_bytes.{suffix}"), after.resident, "bytes");
        round.took(format!("connected_rss_peak_bytes.{suffix}"), after.peak, "bytes");
        round.took(format!("connect_seconds.{suffix}"), took.as_secs_f64(), "s");
        let processor = manager.costs.processor_seconds()? - processor;
        round.took(format!("cpu_seconds_per_connection.{suffix}"), processor / each, "s");
        drop(fleet);
        manager.end().await;
    }
    Ok(round)
}
