use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;
use skerry_edge::{ObjectKey, ReportPayload};

use super::*;

fn reported(node: &str, boot: &str, seq: u64) -> Reported {
    let report = Report {
        seq,
        id: None,
        key: ObjectKey::new("dataset", "default", "d"),
        uid: "u".to_owned(),
        observed_at: Timestamp::UNIX_EPOCH,
        payload: ReportPayload::DatasetSamples { count: seq },
    };
    Reported {
        node: node.into(),
        boot: boot.to_owned(),
        report,
    }
}

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn batch(stream: &mut Stream, now: Duration) -> Vec<Reported> {
    match stream.next(now) {
        Next::Batch(batch) => batch,
        other => panic!("{other:?}"),
    }
}

fn all(batch: &[Reported], taken: &Taken) -> Answers {
    Answers {
        each: vec![taken.clone(); batch.len()],
        asked: true,
    }
}

fn seqs(told: &[(Reported, Verdict)]) -> Vec<u64> {
    told.iter().map(|(reported, _)| reported.report.seq).collect()
}

fn later() -> Taken {
    Taken::Later("away".to_owned())
}

#[test]
fn the_first_goes_at_once_and_what_comes_until_a_pace_after_its_write_goes_together() {
    let mut stream = Stream::default();
    assert_eq!(stream.push(at(0), reported("a", "", 1)), None);
    let first = batch(&mut stream, at(0));
    for seq in 2..=50 {
        assert_eq!(stream.push(at(seq), reported("a", "", seq)), None);
    }
    let answers = all(&first, &Taken::Accepted);
    assert_eq!(seqs(&stream.answered(at(60), first, answers)), [1]);
    assert_eq!(stream.next(at(60)), Next::Rest(at(1060)));
    assert_eq!(stream.next(at(1059)), Next::Rest(at(1060)));
    let second = batch(&mut stream, at(1060));
    let answers = all(&second, &Taken::Accepted);
    assert_eq!(
        seqs(&stream.answered(at(1070), second, answers)),
        (2..=50).collect::<Vec<_>>()
    );
    assert_eq!(stream.next(at(1070)), Next::Rest(at(2070)));
    assert_eq!(stream.next(at(2070)), Next::Over);
}

#[test]
fn what_asks_nothing_of_the_api_server_waits_for_nothing() {
    let mut stream = Stream::default();
    for seq in 1..=3 {
        stream.push(at(0), reported("a", "", seq));
        let batch = batch(&mut stream, at(0));
        let answers = Answers {
            asked: false,
            ..all(&batch, &Taken::Refused("no".to_owned()))
        };
        assert_eq!(stream.answered(at(0), batch, answers).len(), 1);
    }
    assert_eq!(stream.next(at(0)), Next::Over);
}

#[test]
fn what_is_put_off_comes_before_what_came_after_it() {
    let mut stream = Stream::default();
    stream.push(at(0), reported("a", "", 5));
    let first = batch(&mut stream, at(0));
    stream.push(at(1), reported("a", "", 6));
    stream.push(at(1), reported("b", "", 1));
    let answers = all(&first, &later());
    let told = stream.answered(at(10), first, answers);
    assert_eq!(seqs(&told), [5, 6], "and nothing of the other node");
    assert!(told.iter().all(|(_, verdict)| matches!(verdict, Verdict::Later { .. })));
    assert_eq!(stream.push(at(1000), reported("a", "", 7)), Some(at(4010)));
    let second = batch(&mut stream, at(1010));
    assert_eq!(second, [reported("b", "", 1)]);
    let answers = all(&second, &Taken::Accepted);
    stream.answered(at(1010), second, answers);
    for seq in 5..=7 {
        assert_eq!(stream.push(at(5010), reported("a", "", seq)), None);
    }
    assert_eq!(batch(&mut stream, at(5010)).len(), 3);
}

#[test]
fn one_that_is_owed_and_given_up_by_its_node_holds_up_others_for_a_while_only() {
    let mut stream = Stream::default();
    stream.push(at(0), reported("a", "", 5));
    let first = batch(&mut stream, at(0));
    let answers = all(&first, &later());
    stream.answered(at(0), first, answers);
    assert_eq!(stream.push(at(6_000), reported("a", "", 7)), Some(SOON));
    assert_eq!(stream.next(at(6_000)), Next::Rest(at(10_000)));
    assert_eq!(stream.push(at(10_000), reported("a", "", 7)), None);
    assert_eq!(batch(&mut stream, at(10_000)).len(), 1);
    assert_eq!(stream.next(at(10_000)), Next::Over);
}

#[test]
fn another_start_of_the_node_owes_nothing() {
    let mut stream = Stream::default();
    stream.push(at(0), reported("a", "1", 5));
    let first = batch(&mut stream, at(0));
    let answers = all(&first, &later());
    stream.answered(at(0), first, answers);
    assert_eq!(stream.push(at(1), reported("a", "2", 9)), None);
}

#[test]
fn the_one_that_spoils_a_batch_is_found_and_all_others_are_written() {
    let mut stream = Stream::default();
    for seq in 1..=40 {
        stream.push(at(0), reported("a", "", seq));
    }
    let (mut now, mut accepted, mut refused, mut batches) = (at(0), Vec::new(), Vec::new(), 0);
    loop {
        let batch = match stream.next(now) {
            Next::Over => break,
            Next::Rest(until) => {
                now = until;
                continue;
            }
            Next::Batch(batch) => batch,
        };
        batches += 1;
        let spoilt = batch.iter().any(|reported| reported.report.seq == 17);
        let taken = match batch.len() {
            _ if !spoilt => Taken::Accepted,
            1 => Taken::Refused("that one".to_owned()),
            _ => Taken::Apart("one of them".to_owned()),
        };
        let answers = all(&batch, &taken);
        for (reported, verdict) in stream.answered(now, batch, answers) {
            match verdict {
                Verdict::Done(ReportResult::Accepted {}) => accepted.push(reported.report.seq),
                Verdict::Done(ReportResult::Refused { .. }) => refused.push(reported.report.seq),
                Verdict::Later { .. } => panic!("{reported:?}"),
            }
        }
    }
    assert_eq!(refused, [17]);
    assert_eq!(accepted, (1..=40).filter(|seq| *seq != 17).collect::<Vec<_>>());
    assert!(batches < 20, "{batches}");
}

#[test]
fn an_answer_too_few_is_no_answer() {
    let mut stream = Stream::default();
    stream.push(at(0), reported("a", "", 1));
    let first = batch(&mut stream, at(0));
    let told = stream.answered(at(0), first, Answers::default());
    assert!(matches!(told[..], [(_, Verdict::Later { .. })]));
}

/// A node as `skerry_edge::node` has it: everything in flight that may be, in order; what is put off later again, with
/// what came after it and is not in flight.
#[derive(Default)]
struct Node {
    boot: u64,
    outbox: BTreeSet<u64>,
    in_flight: BTreeSet<u64>,
    retry: Option<(Duration, u64)>,
    read_to: u64,
    done: Vec<u64>,
}

#[derive(Clone, Debug)]
enum Outcome {
    Accepted,
    Later,
    Apart,
    RefusedFirst,
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        4 => Just(Outcome::Accepted),
        1 => Just(Outcome::Later),
        1 => Just(Outcome::Apart),
        1 => Just(Outcome::RefusedFirst),
    ]
}

/// Which node starts again meanwhile, if any.
fn restarts() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(""), 1 => Just("a"), 1 => Just("b")]
}

/// What a simulation keeps.
#[derive(Default)]
struct World {
    now: Duration,
    stream: Stream,
    nodes: BTreeMap<&'static str, Node>,
    writes: Vec<Duration>,
    batch: Option<Vec<Reported>>,
}

impl World {
    fn told(&mut self, told: Vec<(Reported, Verdict)>) {
        for (reported, verdict) in told {
            let node = self.nodes.get_mut(&*reported.node).unwrap();
            let seq = reported.report.seq;
            if reported.boot != node.boot.to_string() {
                // Nobody is there any more who has asked.
                continue;
            }
            assert!(node.in_flight.remove(&seq), "answered once: {reported:?}");
            match verdict {
                Verdict::Done(_) => {
                    assert!(node.outbox.remove(&seq));
                    node.done.push(seq);
                }
                Verdict::Later { retry_after } => {
                    let at = self.now + retry_after;
                    let (sooner, first) = node.retry.unwrap_or((at, seq));
                    node.retry = Some((sooner.min(at), first.min(seq)));
                }
            }
        }
    }

    /// A node starts again: all that its outbox holds is sent anew.
    fn restart(&mut self, name: &str) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.boot += 1;
            node.in_flight.clear();
            node.retry = None;
            node.read_to = 0;
        }
    }

    fn send(&mut self) {
        let mut put_off = Vec::new();
        for (name, node) in &mut self.nodes {
            if let Some((_, seq)) = node.retry.take_if(|(at, _)| self.now >= *at) {
                node.read_to = node.read_to.min(seq - 1);
            }
            for seq in node.outbox.range(node.read_to + 1..).copied().collect::<Vec<_>>() {
                node.read_to = seq;
                if node.in_flight.insert(seq) {
                    let reported = reported(name, &node.boot.to_string(), seq);
                    if let Some(retry_after) = self.stream.push(self.now, reported.clone()) {
                        put_off.push((reported, Verdict::Later { retry_after }));
                    }
                }
            }
        }
        self.told(put_off);
    }

    fn take(&mut self) {
        if self.batch.is_none()
            && let Next::Batch(batch) = self.stream.next(self.now)
        {
            let said: BTreeSet<_> = batch
                .iter()
                .map(|reported| (&reported.node, reported.report.seq))
                .collect();
            assert_eq!(said.len(), batch.len(), "a node has nothing twice in a batch");
            self.batch = Some(batch);
        }
    }

    fn finish(&mut self, outcome: &Outcome) {
        let Some(batch) = self.batch.take() else { return };
        self.writes.push(self.now);
        let mut answers = match outcome {
            Outcome::Accepted | Outcome::RefusedFirst => all(&batch, &Taken::Accepted),
            Outcome::Later => all(&batch, &later()),
            Outcome::Apart => all(&batch, &Taken::Apart("one of them".to_owned())),
        };
        if let (Outcome::RefusedFirst, Some(first)) = (outcome, answers.each.first_mut()) {
            *first = Taken::Refused("no".to_owned());
        }
        let told = self.stream.answered(self.now, batch, answers);
        self.told(told);
    }
}

proptest! {
    #[test]
    fn writes_keep_their_pace_and_every_report_is_answered_once_and_in_order(
        steps in prop::collection::vec((0..3000_u64, 0..20_u64, 0..20_u64, outcome(), restarts()), 1..60),
    ) {
        let mut world = World::default();
        let calm = std::iter::repeat_n((1000, 0, 0, Outcome::Accepted, ""), 60);
        let mut seq = 0;
        for (step, a, b, outcome, restarts) in steps.into_iter().chain(calm) {
            for (name, count) in [("a", a), ("b", b)] {
                let node = world.nodes.entry(name).or_default();
                node.outbox.extend(seq + 1..=seq + count);
                seq += count;
            }
            world.send();
            world.take();
            world.now += at(step);
            world.restart(restarts);
            world.send();
            world.finish(&outcome);
        }
        for (name, node) in &world.nodes {
            prop_assert!(node.outbox.is_empty(), "{} still has {:?}", name, node.outbox);
            prop_assert!(node.done.is_sorted(), "{} was answered in the order {:?}", name, node.done);
        }
        prop_assert!(world.writes.windows(2).all(|pair| pair[1] >= pair[0] + limits::STATUS_PACE));
        world.now += at(20_000);
        prop_assert_eq!(world.stream.next(world.now), Next::Over);
    }
}

#[test]
fn a_node_that_starts_again_and_again_has_kept_what_it_said_last_alone() {
    let mut stream = Stream::default();
    stream.push(at(0), reported("b", "only", 1));
    for start in 0..100 {
        for seq in 1..=64 {
            assert_eq!(stream.push(at(0), reported("a", &start.to_string(), seq)), None);
        }
    }
    let all = batch(&mut stream, at(0));
    assert_eq!(all.len(), 65);
    assert!(all.iter().all(|report| ["only", "99"].contains(&report.boot.as_str())));
}

#[test]
fn what_has_to_go_apart_does_not_come_beside_what_its_node_says_anew() {
    let mut stream = Stream::default();
    for node in ["a", "b"] {
        stream.push(at(0), reported(node, "1", 1));
    }
    let first = batch(&mut stream, at(0));
    stream.push(at(1), reported("a", "2", 1));
    let answers = all(&first, &Taken::Apart("one of them".to_owned()));
    assert_eq!(stream.answered(at(1), first, answers), []);
    let mut left = Vec::new();
    for number in 1..=2 {
        let one = batch(&mut stream, at(2_000 * number));
        left.extend(one.clone());
        let answers = all(&one, &Taken::Accepted);
        stream.answered(at(2_000 * number), one, answers);
    }
    assert_eq!(left, [reported("b", "1", 1), reported("a", "2", 1)]);
}
