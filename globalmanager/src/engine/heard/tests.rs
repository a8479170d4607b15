use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;
use skerry_workloads::{Payload, Report};

use super::*;

fn id(boot: &str, number: u64) -> ReportId {
    let boot = boot.to_owned();
    ReportId { boot, number }
}

/// A report out of the store of `node`, which another start of it sends than made it.
fn waiting(node: &str, boot: &str, number: u64) -> NodeReport {
    NodeReport {
        uid: "u".to_owned(),
        id: Some(id(boot, number)),
        from: Start::Another { figures: false },
        report: Report {
            node: node.to_owned(),
            payload: Payload::Samples(0),
        },
    }
}

fn again(heard: &Heard) -> Heard {
    let mut status = Map::new();
    heard.tell(&mut status);
    Heard::of(&json!({"status": status}))
}

#[test]
fn what_is_heard_is_known_with_all_before_it_of_its_start_and_no_other() {
    let mut heard = Heard::default();
    heard.add("edge-1", &id("a", 7));
    heard.add("edge-1", &id("b", 9));
    let heard = again(&heard);
    for (node, boot, number, known) in [
        ("edge-1", "a", 7, true),
        ("edge-1", "a", 1, true),
        ("edge-1", "a", 8, false),
        ("edge-1", "b", 8, true),
        ("edge-1", "c", 1, false),
        ("edge-2", "a", 1, false),
    ] {
        assert_eq!(heard.has(&waiting(node, boot, number)), known, "{node} {boot} {number}");
    }
}

#[test]
fn of_a_node_that_starts_for_ever_the_last_starts_are_named_and_all_before_them_known_together() {
    let mut heard = Heard::default();
    heard.add("edge-2", &id("s.a", 1));
    let starts = 100_u64;
    for start in 1..=starts {
        heard.add("edge-1", &id(&format!("s.{start}"), 10 * start));
        // This one goes on beside them.
        heard.add("edge-1", &id("s.0", 10 * start + 1));
    }
    let mut heard = again(&heard);
    assert_eq!(heard.0.len(), STARTS + 2);
    let named_from = starts + 2 - STARTS as u64;
    for (node, boot, number, known) in [
        ("edge-2", "s.a", 1, true),
        ("edge-2", "s.b", 1, false),
        ("edge-1", "s.0", 10 * starts + 1, true),
        ("edge-1", "s.100", 1_000, true),
        ("edge-1", "s.100", 1_001, false),
        ("edge-1", "s.1", 10, true),
        // A start that nobody has heard of, from before one that is no longer named, and from after it.
        ("edge-1", "s.unheard", 10 * (named_from - 1), true),
        ("edge-1", "s.unheard", 10 * named_from, false),
        // The numbers of another store are others.
        ("edge-1", "t.unheard", 1, false),
        ("edge-1", "unheard", 1, false),
    ] {
        assert_eq!(heard.has(&waiting(node, boot, number)), known, "{node} {boot} {number}");
    }
    let made_now = NodeReport {
        from: Start::Present,
        ..waiting("edge-1", "s.copy", 2)
    };
    assert!(!heard.has(&made_now), "a copy may count on from less");
    heard.add("edge-1", &id("s.copy", 2));
    let next = |number| heard.has(&waiting("edge-1", "s.copy", number));
    assert_eq!((next(2), next(3)), (true, false), "and is named from then on");
}

#[test]
fn figures_of_another_start_are_worth_nothing_once_anything_newer_was_heard() {
    let mut heard = Heard::default();
    heard.add("edge-1", &id("s.a", 5));
    heard.add("edge-1", &id("s.b", 9));
    heard.add("edge-2", &id("s.a", 20));
    let figures = |boot, number| {
        let from = Start::Another { figures: true };
        let said = waiting("edge-1", boot, number);
        heard.has(&NodeReport { from, ..said })
    };
    assert!(figures("s.a", 7) && figures("s.unheard", 8));
    assert!(!figures("s.a", 10) && !heard.has(&waiting("edge-1", "s.a", 7)));
}

fn entries_of(heard: &Heard, node: &str) -> usize {
    heard.0.iter().filter(|last| last.node == node).count()
}

#[test]
fn whatever_starts_and_stores_a_node_invents_it_has_few_entries() {
    let mut heard = Heard::default();
    for store in 0..100 {
        for start in 0..=STARTS as u64 {
            heard.add("edge-1", &id(&format!("{store}.{start}"), start + 1));
        }
    }
    assert_eq!(entries_of(&heard, "edge-1"), STARTS + STORES);
}

#[test]
fn however_many_nodes_report_an_object_has_room_for_it() {
    let mut heard = Heard::default();
    let longest = "n".repeat(63);
    for node in 0..2 * ALL {
        let boot = "b".repeat(skerry_edge::limits::MAX_NAME);
        heard.add(&format!("{longest}-{node}"), &id(&boot, u64::MAX));
    }
    assert_eq!(heard.0.len(), ALL);
    let mut status = Map::new();
    heard.tell(&mut status);
    assert!(serde_json::to_vec(&status).unwrap().len() < 1024 * 1024);
    assert!(!heard.has(&waiting(&format!("{longest}-0"), "b", 1)));
}

#[test]
fn of_a_thousand_nodes_that_start_again_and_again_all_is_known() {
    let (nodes, starts) = (ALL as u64 / 2, 4);
    let mut heard = Heard::default();
    for start in 1..=starts {
        for node in 0..nodes {
            heard.add(&format!("edge-{node}"), &id(&format!("s.{start}"), start));
        }
    }
    assert!(heard.0.len() <= ALL);
    for node in 0..nodes {
        let known = |start: u64| heard.has(&waiting(&format!("edge-{node}"), &format!("s.{start}"), start));
        assert!((1..=starts).all(known), "edge-{node}");
    }
}

#[test]
fn nonsense_counts_for_nothing() {
    for status in [
        json!(null),
        json!({}),
        json!({REPORTED_UP_TO: 7}),
        json!({REPORTED_UP_TO: [{"node": 1}]}),
    ] {
        assert_eq!(Heard::of(&json!({"status": status})), Heard::default());
    }
    let mut negative = Heard::default();
    negative.0.push(ReportedUpTo {
        node: "n".to_owned(),
        boot: "b".to_owned(),
        number: -1,
    });
    assert!(!again(&negative).has(&waiting("n", "b", 1)));
}

/// A node's store, as far as it numbers reports: by a clock, or by counting.
#[derive(Clone)]
struct Outbox {
    store: u64,
    last: u64,
    waiting: BTreeMap<u64, String>,
}

impl Outbox {
    fn new(store: u64) -> Self {
        Self {
            store,
            last: 0,
            waiting: BTreeMap::new(),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Report,
    /// The first that waits goes; its answer may be lost.
    Send {
        answered: bool,
    },
    Start,
    Copy,
    /// The copy is put back, which takes a start.
    PutBack,
    /// There is a new store, which takes a start.
    Reinstall,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Report),
        6 => any::<bool>().prop_map(|answered| Step::Send { answered }),
        2 => Just(Step::Start),
        1 => Just(Step::Copy),
        1 => Just(Step::PutBack),
    ]
}

/// Whether each report is carried out once, and none taken for another, where no more starts are heard than `starts`.
fn carried_out_once(steps: Vec<Step>, by_clock: bool, starts: usize) -> Result<(), TestCaseError> {
    let (mut heard, mut carried_out) = (Heard::default(), BTreeSet::new());
    let (mut outbox, mut start, mut stores) = (Outbox::new(0), 0, 0);
    let mut copy = outbox.clone();
    for (clock, step) in (1..).zip(steps) {
        let boot = |outbox: &Outbox, start: usize| format!("{}.{start}", outbox.store);
        match step {
            Step::Report => {
                outbox.last = (outbox.last + 1).max(if by_clock { clock } else { 0 });
                outbox.waiting.insert(outbox.last, boot(&outbox, start));
            }
            Step::Send { answered } => {
                let Some((&seq, made_by)) = outbox.waiting.first_key_value() else {
                    continue;
                };
                let before = carried_out.contains(&(made_by.clone(), seq));
                let mut said = waiting("edge-1", made_by, seq);
                if *made_by == boot(&outbox, start) {
                    said.from = Start::Present;
                }
                prop_assert_eq!(heard.has(&said), before, "{} {}", made_by, seq);
                if !before {
                    heard.add("edge-1", &id(made_by, seq));
                    carried_out.insert((made_by.clone(), seq));
                }
                heard = again(&heard);
                if answered {
                    outbox.waiting.remove(&seq);
                }
            }
            Step::Start | Step::PutBack | Step::Reinstall if start >= starts => {}
            Step::Start => start += 1,
            Step::Copy => copy = outbox.clone(),
            Step::PutBack => {
                outbox = copy.clone();
                start += 1;
            }
            Step::Reinstall => {
                stores += 1;
                outbox = Outbox::new(stores);
                start += 1;
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn whatever_store_is_put_back_a_report_is_carried_out_once_and_none_is_taken_for_another(
        steps in prop::collection::vec(prop_oneof![20 => any_step(), 1 => Just(Step::Reinstall)], 1..120),
    ) {
        // Until then each start is named.
        carried_out_once(steps, false, STARTS - 1)?;
    }

    #[test]
    fn by_a_clock_that_goes_forward_it_is_also_after_more_starts_than_are_named(
        steps in prop::collection::vec(any_step(), 1..400),
    ) {
        carried_out_once(steps, true, usize::MAX)?;
    }
}
