//! What it takes to bring a node up to date that was away while some of its many objects changed: with the manager that it
//! knows, and with one that was started anew and therefore begins with a digest.

use serde_json::json;

use super::{
    super::{
        figures::Round,
        manager::{Manager, Setup},
    },
    Sizes,
    declared::{Declared, Kind},
    edits::newest,
    fleet::{Fleet, Target},
    world::{Link, World},
};
use crate::failure::Failure;

/// Measures with so many changed objects, of [`Sizes::resumed`].
pub(super) async fn take(world: &World, changed: u32, sizes: &Sizes) -> Result<Round, Failure> {
    let load = world.load(Kind::Dataset, sizes.resumed, 1);
    load.declare().await?;
    let setup = world.setup(Link::Plain)?;
    let manager = Manager::start(&setup).await?;
    let mut away = Away {
        load: &load,
        fleet: world.fleet()?,
        target: world.target(&setup),
        changed,
        round: Round::new(world.conditions([("objects", json!(sizes.resumed)), ("changed", json!(changed))])),
    };
    away.fleet.connect(&away.target, 0..1, 1).await?;
    away.fleet.have(load.generations().await?).await?;
    away.come_back("same_epoch", manager, None).await?.end().await;
    let manager = Manager::start(&setup).await?;
    // The node meets this run for the first time here, and again below after another one.
    manager.quiet().await;
    away.come_back("new_epoch", manager, Some(&setup)).await?.end().await;
    Ok(away.round)
}

/// A node that goes away and comes back.
struct Away<'a> {
    load: &'a Declared<'a>,
    fleet: Fleet,
    target: Target,
    changed: u32,
    round: Round,
}

impl Away<'_> {
    /// Has the node away while objects change, and the manager started anew where there is a setup for that.
    async fn come_back(&mut self, suffix: &str, manager: Manager, anew: Option<&Setup>) -> Result<Manager, Failure> {
        self.fleet
            .until("the node's session", |looked| looked.live == 1)
            .await?;
        manager.quiet().await;
        self.fleet.disconnect().await?;
        let edits = self.load.edit(0..self.changed, 1).await?;
        manager.quiet().await;
        let manager = match anew {
            Some(setup) => {
                manager.end().await;
                Manager::start(setup).await?
            }
            None => manager,
        };
        manager.quiet().await;
        let before = self.fleet.look().await?;
        self.fleet.connect(&self.target, 0..1, 1).await?;
        self.fleet.have(newest(&edits)).await?;
        // The last acknowledgement is on its way by then.
        manager.quiet().await;
        let after = self.fleet.look().await?;
        #[expect(clippy::cast_precision_loss, reason = "what a bench counts fits")]
        let grown = |before: u64, after: u64| (after - before) as f64;
        let (received, sent) = (grown(before.received, after.received), grown(before.sent, after.sent));
        let bodies = grown(before.bodies, after.bodies);
        self.round
            .took(format!("resume_bytes.{suffix}"), received + sent, "bytes");
        self.round
            .took(format!("resume_received_bytes.{suffix}"), received, "bytes");
        self.round.took(format!("resume_sent_bytes.{suffix}"), sent, "bytes");
        self.round.took(format!("resume_bodies.{suffix}"), bodies, "bodies");
        Ok(manager)
    }
}
