//! Both ends of the protocol against a world that cuts, crashes, forgets and forges. Whatever happened: once a
//! connection holds, the node's store is the declared set.
//!
//! No I/O and no clock, so a failing case shrinks to a few steps and replays (`proptest-regressions/`).

#[cfg(test)]
mod manager;
#[cfg(test)]
mod world;

use proptest::prelude::*;
use world::World;

/// How many resources there are.
const KEYS: u8 = 6;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A user changes (or makes, or makes anew with another uid) a resource, or deletes it.
    Edit {
        key: u8,
        anew: bool,
    },
    Delete {
        key: u8,
    },
    /// The present manager plans a resource as it is now, or has listed them all.
    Plan {
        key: u8,
    },
    List,
    /// The dial succeeds: the present manager answers, or one of the past, or one of another cluster.
    Connect {
        who: Who,
    },
    /// All goes well for a while.
    Flow {
        rounds: u8,
    },
    /// Frames arrive.
    Down {
        frames: u8,
    },
    Up {
        frames: u8,
    },
    /// The store does, or cannot do, what it was asked for.
    Work {
        orders: u8,
    },
    Fail,
    /// The connection is cut; the manager notices or not. What was under way on one that it does not know to be cut may
    /// arrive late, after what a newer one brings.
    Cut {
        noticed: bool,
    },
    Late {
        which: u8,
        frames: u8,
    },
    /// Somebody repeats the last frame to the node.
    Replay,
    /// The local controller dies, before or after what it was storing became durable.
    NodeCrash {
        stored: bool,
    },
    /// The manager dies; the next one takes over its Lease, or a Lease that was deleted and made anew.
    ManagerCrash {
        new_lease: bool,
    },
    /// A copy of the node's database is made; the node dies and comes back with that copy.
    Backup,
    Restore,
    /// The node reports on a resource that it holds; the manager carries reports out, or puts them off.
    Report {
        key: u8,
    },
    Take {
        later: bool,
    },
    /// Time passes.
    Wait {
        seconds: u8,
    },
}

#[derive(Clone, Copy, Debug)]
enum Who {
    Present,
    Deposed(u8),
    OtherCluster,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS;
    prop_oneof![
        6 => (key.clone(), prop::bool::weighted(0.2)).prop_map(|(key, anew)| Step::Edit { key, anew }),
        2 => key.clone().prop_map(|key| Step::Delete { key }),
        8 => key.clone().prop_map(|key| Step::Plan { key }),
        1 => Just(Step::List),
        6 => prop_oneof![
            8 => Just(Who::Present),
            1 => any::<u8>().prop_map(Who::Deposed),
            1 => Just(Who::OtherCluster),
        ].prop_map(|who| Step::Connect { who }),
        6 => (1..5_u8).prop_map(|rounds| Step::Flow { rounds }),
        8 => (1..6_u8).prop_map(|frames| Step::Down { frames }),
        8 => (1..6_u8).prop_map(|frames| Step::Up { frames }),
        8 => (1..6_u8).prop_map(|orders| Step::Work { orders }),
        1 => Just(Step::Fail),
        2 => any::<bool>().prop_map(|noticed| Step::Cut { noticed }),
        3 => (any::<u8>(), 1..4_u8).prop_map(|(which, frames)| Step::Late { which, frames }),
        1 => Just(Step::Replay),
        1 => any::<bool>().prop_map(|stored| Step::NodeCrash { stored }),
        1 => any::<bool>().prop_map(|new_lease| Step::ManagerCrash { new_lease }),
        1 => Just(Step::Backup),
        1 => Just(Step::Restore),
        3 => key.prop_map(|key| Step::Report { key }),
        3 => any::<bool>().prop_map(|later| Step::Take { later }),
        2 => (1..60_u8).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// A node that has much to say of two resources, and a manager that cannot write everything at once.
fn telling() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..2_u8).prop_map(|key| Step::Report { key }),
        8 => (1..6_u8).prop_map(|orders| Step::Work { orders }),
        8 => (1..6_u8).prop_map(|frames| Step::Up { frames }),
        8 => (1..6_u8).prop_map(|frames| Step::Down { frames }),
        6 => any::<bool>().prop_map(|later| Step::Take { later }),
        3 => (1..6_u8).prop_map(|seconds| Step::Wait { seconds }),
        1 => any::<bool>().prop_map(|noticed| Step::Cut { noticed }),
        1 => Just(Step::Connect { who: Who::Present }),
        1 => any::<bool>().prop_map(|stored| Step::NodeCrash { stored }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_is_said_of_a_resource_takes_effect_in_its_order(steps in prop::collection::vec(telling(), 0..150)) {
        let mut world = World::new();
        for key in 0..2 {
            world.step(Step::Edit { key, anew: false });
            world.step(Step::Plan { key });
        }
        for step in [Step::List, Step::Connect { who: Who::Present }, Step::Flow { rounds: 4 }].into_iter().chain(steps) {
            world.step(step);
        }
        world.settle();
        world.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_store_ends_equal_to_what_was_declared(steps in prop::collection::vec(step(), 0..150)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.settle();
        world.check();
    }
}
