//! How soon all nodes are back after the manager was: one that said goodbye, and one that was killed.

use serde_json::json;
use tokio::time::Instant;

use super::{
    super::{
        figures::Round,
        manager::{Manager, Setup},
    },
    Sizes,
    fleet::Fleet,
    world::{Link, World},
};
use crate::failure::Failure;

/// Measures with so many nodes.
pub(super) async fn take(world: &World, nodes: u32, sizes: &Sizes) -> Result<Round, Failure> {
    let mut round = Round::new(world.conditions([("nodes", json!(nodes))]));
    for link in Link::ALL {
        let setup = world.setup(link)?;
        let target = world.target(&setup);
        let mut manager = Manager::start(&setup).await?;
        let mut fleet = world.fleet()?;
        fleet.connect(&target, 0..nodes, sizes.connects_per_second).await?;
        for end in [End::Restarted, End::Killed] {
            manager.quiet().await;
            manager = come_back(manager, end, &setup, &mut fleet, nodes, &mut round).await?;
        }
        drop(fleet);
        manager.end().await;
    }
    Ok(round)
}

/// How the manager ends.
#[derive(Clone, Copy)]
enum End {
    /// It drains: it tells nodes when to come back, and gives up its Lease.
    Restarted,
    /// By SIGKILL: the next one waits until the Lease has run out.
    Killed,
}

async fn come_back(
    manager: Manager,
    end: End,
    setup: &Setup,
    fleet: &mut Fleet,
    nodes: u32,
    round: &mut Round,
) -> Result<Manager, Failure> {
    let dials = fleet.look().await?.dials;
    let word = match end {
        End::Restarted => {
            manager.end().await;
            "restarted"
        }
        End::Killed => {
            manager.kill().await;
            "killed"
        }
    };
    let begun = Instant::now();
    let manager = Manager::start(setup).await?;
    let leads = begun.elapsed();
    let looked = fleet.until("all nodes back", |looked| looked.live >= nodes).await?;
    let all = begun.elapsed();
    let suffix = format!("{word}.{}", if setup.tls.is_some() { "tls" } else { "plain" });
    round.took(format!("storm_leads_seconds.{suffix}"), leads.as_secs_f64(), "s");
    round.took(format!("storm_all_back_seconds.{suffix}"), all.as_secs_f64(), "s");
    #[expect(clippy::cast_precision_loss, reason = "dials of a bench fit")]
    let dials = (looked.dials - dials) as f64 / f64::from(nodes);
    round.took(format!("storm_dials_per_node.{suffix}"), dials, "dials");
    let processor = manager.costs.processor_seconds()?;
    round.took(format!("storm_cpu_seconds.{suffix}"), processor, "s");
    let peak = manager.costs.memory()?.peak;
    round.took(format!("storm_rss_peak_bytes.{suffix}"), peak, "bytes");
    Ok(manager)
}
