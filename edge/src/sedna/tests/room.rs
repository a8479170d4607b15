//! How much of what an agent reports is kept, and what gives way.

use super::*;

/// An agent that holds these.
fn holding(names: &[&str]) -> Agent {
    let mut agent = Agent::new("b".to_owned());
    let puts = names.iter().map(|name| Change::Put(object(name, 1)));
    told(&mut agent, puts.collect());
    agent
}

/// Says so many bytes of each of these in turn until the agent has to wait; how many were said.
fn fill(agent: &mut Agent, names: &[&str], bytes: usize, now: Instant) -> usize {
    let mut said = 0;
    for name in names.iter().cycle() {
        if agent.make_room(now).full_until.is_some() {
            break;
        }
        agent.report(NOW, event(name, &"x".repeat(bytes)));
        said += 1;
    }
    said
}

/// The numbers of what is owed of this.
fn owed_of(agent: &Agent, name: &str) -> Vec<u64> {
    let owed = owed(agent).into_iter();
    owed.filter(|(_, uid)| *uid == format!("uid-{name}"))
        .map(|(seq, _)| seq)
        .collect()
}

#[test]
fn what_is_kept_of_reports_is_bounded_in_bytes() {
    let now = Instant::now();
    for length in [1, 1_000, 100_000] {
        for (names, limit) in [(&["d"][..], SHARE), (&["d", "e", "f"], OWED)] {
            let mut agent = holding(names);
            let taken = fill(&mut agent, names, length, now);
            assert!(taken == 1 || length * taken < limit + length, "{taken} of {length}");
            assert_eq!(owed(&agent).len(), taken, "none is dropped");
            (1..=taken as u64 / 2 + 1).for_each(|seq| agent.settle(seq));
            assert_eq!(agent.make_room(now).full_until, None, "there is room again");
        }
    }
}

#[test]
fn a_busy_resource_is_waited_for_and_then_gives_way_to_others() {
    let now = Instant::now();
    let mut agent = holding(&["busy", "d"]);
    let said = fill(&mut agent, &["busy"], 1_000, now) as u64;
    let full = Room {
        full_until: Some(now + PATIENCE),
        given_up: 0,
    };
    assert_eq!(agent.make_room(now + PATIENCE / 2), full);
    let now = now + PATIENCE;
    let room = |given_up| Room {
        full_until: None,
        given_up,
    };
    assert_eq!(agent.make_room(now), room(1));
    assert_eq!(owed_of(&agent, "busy").first(), Some(&2), "the oldest has given way");

    agent.report(NOW, event("d", "x"));
    for _ in 0..1_000 {
        agent.report(NOW, event("busy", &"x".repeat(1_000)));
        assert_eq!(agent.make_room(now), room(1), "it is not waited for again");
    }
    assert_eq!(owed_of(&agent, "d"), [said + 1]);
    let kept = owed_of(&agent, "busy");
    assert_eq!(kept.last(), Some(&(said + 1_001)), "the newest stay");
    assert_eq!(kept.len() as u64, said - 1);

    // Another one has a time of its own.
    fill(&mut agent, &["d"], 1_000, now);
    assert_eq!(agent.make_room(now).full_until, Some(now + PATIENCE));
    // And so has this one, once nothing of it was left.
    for seq in kept.iter().chain(&owed_of(&agent, "d")) {
        agent.settle(*seq);
    }
    let later = now + Duration::from_secs(1);
    fill(&mut agent, &["busy"], 1_000, later);
    assert_eq!(agent.make_room(later).full_until, Some(later + PATIENCE));
}

#[test]
fn however_many_are_busy_what_most_is_owed_of_gives_way() {
    let now = Instant::now();
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let mut agent = holding(&[&names[..], &["quiet"]].concat());
    fill(&mut agent, &names, 1_000, now);
    let before = owed(&agent).len();
    let gave_way = agent.make_room(now + PATIENCE).given_up;
    assert!(gave_way > 0);
    agent.report(NOW, event("quiet", "x"));
    assert_eq!(owed_of(&agent, "quiet").len(), 1);
    assert_eq!(owed(&agent).len() as u64, before as u64 - gave_way + 1);
}

#[test]
fn many_that_are_busy_are_waited_for_once_and_not_in_turn() {
    let now = Instant::now();
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let mut agent = holding(&names);
    fill(&mut agent, &names, 1_000, now);
    for name in names.iter().cycle().take(100) {
        agent.report(NOW, event(name, &"x".repeat(1_000)));
        assert_eq!(agent.make_room(now + PATIENCE).full_until, None);
    }
}

#[test]
fn a_burst_that_was_answered_for_the_most_part_counts_no_longer() {
    let now = Instant::now();
    let mut agent = holding(&["d"]);
    let said = fill(&mut agent, &["d"], 1_000, now) as u64;
    (1..=said * 2 / 3).for_each(|seq| agent.settle(seq));
    assert_eq!(agent.make_room(now).full_until, None);
    let later = now + 2 * PATIENCE;
    fill(&mut agent, &["d"], 1_000, later);
    let room = agent.make_room(later);
    assert_eq!((room.full_until, room.given_up), (Some(later + PATIENCE), 0));
}

#[test]
fn of_a_busy_resource_figures_give_way_first() {
    let now = Instant::now();
    let mut agent = holding(&["d"]);
    agent.report(NOW, event("d", "x"));
    agent.report(NOW, samples("d", 7));
    fill(&mut agent, &["d"], 1_000, now);
    assert_eq!(agent.make_room(now + PATIENCE).given_up, 1);
    assert_eq!(owed_of(&agent, "d")[..2], [1, 3]);
}
