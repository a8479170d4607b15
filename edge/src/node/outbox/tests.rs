use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::report::{Report, ReportPayload};

const NOW: Duration = Duration::from_secs(1);
const WINDOW: u64 = limits::REPORT_WINDOW as u64;
const SHARE: u64 = limits::REPORT_SHARE as u64;

fn dataset(name: &str) -> ObjectKey {
    ObjectKey::new("dataset", "default", name)
}

fn on(name: &str, seq: u64) -> Outgoing {
    Outgoing::Report(Report {
        seq,
        id: None,
        key: dataset(name),
        uid: String::new(),
        observed_at: jiff::Timestamp::UNIX_EPOCH,
        payload: ReportPayload::DatasetSamples { count: 1 },
    })
}

/// Each on a resource of its own.
fn reports(seqs: impl IntoIterator<Item = u64>) -> Vec<Outgoing> {
    seqs.into_iter().map(|seq| on(&seq.to_string(), seq)).collect()
}

fn seq(frame: &Upstream) -> u64 {
    match frame {
        Upstream::Report { report, .. } => report.seq,
        Upstream::Gap { seq, .. } => *seq,
        other => panic!("{other:?}"),
    }
}

fn seqs(frames: &[Upstream]) -> Vec<u64> {
    frames.iter().map(seq).collect()
}

/// After which number of all resources, and how many.
fn want(window: &mut Window, now: Duration) -> Option<(u64, u64)> {
    window.want(now).map(|Wanted { of, after, limit }| {
        assert_eq!(of, None);
        (after, limit as u64)
    })
}

fn want_of(window: &mut Window, now: Duration) -> Option<(String, u64, u64)> {
    window
        .want(now)
        .map(|Wanted { of, after, limit }| (of.unwrap().name, after, limit as u64))
}

#[test]
fn reads_on_until_nothing_comes_and_again_when_the_outbox_grew() {
    let mut window = Window::default();
    assert_eq!(want(&mut window, NOW), None, "no session yet");
    window.open();
    assert_eq!(want(&mut window, NOW), Some((0, WINDOW)));
    assert_eq!(want(&mut window, NOW), None, "one read at a time");
    assert_eq!(window.read(reports(5..=6)).len(), 2);
    assert_eq!(want(&mut window, NOW), Some((6, WINDOW - 2)));
    assert!(window.read(vec![]).is_empty());
    assert_eq!(want(&mut window, NOW), None);
    window.grew();
    assert!(window.want(NOW).is_some());
}

#[test]
fn what_is_put_in_while_the_outbox_is_read_is_not_overlooked() {
    let mut window = Window::default();
    window.open();
    window.want(NOW);
    window.grew();
    window.read(vec![]);
    assert!(window.want(NOW).is_some());
}

#[test]
fn the_window_is_bounded_and_answers_open_it() {
    let mut window = Window::default();
    window.open();
    window.want(NOW);
    window.read(reports(1..=WINDOW));
    assert_eq!(want(&mut window, NOW), None);
    assert!(window.answered(3));
    assert!(!window.answered(3), "once");
    assert_eq!(want(&mut window, NOW), Some((WINDOW, 1)));
}

#[test]
fn a_busy_resource_has_a_share_and_goes_on_where_it_was_left() {
    let mut window = Window::default();
    window.open();
    window.want(NOW);
    let busy = window.read((1..=WINDOW).map(|seq| on("busy", seq)).collect());
    assert_eq!(seqs(&busy), (1..=SHARE).collect::<Vec<_>>());
    assert_eq!(
        want(&mut window, NOW),
        Some((WINDOW, WINDOW - SHARE)),
        "what is behind it is read"
    );
    let (behind, other) = (WINDOW + 1, WINDOW + 2);
    let others = window.read(vec![on("busy", behind), on("other", other)]);
    assert_eq!(seqs(&others), [other]);
    window.want(NOW);
    window.read(vec![]);
    assert_eq!(window.want(NOW), None, "nothing of the busy one before an answer");
    assert!(window.answered(1) && window.answered(2));
    assert_eq!(
        want_of(&mut window, NOW),
        Some(("busy".to_owned(), SHARE, 1)),
        "the other one took a place"
    );
    window.read_failed();
    assert!(window.answered(other));
    window.want(NOW);
    window.read(vec![]);
    assert_eq!(want_of(&mut window, NOW), Some(("busy".to_owned(), SHARE, 2)));
    let more = window.read(vec![on("busy", SHARE + 1), on("busy", SHARE + 2)]);
    assert_eq!(seqs(&more), [SHARE + 1, SHARE + 2]);
    assert!((3..=SHARE + 2).all(|seq| window.answered(seq)));
    assert_eq!(want_of(&mut window, NOW), Some(("busy".to_owned(), SHARE + 2, SHARE)));
    window.grew();
    window.read(vec![]);
    assert_eq!(
        want(&mut window, NOW),
        Some((other, WINDOW)),
        "one of which nothing waits is read with all others"
    );
}

#[test]
fn of_several_busy_resources_each_has_its_turn() {
    let mut window = Window::default();
    window.open();
    let names = ["a", "b", "c"];
    let mut waiting: Vec<_> = (1..=3 * WINDOW)
        .map(|seq| on(names[(seq / WINDOW) as usize % 3], seq))
        .collect();
    let mut turns = Vec::new();
    while !waiting.is_empty() {
        while let Some(wanted) = window.want(NOW) {
            window.read(wanted.pick(waiting.iter().cloned()));
        }
        let (first, of) = window.in_flight.first_key_value().unwrap();
        turns.extend((turns.last() != Some(&of.name)).then(|| of.name.clone()));
        let first = *first;
        window.answered(first);
        waiting.retain(|outgoing| outgoing.seq() != first);
    }
    let mut early = turns[..4].to_vec();
    early.sort();
    early.dedup();
    assert_eq!(early, names, "{turns:?}");
}

#[test]
fn a_new_session_starts_over_and_drops_what_the_old_one_asked_for() {
    let mut window = Window::default();
    window.open();
    window.want(NOW);
    window.open();
    assert_eq!(window.want(NOW), None, "the old read has to return first");
    assert!(window.read(reports(5..=6)).is_empty());
    assert_eq!(want(&mut window, NOW), Some((0, WINDOW)));
}

#[test]
fn what_was_in_flight_goes_first_over_the_next_session() {
    let mut window = Window::default();
    window.open();
    window.want(NOW);
    window.read((1..=2 * SHARE).map(|seq| on("busy", seq)).collect());
    assert!((1..=SHARE).all(|seq| window.answered(seq)));
    assert_eq!(want_of(&mut window, NOW), Some(("busy".to_owned(), SHARE, SHARE)));
    window.read((SHARE + 1..=SHARE + 3).map(|seq| on("busy", seq)).collect());
    assert_eq!(want(&mut window, NOW), Some((2 * SHARE, WINDOW - 3)));
    window.read(reports(200..=201));
    window.later(200, NOW * 9);

    window.open();
    assert_eq!(want(&mut window, NOW), Some((SHARE, WINDOW)));
    // The first was replaced.
    let found = [vec![on("busy", SHARE + 3), on("busy", SHARE + 4)], reports(200..=201)].concat();
    let again = window.read(found.clone());
    assert_eq!(seqs(&again), [SHARE + 3, 201], "and nothing else");
    assert_eq!(want(&mut window, NOW), Some((0, WINDOW - 2)), "then all");
    assert_eq!(seqs(&window.read(found)), [SHARE + 4, 200]);
}

#[test]
fn what_is_behind_one_that_was_put_off_goes_after_it_over_the_next_session_too() {
    let mut window = Window::default();
    window.open();
    window.want(NOW);
    window.read((1..=3).map(|seq| on("a", seq)).collect());
    window.later(2, NOW * 9);
    window.open();
    assert_eq!(want(&mut window, NOW), Some((0, WINDOW)));
    assert_eq!(seqs(&window.read(vec![on("a", 1), on("a", 2), on("a", 3)])), [1]);
    window.read(vec![]);
    assert_eq!(want(&mut window, NOW), Some((0, WINDOW - 1)));
    assert_eq!(seqs(&window.read(vec![on("a", 1), on("a", 2), on("a", 3)])), [2, 3]);
}

#[test]
fn what_is_answered_while_it_is_read_once_more_does_not_go_again() {
    let mut window = Window::default();
    window.open();
    window.want(NOW);
    window.read((1..=2).map(|seq| on("a", seq)).collect());
    window.later(1, NOW);
    assert_eq!(want_of(&mut window, NOW), Some(("a".to_owned(), 0, SHARE - 1)));
    window.answered(2);
    assert_eq!(seqs(&window.read(vec![on("a", 1), on("a", 2)])), [1]);
}

#[test]
fn a_report_says_which_of_its_resource_before_it_has_no_answer_yet() {
    let after = |frames: &[Upstream]| -> Vec<_> {
        let after = frames.iter().map(|frame| match frame {
            Upstream::Report { report, after, .. } => (report.seq, *after),
            other => panic!("{other:?}"),
        });
        after.collect()
    };
    let mut window = Window::default();
    window.open();
    window.want(NOW);
    let frames = window.read(vec![on("a", 1), on("b", 2), on("a", 3)]);
    assert_eq!(after(&frames), [(1, None), (2, None), (3, Some(1))]);
    window.answered(1);
    window.want(NOW);
    let frames = window.read(vec![on("b", 4), on("a", 5)]);
    assert_eq!(after(&frames), [(4, Some(2)), (5, Some(3))]);
    // What was put off goes again, and what is behind it.
    window.later(3, NOW);
    let wanted = want_of(&mut window, NOW);
    assert!(matches!(wanted, Some((of, 2, _)) if of == "a"));
    let frames = window.read(vec![on("a", 3), on("a", 5)]);
    assert_eq!(after(&frames), [(3, None)], "5 is on its way, and will be put off");
}

#[test]
fn settled_is_the_lowest_in_flight() {
    let mut window = Window::default();
    window.open();
    window.want(NOW);
    window.read(reports(3..=5));
    window.answered(3);
    window.want(NOW);
    let frames = window.read(reports([6]));
    assert!(matches!(frames[..], [Upstream::Report { settled: 4, .. }]));
    assert!(window.answered(4));
    window.open();
    window.want(NOW);
    let frames = window.read(reports([5]));
    assert!(matches!(frames[..], [Upstream::Report { settled: 5, .. }]));
}

#[test]
fn what_has_to_wait_is_read_again_in_its_time_and_holds_up_nothing() {
    let mut window = Window::default();
    window.open();
    window.want(NOW);
    window.read([reports(1..=2), vec![on("2", 3)]].concat());
    window.later(2, NOW * 3);
    window.later(3, NOW * 2);
    assert_eq!(want(&mut window, NOW), Some((3, WINDOW - 1)), "the next ones go on");
    let next = window.read(vec![on("4", 4), on("2", 5)]);
    assert_eq!(seqs(&next), [4], "but for those on the same resource");
    window.want(NOW);
    window.read(vec![]);
    assert_eq!((window.want(NOW), window.wake_at()), (None, Some(NOW * 2)));
    let beside_two = SHARE - 2;
    assert_eq!(want_of(&mut window, NOW * 2), Some(("2".to_owned(), 1, beside_two)));
    assert_eq!(window.wake_at(), None);
    let again = window.read(vec![on("2", 2), on("2", 3), on("2", 5)]);
    assert_eq!(seqs(&again), [2, 3, 5]);
}

#[test]
fn what_was_read_behind_one_that_is_put_off_meanwhile_waits_for_it() {
    let mut window = Window::default();
    window.open();
    window.want(NOW);
    window.read((1..=WINDOW).map(|seq| on("busy", seq)).collect());
    window.want(NOW);
    window.read(vec![]);
    assert!(window.answered(2));
    assert_eq!(want_of(&mut window, NOW), Some(("busy".to_owned(), SHARE, 1)));
    window.later(1, NOW * 2);
    assert!(window.read(vec![on("busy", SHARE + 1)]).is_empty());
    assert_eq!(window.want(NOW), None);
    assert_eq!(want_of(&mut window, NOW * 2), Some(("busy".to_owned(), 0, 2)));
}

#[test]
fn however_many_resources_are_busy_another_one_goes_at_once() {
    let mut waiting: Vec<_> = (1..=3000)
        .map(|seq| on(["one", "two"][usize::from(seq % 2 == 0)], seq))
        .collect();
    waiting.push(on("another", 3001));
    let mut window = Window::default();
    window.open();
    let mut sent = Vec::new();
    while let Some(wanted) = window.want(NOW) {
        sent.extend(seqs(&window.read(wanted.pick(waiting.iter().cloned()))));
    }
    assert_eq!(sent.pop(), Some(3001));
    assert_eq!(sent, (1..=SHARE).collect::<Vec<_>>());
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Read,
    Answer(prop::sample::Index),
    Later(prop::sample::Index),
    Open,
    Pass,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..4_u8, 1..60_u8).prop_map(|(name, count)| Step::Put(name, count)),
        8 => Just(Step::Read),
        8 => any::<prop::sample::Index>().prop_map(Step::Answer),
        2 => any::<prop::sample::Index>().prop_map(Step::Later),
        1 => Just(Step::Open),
        2 => Just(Step::Pass),
    ]
}

/// The outbox, and what the manager has of it.
#[derive(Default)]
struct Ends {
    window: Window,
    now: Duration,
    last: u64,
    waiting: BTreeMap<u64, Outgoing>,
    in_flight: BTreeMap<u64, ObjectKey>,
    read: Option<Vec<Outgoing>>,
}

impl Ends {
    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let sent: Vec<_> = self.in_flight.keys().copied().collect();
        match step {
            Step::Put(name, count) => {
                for _ in 0..*count {
                    self.last += 1;
                    self.waiting.insert(self.last, on(&name.to_string(), self.last));
                }
                self.window.grew();
            }
            Step::Read => {
                if let Some(read) = self.read.take() {
                    for frame in self.window.read(read) {
                        self.sent(seq(&frame))?;
                    }
                } else {
                    let wanted = self.window.want(self.now);
                    self.read = wanted.map(|wanted| wanted.pick(self.waiting.values().cloned()));
                }
            }
            Step::Answer(index) if !sent.is_empty() => {
                let seq = *index.get(&sent);
                prop_assert!(self.window.answered(seq));
                self.in_flight.remove(&seq);
                self.waiting.remove(&seq);
            }
            Step::Later(index) if !sent.is_empty() => {
                let seq = *index.get(&sent);
                self.window.later(seq, self.now + NOW);
                self.in_flight.remove(&seq);
            }
            Step::Answer(_) | Step::Later(_) => {}
            Step::Open => {
                self.window.open();
                self.in_flight.clear();
            }
            Step::Pass => self.now += NOW,
        }
        Ok(())
    }

    fn sent(&mut self, seq: u64) -> Result<(), TestCaseError> {
        // What was read may have been answered before it was sent.
        let Some(key) = self.waiting.get(&seq).map(Outgoing::key) else {
            return Err(TestCaseError::fail(format!("{seq} was answered")));
        };
        let mut before = self.waiting.range(..seq);
        let before = before.find(|(seq, outgoing)| outgoing.key() == key && !self.in_flight.contains_key(seq));
        prop_assert!(before.is_none(), "{seq} goes before {before:?}");
        prop_assert!(self.in_flight.insert(seq, key.clone()).is_none(), "{seq} is in flight");
        let share = self.in_flight.values().filter(|of| **of == key).count();
        prop_assert!(share <= limits::REPORT_SHARE && self.in_flight.len() <= limits::REPORT_WINDOW);
        Ok(())
    }
}

proptest! {
    #[test]
    fn whatever_happens_each_goes_in_its_order_within_its_share_until_it_is_answered(
        steps in prop::collection::vec(step(), 0..80),
        last in any::<prop::sample::Index>(),
    ) {
        let mut ends = Ends::default();
        ends.window.open();
        for step in &steps {
            ends.take(step)?;
        }
        let mut rest = 4 * ends.waiting.len() + 100;
        while !ends.waiting.is_empty() && rest > 0 {
            rest -= 1;
            for step in [Step::Read, Step::Read, Step::Pass, Step::Answer(last)] {
                ends.take(&step)?;
            }
        }
        prop_assert!(ends.waiting.is_empty(), "{} are left", ends.waiting.len());
    }
}

#[test]
fn what_was_in_flight_behind_a_report_that_was_put_off_is_owed_until_it_goes_again() {
    let settled = |frames: &[Upstream]| match frames {
        [Upstream::Report { settled, .. }, ..] => *settled,
        other => panic!("{other:?}"),
    };
    let mut window = Window::default();
    window.open();
    window.want(NOW);
    window.read(vec![on("a", 1), on("a", 2), on("b", 3)]);
    window.later(1, NOW + Duration::from_secs(3));
    // The manager carries out 2, and its answer is lost with the connection. This one may take some, too.
    for _ in 0..2 {
        window.open();
        window.want(NOW);
    }
    window.read(vec![]);
    window.want(NOW);
    let again = window.read(vec![on("b", 3)]);
    assert_eq!((seqs(&again), settled(&again)), (vec![3], 1));
    assert!(window.answered(3));
    window.want(NOW);
    let behind = window.read(vec![on("a", 1), on("a", 2), on("c", 4)]);
    assert_eq!((seqs(&behind), settled(&behind)), (vec![1, 2, 4], 1));
    assert!(window.answered(1) && window.answered(2));
    window.grew();
    window.want(NOW);
    assert_eq!(settled(&window.read(vec![on("d", 5)])), 4);
}

#[test]
fn what_was_put_off_is_owed_until_it_is_read_whatever_overtakes_it() {
    let mut window = Window::default();
    let first = SHARE + 5;
    window.open();
    window.want(NOW);
    window.read(vec![on("a", first), on("a", first + 1)]);
    window.later(first, NOW);
    window.open();
    window.want(NOW);
    window.read((1..=SHARE + 1).map(|seq| on("busy", seq)).collect());
    assert!((1..=SHARE).all(|seq| window.answered(seq)));
    let busy = Some(("busy".to_owned(), SHARE, SHARE));
    assert_eq!(want_of(&mut window, NOW), busy);
    window.read(vec![on("busy", SHARE + 1), on("busy", first + 2)]);
    assert!(window.answered(SHARE + 1));
    // Those of all others are read up to here.
    window.want(NOW);
    let overtaking = window.read(vec![on("other", SHARE + 2)]);
    assert!(window.answered(SHARE + 2));
    assert_eq!(seqs(&overtaking), [SHARE + 2]);
    assert_eq!(
        want_of(&mut window, NOW),
        Some(("busy".to_owned(), first + 2, SHARE - 1))
    );
    let overtaking = window.read(vec![on("busy", first + 3)]);
    assert!(
        matches!(overtaking[..], [Upstream::Report { settled, .. }] if settled == first),
        "{overtaking:?}"
    );
}
