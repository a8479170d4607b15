//! How far the nodes were heard, as a resource says it of itself.
//!
//! Decides that a report is carried out once, whoever sends it again, and why: a node that has lost the answer, or one
//! whose store of before was put back. What a report changes and that it was heard are one write, so that neither is ever
//! there without the other, however many managers have led in between.
//!
//! A report is known by the start of the local controller that made it and by its number. Of one start, the reports on one
//! resource are carried out in the order of their numbers (the link lets none overtake), so the last of them says it of
//! all before.
//!
//! Starts that are no longer named are known by one number together: a store counts on from start to start. What an old copy
//! makes after it was put back counts on from less, so whatever the present start says is new until it is named itself.

use serde::Deserialize;
use serde_json::{Map, Value};
use skerry_crds::sedna::v1alpha1::ReportedUpTo;
use skerry_edge::ReportId;
use skerry_workloads::REPORTED_UP_TO;

use super::NodeReport;

/// Starts that are named of each node, those that were heard last. A local controller starts anew a few times a month; a copy
/// of its store that is older than so many starts, each of which reported on the same resource, is one of many months ago, or of
/// before it failed again and again.
const STARTS: usize = 16;

/// What the starts that are no longer named are called.
const EARLIER: &str = "*";

/// And of all nodes together, at a hundred bytes each: a job has a trainer on each of a thousand nodes at most, and an object
/// has 1.5 MiB.
const ALL: usize = 2_000;

/// What `status.reportedUpTo` says. Whoever was heard last stands last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Heard(Vec<ReportedUpTo>);

impl Heard {
    /// As this resource says. What nobody could have written there counts for nothing.
    pub(super) fn of(resource: &Value) -> Self {
        let said = resource
            .pointer("/status")
            .and_then(|status| status.get(REPORTED_UP_TO));
        let read = said.and_then(|said| Vec::deserialize(said).ok());
        Self(read.unwrap_or_default())
    }

    /// Whether this was carried out. Of nodes that do not say which report it is, none ever was.
    pub(super) fn has(&self, said: &NodeReport) -> bool {
        let Some(ReportId { boot, number }) = &said.id else {
            return false;
        };
        let up_to = |boot: &str| {
            let last = self.0.iter().find(|last| last.is_of(&said.report.node, boot))?;
            Some(u64::try_from(last.number).unwrap_or_default())
        };
        let named = up_to(boot);
        let last = named.or_else(|| up_to(EARLIER).filter(|_| !said.by_present_start));
        last.is_some_and(|last| *number <= last)
    }

    /// It is carried out now.
    pub(super) fn add(&mut self, node: &str, ReportId { boot, number }: &ReportId) {
        self.0.retain(|last| !last.is_of(node, boot));
        if self.0.iter().filter(|last| names_start_of(last, node)).count() >= STARTS {
            self.forget_start(node);
        }
        if self.0.len() >= ALL {
            self.0.remove(0);
        }
        self.0.push(ReportedUpTo {
            node: node.to_owned(),
            boot: boot.clone(),
            number: i64::try_from(*number).unwrap_or(i64::MAX),
        });
    }

    /// Names the start of the node no longer that was not heard for longest.
    fn forget_start(&mut self, node: &str) {
        let Some(at) = self.0.iter().position(|last| names_start_of(last, node)) else {
            return;
        };
        let forgotten = self.0.remove(at);
        if let Some(earlier) = self.0.iter_mut().find(|last| last.is_of(node, EARLIER)) {
            earlier.number = earlier.number.max(forgotten.number);
        } else {
            let boot = EARLIER.to_owned();
            self.0.insert(at, ReportedUpTo { boot, ..forgotten });
        }
    }

    /// Has a status say it.
    pub(super) fn tell(&self, status: &mut Map<String, Value>) {
        if !self.0.is_empty() {
            status.insert(REPORTED_UP_TO.to_owned(), serde_json::json!(self.0));
        }
    }
}

fn names_start_of(last: &ReportedUpTo, node: &str) -> bool {
    last.node == node && last.boot != EARLIER
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

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
            by_present_start: false,
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
        heard.add("edge-2", &id("a", 1));
        let starts = 100_u64;
        for start in 1..=starts {
            heard.add("edge-1", &id(&start.to_string(), 10 * start));
            // This one goes on beside them.
            heard.add("edge-1", &id("0", 10 * start + 1));
        }
        let heard = again(&heard);
        assert_eq!(heard.0.len(), STARTS + 2);
        let named_from = starts + 2 - STARTS as u64;
        for (node, boot, number, known) in [
            ("edge-2", "a", 1, true),
            ("edge-2", "b", 1, false),
            ("edge-1", "0", 10 * starts + 1, true),
            ("edge-1", "100", 1_000, true),
            ("edge-1", "100", 1_001, false),
            ("edge-1", "1", 10, true),
            // A start that nobody has heard of, from before one that is no longer named, and from after it.
            ("edge-1", "unheard", 10 * (named_from - 1), true),
            ("edge-1", "unheard", 10 * named_from, false),
        ] {
            assert_eq!(heard.has(&waiting(node, boot, number)), known, "{node} {boot} {number}");
        }
        let made_now = NodeReport {
            by_present_start: true,
            ..waiting("edge-1", "the copy's", 2)
        };
        assert!(!heard.has(&made_now), "a copy counts on from less");
        let mut heard = heard;
        heard.add("edge-1", &id("the copy's", 2));
        let next = |number| heard.has(&waiting("edge-1", "the copy's", number));
        assert_eq!((next(2), next(3)), (true, false), "and is named from then on");
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

    /// A node's store, as far as it numbers reports.
    #[derive(Clone, Default)]
    struct Outbox {
        last: u64,
        waiting: BTreeMap<u64, String>,
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
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => Just(Step::Report),
            6 => any::<bool>().prop_map(|answered| Step::Send { answered }),
            1 => Just(Step::Start),
            1 => Just(Step::Copy),
            1 => Just(Step::PutBack),
        ]
    }

    proptest! {
        #[test]
        fn whatever_store_is_put_back_a_report_is_carried_out_once_and_none_is_taken_for_another(
            steps in prop::collection::vec(any_step(), 1..120),
        ) {
            let (mut heard, mut carried_out) = (Heard::default(), BTreeSet::new());
            let (mut outbox, mut copy, mut start) = (Outbox::default(), Outbox::default(), 0);
            for step in steps {
                match step {
                    Step::Report => {
                        outbox.last += 1;
                        outbox.waiting.insert(outbox.last, start.to_string());
                    }
                    Step::Send { answered } => {
                        let Some((&seq, boot)) = outbox.waiting.first_key_value() else { continue };
                        let before = carried_out.contains(&(boot.clone(), seq));
                        let said = NodeReport {
                            by_present_start: *boot == start.to_string(),
                            ..waiting("edge-1", boot, seq)
                        };
                        prop_assert_eq!(heard.has(&said), before);
                        if !before {
                            heard.add("edge-1", &id(boot, seq));
                            carried_out.insert((boot.clone(), seq));
                        }
                        heard = again(&heard);
                        if answered {
                            outbox.waiting.remove(&seq);
                        }
                    }
                    // Until then each is named.
                    Step::Start | Step::PutBack if start >= STARTS => {}
                    Step::Start => start += 1,
                    Step::Copy => copy = outbox.clone(),
                    Step::PutBack => {
                        outbox = copy.clone();
                        start += 1;
                    }
                }
            }
        }
    }
}
