//! Rollouts whatever happens on the way.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Image(u8),
    Replicas(i32),
    Paused(bool),
    /// Of some set: how many of its pods exist and how many are ready, in percent of its size.
    Pods(usize, i32, i32),
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..3_u8).prop_map(Step::Image),
        1 => (0..12).prop_map(Step::Replicas),
        1 => any::<bool>().prop_map(Step::Paused),
        6 => (0..4_usize, 0..=100, 0..=100).prop_map(|(set, exist, ready)| Step::Pods(set, exist, ready)),
        8 => Just(Step::Look),
    ]
}

proptest! {
    /// Whatever happens on the way: never more pods than allowed while `replicas` stands still, and if nothing changes
    /// any more, the newest set has all pods and the status says so.
    #[test]
    fn every_history_ends_well(
        replicas in 0..10_i32, surge in 0..4_i32, unavailable in 0..4_i32,
        recreate in any::<bool>(), steps in prop::collection::vec(step(), 0..60),
    ) {
        let strategy = if recreate {
            json!({"type": "Recreate", "rollingUpdate": null})
        } else {
            json!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
        };
        let mut world = World::new(&json!({"replicas": replicas, "strategy": strategy}));
        let mut highest: i32 = replicas;
        for step in steps {
            match step {
                Step::Image(image) => world.edit(&json!({"template": template(&image.to_string())})),
                Step::Replicas(replicas) => {
                    highest = highest.max(replicas);
                    world.edit(&json!({"replicas": replicas}));
                }
                Step::Paused(paused) => world.edit(&json!({"paused": paused})),
                Step::Pods(set, exist, ready) => {
                    if let Some((name, size)) = world.sets.values().nth(set).map(|set| (set.name_any(), size(set))) {
                        let exist = size * exist / 100;
                        world.pods(&name, exist, exist * ready / 100);
                    }
                }
                Step::Look => drop(world.look(&[])),
            }
            let total: i32 = world.sets.values().map(size).sum();
            let allowed = highest + if recreate { 0 } else { surge.max(0) };
            prop_assert!(total <= allowed.max(replicas), "{total} pods, {allowed} allowed");
        }
        world.edit(&json!({"paused": false}));
        world.settle();
        let wanted = world.deployment.spec.as_ref().unwrap().replicas.unwrap();
        prop_assert_eq!(size(&world.sets[&world.newest()]), wanted);
        prop_assert_eq!(world.sets.values().map(size).sum::<i32>(), wanted);
        let status = world.deployment.status.clone().unwrap();
        prop_assert_eq!(status.available_replicas.unwrap_or_default(), wanted);
        prop_assert_eq!(status.observed_generation, world.deployment.metadata.generation);
        prop_assert_eq!(world.condition("Available").0, "True");
        prop_assert_eq!(world.condition("Progressing").1, "NewReplicaSetAvailable");
    }
}
