//! Whether anything is lost: many objects, each edited several times in quick succession, undisturbed and disturbed.
//!
//! Whatever disturbs, nodes have to end with the final version of every object, and never see an older one after a newer one.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    super::{
        figures::Round,
        manager::{Manager, Setup},
        say,
    },
    Sizes,
    declared::{Declared, Kind},
    delay::Delay,
    edits::{count, newest},
    fleet::{Fleet, Target},
    matched,
    world::{Link, World},
};
use crate::failure::Failure;

/// How far away nodes are where they are disturbed, in each direction.
const DISTANCE: Duration = Duration::from_millis(20);
/// How long nodes are given to meet a manager of another cluster: as long as the longest wait before they dial again.
const MEETING: Duration = Duration::from_secs(60);
/// How often it is asked whether they have.
const LOOK: Duration = Duration::from_millis(200);

/// Measures with so many disturbances.
pub(super) async fn take(world: &World, disturbances: u32, sizes: &Sizes) -> Result<Round, Failure> {
    let load = world.load(Kind::Dataset, sizes.objects, sizes.nodes);
    load.declare().await?;
    let setup = world.setup(Link::Plain)?;
    let manager = Manager::start(&setup).await?;
    let mut fleet = world.fleet()?;
    let direct = world.target(&setup);
    // Undisturbed means that nothing is in between, either.
    let between = Delay::before(direct.manager, DISTANCE).await?;
    let target = match disturbances {
        0 => direct,
        _ => Target {
            manager: between.address,
            ..direct
        },
    };
    fleet
        .connect(&target, 0..sizes.nodes, sizes.connects_per_second)
        .await?;
    fleet.have(load.generations().await?).await?;
    fleet.copy().await?;
    fleet.stored().await?;
    let bodies = fleet.look().await?.bodies;

    let parts = parts(disturbances, sizes.objects * sizes.quick_edits);
    if let Some(first) = parts.first() {
        load.allow(first.meanwhile);
    }
    let disturbed = Disturbed {
        world,
        manager,
        setup: &setup,
        target: &target,
        between: &between,
        fleet: &mut fleet,
        sizes,
        seen: Seen::default(),
    };
    let (edits, (manager, seen)) = tokio::try_join!(
        load.edit(0..sizes.objects, sizes.quick_edits),
        disturbed.run(&load, &parts),
    )?;
    fleet.settle(newest(&edits)).await?;
    let reached = matched::reached(&edits, &fleet.stored().await?);
    let (looked, held) = (fleet.look().await?, fleet.held().await?);
    let difference = matched::difference(&load.wanted().await?, &held);
    manager.end().await;

    let mut round = Round::new(world.conditions([
        ("objects", json!(sizes.objects)),
        ("quick_edits", json!(sizes.quick_edits)),
        ("nodes", json!(sizes.nodes)),
        ("disturbances", json!(disturbances)),
    ]));
    round.took("lost", count(difference.lost), "objects");
    round.took("stale_final_versions", count(difference.stale), "objects");
    round.took("held_in_excess", count(difference.extra), "objects");
    #[expect(clippy::cast_precision_loss, reason = "versions of a bench fit")]
    let (backwards, bodies, deletions) = (
        looked.backwards as f64,
        (looked.bodies - bodies) as f64,
        looked.deletions as f64,
    );
    round.took("out_of_order", backwards, "versions");
    // Nobody deletes a Dataset here, whoever takes the place of the manager.
    round.took("deleted", deletions, "objects");
    let number = count(edits.len());
    round.took("burst_acked_edits_per_second", number / reached.seconds, "edits/s");
    round.took("burst_bodies_per_edit", bodies / number, "bodies");
    if let Some(least) = seen.least {
        round.took("least_edits_while_disturbed", f64::from(least), "edits");
        round.took("missing_after_a_disturbance", count(seen.missing), "objects");
    }
    Ok(round)
}

/// What disturbs.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    /// SIGKILL to the manager, and another start of it.
    ManagerKilled,
    /// All sessions end, and begin again.
    SessionsEnded,
    /// Somebody deletes the Lease: the manager makes another, under which its epoch is another.
    LeaseDeleted,
    /// Every node comes back with its store as it was before the edits.
    StoresPutBack,
    /// All connections go silent: both ends have to find that out by themselves.
    LinksSilent,
    /// A manager of another cluster, which is empty, takes the place of theirs for a while: it may delete nothing.
    AnotherCluster,
}

impl Disturbance {
    const ALL: [Self; 6] = [
        Self::ManagerKilled,
        Self::SessionsEnded,
        Self::LeaseDeleted,
        Self::StoresPutBack,
        Self::LinksSilent,
        Self::AnotherCluster,
    ];
}

/// The edits in whose course there is one disturbance. Numbers of edits are counted from the beginning of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// After so many it begins: edits are under way then.
    begins: u32,
    /// So many are made by the time when whatever disturbs is done.
    meanwhile: u32,
    /// So many before all has to have arrived. They are made while nodes come back.
    ends: u32,
}

/// The parts of these edits, of which as many as belong to one are undisturbed in the end.
fn parts(disturbances: u32, edits: u32) -> Vec<Part> {
    let quarters = 4 * u64::from(disturbances + 1);
    let after = |quarter: u32| u32::try_from(u64::from(edits) * u64::from(quarter) / quarters).unwrap_or(edits);
    let part = |number: u32| Part {
        begins: after(4 * number + 2),
        meanwhile: after(4 * number + 3),
        ends: after(4 * number + 4),
    };
    (0..disturbances).map(part).collect()
}

/// What was seen of disturbances.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The least number of edits that were made from when one began until all had to arrive.
    least: Option<u32>,
    /// Objects that were still missing after one when nothing more came.
    missing: usize,
}

/// What is disturbed while edits are made.
struct Disturbed<'a> {
    world: &'a World,
    manager: Manager,
    setup: &'a Setup,
    target: &'a Target,
    between: &'a Delay,
    fleet: &'a mut Fleet,
    sizes: &'a Sizes,
    seen: Seen,
}

impl Disturbed<'_> {
    /// Disturbs once in the course of each part, and goes on to the next one when all has arrived: so none of them meets
    /// nodes that another has cut off. The manager that runs in the end.
    async fn run(mut self, load: &Declared<'_>, parts: &[Part]) -> Result<(Manager, Seen), Failure> {
        for (part, disturbance) in parts.iter().zip(Disturbance::ALL.into_iter().cycle()) {
            load.allow(part.meanwhile);
            let begun = load.edited(part.begins).await;
            say(&format!("{disturbance:?}"));
            self = self.disturb(disturbance).await?;
            load.allow(part.ends);
            let meanwhile = load.edited(part.ends).await - begun;
            let least = self.seen.least.unwrap_or(meanwhile);
            self.seen.least = Some(least.min(meanwhile));
            self.fleet.settle(load.generations().await?).await?;
            self.seen.missing += self.fleet.look().await?.missing;
        }
        load.allow(u32::MAX);
        Ok((self.manager, self.seen))
    }

    async fn disturb(self, disturbance: Disturbance) -> Result<Self, Failure> {
        match disturbance {
            Disturbance::ManagerKilled => {
                self.manager.kill().await;
                let manager = Manager::start(self.setup).await?;
                Ok(Self { manager, ..self })
            }
            Disturbance::SessionsEnded => {
                self.fleet.disconnect().await?;
                self.connect().await
            }
            Disturbance::LeaseDeleted => {
                self.world.delete_lease().await?;
                Ok(self)
            }
            Disturbance::StoresPutBack => {
                self.fleet.put_back().await?;
                self.connect().await
            }
            Disturbance::LinksSilent => {
                self.between.silence();
                Ok(self)
            }
            Disturbance::AnotherCluster => {
                let another = self.world.another(self.setup).await?;
                self.manager.end().await;
                let stranger = Manager::start(&another).await?;
                let begun = Instant::now();
                // Dials are counted, and whoever is refused dials again: as many as there are nodes come from most of them.
                let met = async || {
                    let refused = stranger.counted().await.ok()?.by("skerry_edge_refused_total", "reason");
                    refused.get("other_cluster").copied()
                };
                while met().await < Some(self.sizes.nodes.into()) && begun.elapsed() < MEETING {
                    sleep(LOOK).await;
                }
                if met().await.is_none_or(|met| met < 1.0) {
                    return Err(Failure::new(
                        format!("no node met the manager of another cluster within {MEETING:?}"),
                        "nothing was shown of it; the log of the manager may say why",
                    ));
                }
                stranger.end().await;
                let manager = Manager::start(self.setup).await?;
                Ok(Self { manager, ..self })
            }
        }
    }

    async fn connect(self) -> Result<Self, Failure> {
        let Sizes {
            nodes,
            connects_per_second,
            ..
        } = self.sizes;
        self.fleet.connect(self.target, 0..*nodes, *connects_per_second).await?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disturbance_has_edits_before_it_meanwhile_and_after_it() {
        let part = |begins, meanwhile, ends| Part {
            begins,
            meanwhile,
            ends,
        };
        assert_eq!(
            parts(3, 80_000),
            [
                part(10_000, 15_000, 20_000),
                part(30_000, 35_000, 40_000),
                part(50_000, 55_000, 60_000)
            ]
        );
        assert_eq!(parts(0, 80_000), []);
    }
}
