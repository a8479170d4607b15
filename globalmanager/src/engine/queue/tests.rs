use super::*;

fn at(start: Instant, seconds: u64) -> Instant {
    start + Duration::from_secs(seconds)
}

#[test]
fn asked_twice_is_looked_at_once_at_the_earlier_time() {
    let (mut queue, start) = (Queue::new(LONGEST_RETRY), Instant::now());
    queue.ask("a", at(start, 5));
    queue.ask("a", at(start, 2));
    queue.ask("a", at(start, 9));
    assert_eq!(queue.due_at(), Some(at(start, 2)));
    assert_eq!(queue.next(at(start, 1)), None);
    assert_eq!(queue.next(at(start, 2)), Some("a"));
    queue.done("a", Ended::Well, at(start, 3), 0.5);
    assert_eq!((queue.due_at(), queue.depth()), (None, 0));
}

#[test]
fn what_is_asked_for_while_it_runs_is_not_lost_and_does_not_run_twice_at_once() {
    let (mut queue, start) = (Queue::new(LONGEST_RETRY), Instant::now());
    queue.ask("a", start);
    assert_eq!(queue.next(start), Some("a"));
    queue.ask("a", start);
    assert_eq!(queue.next(start), None);
    queue.done("a", Ended::Well, start, 0.5);
    assert_eq!(queue.next(start), Some("a"));
}

#[test]
fn what_gives_way_is_looked_at_once_nothing_is_due_or_it_is_asked_for() {
    let (mut queue, start) = (Queue::new(LONGEST_RETRY), Instant::now());
    let next = |queue: &mut Queue<_>, seconds| queue.next(at(start, seconds));
    give_way(&mut queue, "a", start);
    assert_eq!((queue.due_at(), queue.depth()), (None, 1));
    assert!(
        !queue.idle_until(at(start, 1)),
        "it is looked at as soon as somebody may"
    );
    queue.ask("b", at(start, 1));
    queue.ask("c", at(start, 2));
    assert_eq!(next(&mut queue, 1), Some("b"), "due is due");
    assert!(
        queue.others_come_before(&"b", at(start, 1), at(start, 1)),
        "a has given way for longer"
    );
    assert_eq!(next(&mut queue, 1), Some("a"), "before what is due later");
    assert!(
        !queue.others_come_before(&"a", at(start, 0), at(start, 2)),
        "whatever is due, this is its turn"
    );
    assert_eq!((next(&mut queue, 1), next(&mut queue, 2)), (None, Some("c")));
    end(&mut queue, ["a", "b", "c"], at(start, 2));

    give_way(&mut queue, "d", at(start, 3));
    queue.ask("d", at(start, 300));
    queue.ask("e", at(start, 4));
    assert_eq!(queue.depth(), 2, "once, whatever it waits for");
    assert_eq!(next(&mut queue, 4), Some("e"));
    assert_eq!(
        next(&mut queue, 4),
        Some("d"),
        "a later look is no reason to wait for that"
    );
    assert_eq!((next(&mut queue, 300), queue.depth()), (None, 0));
    end(&mut queue, ["d", "e"], at(start, 300));

    give_way(&mut queue, "f", at(start, 301));
    queue.ask("f", at(start, 302));
    queue.ask("g", at(start, 303));
    assert_eq!(next(&mut queue, 303), Some("f"), "something was seen of it");
    assert!(queue.others_come_before(&"f", at(start, 301), at(start, 303)));
    assert_eq!((next(&mut queue, 303), queue.depth()), (Some("g"), 0));
}

#[test]
fn what_is_to_give_way_from_some_time_on_is_not_looked_at_before() {
    let (mut queue, start) = (Queue::new(LONGEST_RETRY), Instant::now());
    queue.ask("later", start);
    assert_eq!(queue.next(start), Some("later"));
    queue.done("later", Ended::AfterOthers(at(start, 5)), start, 0.5);
    assert!(queue.idle_until(at(start, 5)) && !queue.idle_until(at(start, 6)));
    assert_eq!(
        (queue.next(at(start, 4)), queue.next_at(start)),
        (None, Some(at(start, 5)))
    );
    for number in 0..=DUE_IN_A_ROW {
        queue.ask("due", at(start, 4));
        assert_eq!(
            queue.next(at(start, 4)),
            Some("due"),
            "it is nobody's turn but its own: {number}"
        );
        end(&mut queue, ["due"], at(start, 4));
    }
    queue.ask("due", at(start, 5));
    assert_eq!(queue.next(at(start, 5)), Some("due"));
    assert_eq!(queue.next(at(start, 5)), Some("later"));
    assert_eq!(queue.next_at(at(start, 5)), None);
    end(&mut queue, ["later"], at(start, 5));

    give_way(&mut queue, "now", at(start, 6));
    queue.ask("running", at(start, 6));
    assert_eq!(queue.next_at(at(start, 6)), Some(at(start, 6)), "somebody is due");
    assert_eq!(queue.next(at(start, 6)), Some("running"));
    assert_eq!(
        queue.next_at(at(start, 6)),
        None,
        "it has its turn once something is done"
    );
}

#[test]
fn what_gives_way_moves_on_by_a_share_of_the_turns_however_much_is_due() {
    let (mut queue, now) = (Queue::new(LONGEST_RETRY), Instant::now());
    for key in [1, 2] {
        give_way(&mut queue, key, now);
    }
    let mut turns = vec![];
    for other in 10..50 {
        // There is always more to do than there are turns.
        queue.ask(2 * other, now);
        queue.ask(2 * other + 1, now);
        let next = queue.next(now).unwrap();
        queue.done(next, Ended::Well, now, 0.5);
        turns.push(next);
    }
    let of = |key| turns.iter().position(|turn| *turn == key).unwrap();
    let few = usize::try_from(DUE_IN_A_ROW).unwrap();
    assert!(of(1) <= few, "{turns:?}");
    assert_eq!(of(2), of(1) + few + 1, "{turns:?}");
}

#[test]
fn one_at_once_of_what_gave_way_is_looked_at_beside_what_was_due() {
    let (mut queue, now) = (Queue::new(LONGEST_RETRY), Instant::now());
    for key in ["a", "b", "c", "d"] {
        give_way(&mut queue, key, now);
    }
    queue.ask("due", now);
    assert_eq!(queue.next(now), Some("due"));
    assert_eq!((queue.next(now), queue.next(now)), (Some("a"), None));
    end(&mut queue, ["a"], now);
    assert_eq!((queue.next(now), queue.next(now)), (Some("b"), None));
    end(&mut queue, ["due"], now);
    assert_eq!((queue.next(now), queue.next(now)), (Some("c"), Some("d")));
    end(&mut queue, ["b", "c", "d"], now);

    for key in ["due", "also due"] {
        queue.ask(key, now);
        assert_eq!(queue.next(now), Some(key));
    }
    assert!(queue.others_come_before(&"due", now, now), "another is still looked at");
    end(&mut queue, ["also due"], now);
    assert!(!queue.others_come_before(&"due", now, now), "it is alone");
}

#[test]
fn what_is_asked_for_after_others_waits_for_them_and_is_looked_at_once_where_it_is_due_as_well() {
    let (mut queue, start) = (Queue::new(LONGEST_RETRY), Instant::now());
    queue.ask_after_others("told", start);
    queue.ask_after_others("told", at(start, 5));
    queue.ask("due", start);
    assert_eq!((queue.next(start), queue.next(start)), (Some("due"), Some("told")));
    queue.ask_after_others("told", at(start, 1));
    assert_eq!(queue.depth(), 0, "it is looked at now");
    end(&mut queue, ["due", "told"], start);
    assert_eq!((queue.due_at(), queue.next_at(start)), (None, Some(at(start, 1))));

    queue.ask("told", at(start, 1));
    assert_eq!(queue.due_at(), Some(at(start, 1)), "it need not give way any more");
    queue.ask_after_others("told", at(start, 2));
    assert_eq!(queue.next(at(start, 2)), Some("told"));
    end(&mut queue, ["told"], at(start, 2));
    assert_eq!((queue.next(at(start, 300)), queue.depth()), (None, 0));
}

fn end<K: Ord + Clone>(queue: &mut Queue<K>, keys: impl IntoIterator<Item = K>, now: Instant) {
    for key in keys {
        queue.done(key, Ended::Well, now, 0.5);
    }
}

fn give_way<K: Ord + Clone + std::fmt::Debug>(queue: &mut Queue<K>, key: K, since: Instant) {
    queue.ask(key.clone(), since);
    assert_eq!(queue.next(since), Some(key.clone()));
    queue.done(key, Ended::AfterOthers(since), since, 0.5);
}

#[test]
fn failures_back_off_for_that_key_alone_up_to_a_cap_and_success_forgets_them() {
    let (mut queue, mut now) = (Queue::new(LONGEST_RETRY), Instant::now());
    let mut waits = vec![];
    queue.ask("bad", now);
    for _ in 0..12 {
        assert_eq!(queue.next(now), Some("bad"));
        queue.done("bad", Ended::Failed, now, 0.5);
        let due = queue.due_at().unwrap();
        waits.push((due - now).as_secs());
        queue.ask("good", now);
        assert_eq!(queue.next(now), Some("good"));
        queue.done("good", Ended::Well, now, 0.5);
        now = due;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    assert_eq!(queue.next(now), Some("bad"));
    queue.done("bad", Ended::Well, now, 0.5);
    queue.ask("bad", now);
    assert_eq!(queue.next(now), Some("bad"));
    queue.done("bad", Ended::Failed, now, 0.5);
    assert_eq!(queue.due_at(), Some(now + FIRST_RETRY));
}

#[test]
fn what_fails_again_before_its_time_waits_no_longer_for_that() {
    let (mut queue, start) = (Queue::new(LONGEST_RETRY), Instant::now());
    queue.ask("a", start);
    for look in 0..10 {
        let now = start + Duration::from_millis(look);
        queue.ask("a", now);
        assert_eq!(queue.next(now), Some("a"));
        queue.done("a", Ended::Failed, now, 0.5);
        assert_eq!(queue.due_at(), Some(start + FIRST_RETRY));
    }
    assert_eq!(queue.next(start + FIRST_RETRY), Some("a"));
    queue.done("a", Ended::Failed, start + FIRST_RETRY, 0.5);
    assert_eq!(queue.due_at(), Some(start + 3 * FIRST_RETRY));
}
