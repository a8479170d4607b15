//! Whatever happens to a job's pods, and wherever the manager is killed: what must never be never is, and once things
//! calm down the job ends and stays so.

use std::collections::BTreeMap;

use proptest::prelude::*;
use skerry_crds::sedna::v1alpha1::Outcome;

use super::world::{AGGREGATOR, World};
use crate::ObjectKind;

/// What happens between two looks.
#[derive(Clone, Debug)]
enum Event {
    Pass(Option<usize>),
    Start(usize),
    End(usize, i32),
    Evict(usize),
    Delete(usize),
    Gone(usize),
    Edit(usize, u8),
    Lose(&'static str),
    BringBack,
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let place = 0..3_usize;
    prop_oneof![
        6 => prop_oneof![3 => Just(None), 1 => (0..3_usize).prop_map(Some)].prop_map(Event::Pass),
        3 => place.clone().prop_map(Event::Start),
        2 => (place.clone(), prop_oneof![4 => Just(0), 1 => Just(1)]).prop_map(|(place, code)| Event::End(place, code)),
        1 => place.clone().prop_map(Event::Evict),
        1 => place.clone().prop_map(Event::Delete),
        2 => place.clone().prop_map(Event::Gone),
        1 => (place, 0..3_u8).prop_map(|(place, version)| Event::Edit(place, version)),
        1 => prop_oneof![Just("defects"), Just("first"), Just("second")].prop_map(Event::Lose),
        1 => Just(Event::BringBack),
        1 => (1..20_u64).prop_map(Event::Wait),
    ]
}

fn happen(world: &mut World, event: &Event) {
    match event {
        Event::Pass(crash) => {
            world.pass(*crash);
        }
        Event::Start(place) => world.start(*place),
        // Workers know of each other: none ends well before it has met those that it needs.
        Event::End(AGGREGATOR, 0) => {
            if world.has_met_all() {
                world.end(AGGREGATOR, 0);
            }
        }
        Event::End(place, 0) => {
            if world.is_connected(*place) {
                world.end(*place, 0);
            }
        }
        Event::End(place, code) => world.end(*place, *code),
        Event::Evict(place) => world.evict(*place),
        Event::Delete(place) => {
            let name = world.pod_name(*place);
            world.delete(&name);
        }
        Event::Gone(place) => world.gone(*place),
        Event::Edit(place, version) => world.edit(*place, &format!("example/worker:v{version}")),
        Event::Lose("defects") => world.lose(ObjectKind::MODEL, "defects"),
        Event::Lose(name) => world.lose(ObjectKind::DATASET, name),
        Event::BringBack => world.bring_back(),
        Event::Wait(seconds) => world.wait(*seconds),
    }
}

/// What must hold after every event.
fn check(before: &World, after: &World) {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for live in &after.children {
        *names.entry(live.name()).or_default() += 1;
    }
    assert!(
        names.values().all(|count| *count == 1),
        "two objects of a name: {names:?}"
    );
    assert!(names.len() <= 4, "more pods than places: {names:?}");
    if let Some(ended) = before.ended() {
        assert_eq!(after.ended(), Some(ended), "an end is final");
        assert_eq!(after.made, before.made, "nothing is made after the end");
        assert_eq!(after.status().workers, before.status().workers);
    }
    let uid = |world: &World| world.status().workers.first().and_then(|worker| worker.pod_uid.clone());
    if uid(before).is_some() && uid(before) == uid(after) {
        for (earlier, later) in before.status().workers.iter().zip(after.status().workers) {
            if earlier.outcome == Some(Outcome::Succeeded) {
                assert_eq!(
                    later.outcome, earlier.outcome,
                    "what was recorded stays, as long as the aggregator does"
                );
                assert_eq!(later.pod_uid, earlier.pod_uid);
            }
        }
    }
}

/// A kubelet without trouble: pods start, deleted ones go, a trainer that has met its aggregator ends, one that has not
/// waits for it and crashes where that has ended, and the aggregator ends when all its trainers have.
fn calm(world: &mut World) {
    world.wait(11);
    for place in 0..world.places() {
        world.gone(place);
    }
    for place in 0..world.places() {
        world.start(place);
    }
    for place in 1..world.places() {
        if world.is_connected(place) {
            world.end(place, 0);
        } else if !["Pending", "Running"].contains(&world.phase(AGGREGATOR)) {
            world.crash(place);
        }
    }
    let uid = world.pod(AGGREGATOR).map(|pod| pod.uid().to_owned());
    let counts = uid.is_some() && uid == world.status().workers.first().and_then(|worker| worker.pod_uid.clone());
    let done = |place| {
        let recorded = counts && world.outcomes().get(place) == Some(&Some(Outcome::Succeeded));
        recorded || (world.phase(place) == "Succeeded" && world.works_with(place) == uid)
    };
    if (1..world.places()).all(done) {
        world.end(AGGREGATOR, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_job_converges_whatever_happens(events in prop::collection::vec(event(), 0..60)) {
        let mut world = World::new();
        for event in &events {
            let before = world.clone();
            happen(&mut world, event);
            check(&before, &world);
        }
        world.bring_back();
        let mut rounds = 0;
        while world.ended().is_none() {
            let before = world.clone();
            world.settle();
            check(&before, &world);
            calm(&mut world);
            rounds += 1;
            prop_assert!(rounds < 20, "the job does not end: {}", world.sketch());
        }
        world.settle();
        let (status, writes) = (world.status(), world.writes);
        for _ in 0..3 {
            calm(&mut world);
            world.settle();
        }
        prop_assert_eq!((world.status().conditions, world.writes), (status.conditions, writes));
    }

    #[test]
    fn a_second_look_at_the_same_things_writes_nothing(events in prop::collection::vec(event(), 0..40)) {
        let mut world = World::new();
        for event in &events {
            happen(&mut world, event);
        }
        world.settle();
        let (plan, status) = (world.plan(), world.status());
        prop_assert_eq!(world.plan(), plan);
        prop_assert!(!world.pass(None));
        prop_assert_eq!(world.status(), status);
    }
}
