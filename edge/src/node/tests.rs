//! The node's end in single steps, against a manager that speaks by hand.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use serde_json::json;

use super::*;
use crate::{
    ContentHash, Downstream, Epoch, Object, ObjectKey, Position, ReportResult, Row, Upstream,
    digest::{chunk_hashes, chunk_of},
    limits,
    message::{OutboxDepth, Received, RefusedReason, Start},
};

const NOW: Duration = Duration::from_secs(100);

fn epoch(lease: &str, transitions: u64) -> Epoch {
    Epoch {
        lease: lease.to_owned(),
        transitions,
        made: None,
    }
}

fn position(version: u64) -> Position {
    Position {
        version,
        ..Position::start("ours", epoch("a", 3))
    }
}

fn welcome(cluster: &str, epoch: Epoch, start: Start) -> Downstream {
    Downstream::Welcome {
        cluster: cluster.to_owned(),
        epoch,
        start,
        reports_per_second: None,
    }
}

fn resume() -> Downstream {
    welcome("ours", epoch("a", 3), Start::Resume {})
}

fn digest(epoch: Epoch) -> Downstream {
    let chunks = chunk_hashes(&[], 1);
    welcome("ours", epoch, Start::Digest { chunks })
}

fn digest_of(chunks: usize) -> Downstream {
    let chunks = chunk_hashes(&[], chunks);
    welcome("ours", epoch("a", 3), Start::Digest { chunks })
}

fn put(version: u64) -> Downstream {
    let key = ObjectKey::new("dataset", "default", "d");
    Downstream::Put {
        version,
        object: Object {
            key,
            uid: "u".to_owned(),
            generation: 1,
            body: json!({}).into(),
        },
    }
}

struct Link {
    session: Session,
    now: Duration,
}

impl Link {
    /// A session that has said hello.
    fn greeting(position: Option<Position>) -> Self {
        let identity = Identity {
            node: "edge-1".to_owned(),
            boot: "b".to_owned(),
            agent: "0.1.0".to_owned(),
        };
        let mut link = Self {
            session: Session::new(identity, position, 0),
            now: NOW,
        };
        link.dial();
        link
    }

    fn dial(&mut self) {
        assert_eq!(self.input(Input::Tick), [Output::Dial]);
        let outputs = self.input(Input::Connected);
        assert!(matches!(outputs[..], [Output::Send(Upstream::Hello(_))]), "{outputs:?}");
    }

    fn live() -> Self {
        let mut link = Self::greeting(Some(position(5)));
        assert_eq!(
            link.frame(resume()),
            [Output::Fetch(Wanted {
                of: None,
                after: 0,
                limit: limits::REPORT_WINDOW
            })]
        );
        assert_eq!(link.session.state(), State::Live);
        link
    }

    fn input(&mut self, input: Input) -> Vec<Output> {
        self.session.handle(self.now, input)
    }

    fn frame(&mut self, frame: Downstream) -> Vec<Output> {
        self.input(Input::Frame(Ok(Received::Message(frame))))
    }

    fn cut(&mut self, jitter: f64) -> Duration {
        self.input(Input::Disconnected {
            jitter,
            cause: "cut".to_owned(),
        });
        let State::Waiting { until, .. } = self.session.state() else {
            panic!("{:?}", self.session.state())
        };
        until.saturating_sub(self.now)
    }
}

/// The version and the number of changes of the batch that is to be stored.
fn stores(outputs: &[Output]) -> Vec<(u64, usize)> {
    let batch = |output: &Output| match output {
        Output::Store(Batch { changes, position }) => Some((position.version, changes.len())),
        _ => None,
    };
    outputs.iter().filter_map(batch).collect()
}

fn refused(outputs: &[Output]) -> Option<(RefusedReason, &str)> {
    match outputs {
        [Output::Send(Upstream::Refused { reason, hint }), Output::Close] => Some((*reason, hint)),
        _ => None,
    }
}

#[test]
fn which_managers_a_node_listens_to() {
    let at = |lease, transitions| digest(epoch(lease, transitions));
    for (frame, verdict) in [
        (resume(), None),
        (at("a", 3), None),
        (at("a", 4), None),
        (at("b", 0), None),
        (at("a", 2), Some((RefusedReason::Deposed, "this manager is deposed"))),
        (
            welcome("theirs", epoch("a", 3), Start::Resume {}),
            Some((RefusedReason::OtherCluster, "this node belongs to cluster ours")),
        ),
        (
            welcome("ours", epoch("a", 4), Start::Resume {}),
            Some((RefusedReason::Violation, "a new epoch has to start with a digest")),
        ),
        (
            welcome("ours", epoch("a", 3), Start::Digest { chunks: vec![] }),
            Some((RefusedReason::Violation, "a digest of 0 chunks")),
        ),
        (digest_of(limits::MAX_CHUNKS), None),
        (
            digest_of(2 * limits::MAX_CHUNKS),
            Some((RefusedReason::Violation, "a digest of 8192 chunks")),
        ),
    ] {
        let mut link = Link::greeting(Some(position(5)));
        let outputs = link.frame(frame.clone());
        match (verdict, refused(&outputs)) {
            (None, None) => {}
            (Some((reason, why)), Some((found, hint))) if reason == found && hint.contains(why) => {
                let wait = link.cut(0.0);
                let slowly = reason != RefusedReason::Violation;
                assert_eq!(
                    wait,
                    if slowly {
                        limits::RECONNECT.1 / 2
                    } else {
                        Duration::ZERO
                    }
                );
            }
            (verdict, found) => panic!("{frame:?}: {found:?} instead of {verdict:?}"),
        }
    }
}

#[test]
fn a_lease_that_was_superseded_is_refused_while_its_manager_may_hang_and_taken_after_that() {
    let mut link = Link::greeting(Some(position(5)));
    let follow = |link: &mut Link, lease| {
        assert_eq!(link.frame(digest(epoch(lease, 0))), [Output::ReadRows]);
        link.input(Input::Rows(vec![]));
        assert_eq!(stores(&link.frame(Downstream::Synced { version: 1 })), [(1, 0)]);
        link.input(Input::Stored { holds: 0 });
    };
    follow(&mut link, "b");
    let wait = link.cut(0.5);
    link.now += wait;
    link.dial();
    let outputs = link.frame(digest(epoch("a", 9)));
    assert_eq!(
        refused(&outputs).map(|(reason, _)| reason),
        Some(RefusedReason::Deposed)
    );
    link.cut(0.0);
    link.now = NOW + limits::RETIRED + limits::RECONNECT.1;
    link.dial();
    follow(&mut link, "a");
}

#[test]
fn a_manager_of_an_older_lease_is_refused_by_a_node_that_never_met_it_and_taken_where_it_stays() {
    let made = |epoch: Epoch, second| Epoch {
        made: jiff::Timestamp::from_second(second).ok(),
        ..epoch
    };
    let older = || digest(made(epoch("b", 9), 100));
    let deposed = |outputs: &[Output]| refused(outputs).map(|(reason, _)| reason) == Some(RefusedReason::Deposed);
    // The store does not know yet how old its Lease is: the node of before it did not remember.
    let mut link = Link::greeting(Some(position(5)));
    link.frame(welcome("ours", made(epoch("a", 3), 200), Start::Resume {}));
    assert_eq!(stores(&link.frame(put(7))), [(7, 1)]);
    link.input(Input::Stored { holds: 1 });
    let wait = link.cut(0.0);
    link.now += wait;
    link.dial();
    assert!(deposed(&link.frame(older())));
    let wait = link.cut(0.0);
    link.now += wait;
    link.dial();
    assert!(deposed(&link.frame(older())), "it hangs yet");
    link.cut(0.0);
    link.now += limits::RETIRED;
    link.dial();
    assert_eq!(link.frame(older()), [Output::ReadRows], "somebody has put it back");
}

#[test]
fn changes_are_stored_in_order_and_acknowledged_when_durable() {
    let mut link = Link::live();
    assert_eq!(stores(&link.frame(put(7))), [(7, 1)]);
    assert_eq!(stores(&link.frame(put(8))), [], "one batch at a time");
    assert_eq!(stores(&link.frame(put(11))), []);
    let outputs = link.input(Input::Stored { holds: 1 });
    assert_eq!(outputs.first(), Some(&Output::Send(Upstream::Ack { version: 7 })));
    assert_eq!(stores(&outputs), [(11, 2)], "what came meanwhile shares one sync");
    assert_eq!(link.session.position().map(|position| position.version), Some(7));
    assert_eq!(
        link.input(Input::Stored { holds: 1 }),
        [Output::Send(Upstream::Ack { version: 11 })]
    );
}

#[test]
fn a_node_dials_again_only_when_its_store_is_at_rest() {
    let mut link = Link::live();
    link.frame(put(7));
    link.frame(put(8));
    link.cut(0.0);
    assert_eq!(link.session.wake_at(), None);
    assert_eq!(link.input(Input::Tick), []);
    assert_eq!(
        link.input(Input::Stored { holds: 1 }),
        [],
        "nobody is there to acknowledge it to"
    );
    assert_eq!(link.input(Input::Tick), [Output::Dial]);
    let outputs = link.input(Input::Connected);
    let [Output::Send(Upstream::Hello(hello))] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    assert_eq!(
        (hello.stored.as_ref().map(|position| position.version), hello.holds),
        (Some(7), 1)
    );
}

#[test]
fn a_store_that_fails_ends_the_session_and_loses_nothing() {
    let mut link = Link::live();
    link.frame(put(7));
    let failed = Input::StoreFailed {
        asked: Asked::Store,
        cause: "disk full".to_owned(),
    };
    assert_eq!(link.input(failed), [Output::Close]);
    link.cut(0.0);
    assert_eq!(
        link.session.position(),
        Some(&position(5)),
        "the manager sends it again"
    );
    let State::Waiting { cause, .. } = link.session.state() else {
        panic!("it waits")
    };
    assert_eq!(cause.as_deref(), Some("the store failed: disk full"));
}

#[test]
fn what_is_out_of_place_ends_the_session() {
    type Start = fn() -> Link;
    let greeting: Start = || Link::greeting(Some(position(5)));
    let digesting: Start = || {
        let mut link = greeting_with_digest();
        link.input(Input::Heard);
        link
    };
    let live: Start = Link::live;
    for (start, frame, why) in [
        (greeting, put(6), "a put frame is out of place"),
        (
            greeting,
            Downstream::Synced { version: 1 },
            "a synced frame is out of place",
        ),
        (digesting, put(6), "a put frame is out of place"),
        (
            digesting,
            Downstream::Synced { version: 1 },
            "a synced frame is out of place",
        ),
        (live, resume(), "a welcome frame is out of place"),
        (live, put(5), "versions have to rise"),
    ] {
        let mut link = start();
        let outputs = link.frame(frame);
        let (reason, hint) = refused(&outputs).unwrap_or_else(|| panic!("{why}: {outputs:?}"));
        assert_eq!(reason, RefusedReason::Violation);
        assert!(hint.contains(why), "{hint}");
        assert_eq!(link.frame(put(9)), [], "nothing is heard of it any more");
    }
}

fn greeting_with_digest() -> Link {
    let mut link = Link::greeting(Some(position(5)));
    assert_eq!(link.frame(digest(epoch("a", 3))), [Output::ReadRows]);
    link
}

#[test]
fn a_frame_of_a_newer_manager_is_counted() {
    let mut link = Link::live();
    assert_eq!(
        link.input(Input::Frame(Ok(Received::Unknown("teleport".to_owned())))),
        []
    );
    assert_eq!(link.session.unknown_frames(), 1);
}

#[test]
fn what_a_manager_asks_for_is_heeded() {
    let mut link = Link::live();
    assert_eq!(
        link.frame(Downstream::Restarting {
            reconnect_after_ms: 4_321
        }),
        [Output::Close]
    );
    assert_eq!(link.cut(0.9), Duration::from_millis(4_321));
    let mut link = Link::live();
    assert_eq!(link.frame(Downstream::Replaced {}), [Output::Close]);
    assert!(
        link.cut(0.0) >= limits::RECONNECT.1 / 2,
        "two of one name do not chase each other"
    );
}

#[test]
fn of_what_a_manager_says_as_much_is_told_as_fits_a_line() {
    let mut link = Link::live();
    link.frame(Downstream::Refused {
        reason: RefusedReason::Node,
        hint: "ä".repeat(100_000),
    });
    link.cut(0.0);
    let State::Waiting { cause, .. } = link.session.state() else {
        panic!("it waits")
    };
    let said = format!("the manager refused: {}", "ä".repeat(limits::HINT));
    assert_eq!(cause, Some(said));
}

#[test]
fn a_manager_that_says_nothing_is_given_up() {
    let mut link = Link::greeting(None);
    assert_eq!(link.session.wake_at(), Some(NOW + limits::FIRST_MESSAGE));
    link.now += limits::FIRST_MESSAGE;
    assert_eq!(link.input(Input::Tick), [Output::Close]);

    let mut link = Link::live();
    link.now += limits::PING_AFTER;
    assert_eq!(link.session.wake_at(), Some(link.now));
    assert_eq!(link.input(Input::Tick), [Output::Ping]);
    link.input(Input::Heard);
    link.now += limits::IDLE;
    assert_eq!(link.input(Input::Tick), [Output::Close]);
}

#[test]
fn nothing_is_read_while_the_store_is_behind_and_the_manager_is_not_taken_for_silent() {
    let mut link = Link::live();
    for version in 7.. {
        if link.session.is_behind() {
            break;
        }
        link.frame(put(version));
    }
    link.now += limits::IDLE;
    assert!(!link.input(Input::Tick).contains(&Output::Close));
    assert!(link.session.wake_at().is_some_and(|at| at > link.now));
    link.input(Input::Stored { holds: 1 });
    assert!(!link.session.is_behind());
    link.now += limits::IDLE;
    assert_eq!(
        link.input(Input::Tick),
        [Output::Close],
        "nobody has said anything since"
    );
}

#[test]
fn how_much_waits_in_the_outbox_is_told_now_and_then_where_it_has_changed() {
    let mut link = Link::live();
    let weighed = |link: &mut Link, messages| {
        link.now += limits::OUTBOX_EVERY;
        link.input(Input::Heard);
        assert_eq!(link.input(Input::Tick), [Output::Weigh]);
        let depth = OutboxDepth {
            messages,
            bytes: 10 * messages,
        };
        let told = link.input(Input::Weighed(Some(depth)));
        assert!(
            told.is_empty() || told == [Output::Send(Upstream::Outbox(depth))],
            "{told:?}"
        );
        !told.is_empty()
    };
    assert!(weighed(&mut link, 0), "that nothing waits is told once");
    assert_eq!(
        [7, 7, 0, 0].map(|depth| weighed(&mut link, depth)),
        [true, false, true, false]
    );
    assert_eq!(link.input(Input::Weighed(None)), [], "a store that cannot say");
}

#[test]
fn an_answer_settles_a_report_once() {
    let mut link = Link::live();
    let gap = Outgoing::Gap { seq: 4, count: 2 };
    let outputs = link.input(Input::Fetched(vec![gap]));
    assert_eq!(outputs.first(), Some(&Output::Send(Upstream::Gap { seq: 4, count: 2 })));
    let result = ReportResult::Accepted {};
    let answer = || Downstream::ReportResult {
        seq: 4,
        result: ReportResult::Accepted {},
    };
    assert_eq!(link.frame(answer()), [Output::Settle { seq: 4, result }]);
    assert_eq!(link.frame(answer()), []);
}

#[test]
fn a_report_that_was_put_off_goes_again_in_its_time_whatever_the_manager_asks_for() {
    let (least, most) = limits::REPORT_RETRY;
    for (asked, waits) in [
        (0, least),
        (99, least),
        (1_234, Duration::from_millis(1_234)),
        (60_001, most),
        (u64::MAX, most),
    ] {
        let mut link = Link::live();
        link.input(Input::Fetched(vec![Outgoing::Gap { seq: 4, count: 2 }]));
        link.input(Input::Fetched(vec![]));
        link.frame(Downstream::ReportLater {
            seq: 4,
            retry_after_ms: asked,
        });
        let again = |outputs: &[Output]| {
            let fetched = |output: &Output| {
                matches!(
                    output,
                    Output::Fetch(Wanted {
                        of: Some(_),
                        after: 3,
                        ..
                    })
                )
            };
            outputs.iter().any(fetched)
        };
        let mut outputs = link.input(Input::Tick);
        while !again(&outputs) {
            assert!(link.now <= NOW + most, "{asked} ms: it is not sent again");
            link.now = link.session.wake_at().unwrap();
            // The manager goes on to be heard, so the session does, too.
            outputs = link.input(Input::Heard);
            outputs.extend(link.input(Input::Tick));
        }
        assert_eq!(link.now, NOW + waits, "{asked} ms");
    }
}

/// How many of so many reports that a node owes it has sent after each second, whatever is answered at once.
fn told(owed: u64, reports_per_second: Option<u32>) -> Vec<usize> {
    let mut link = Link::greeting(Some(position(5)));
    let welcome = json!({"welcome": {
        "cluster": "ours", "epoch": {"lease": "a", "transitions": 3}, "start": {"resume": {}},
        "reports_per_second": reports_per_second,
    }});
    let mut outputs = VecDeque::from(link.input(wire(&welcome)));
    let mut sent = BTreeSet::new();
    let mut each_second = Vec::new();
    for second in 1..=4 {
        let until = NOW + Duration::from_secs(second);
        loop {
            match outputs.pop_front() {
                Some(Output::Fetch(wanted)) => {
                    let gaps = (1..=owed).filter(|seq| !sent.contains(seq));
                    let found = wanted.pick(gaps.map(|seq| Outgoing::Gap { seq, count: 1 }));
                    outputs.extend(link.input(Input::Fetched(found)));
                }
                Some(Output::Send(Upstream::Gap { seq, .. })) => {
                    assert!(sent.insert(seq), "{seq} goes twice");
                    let result = ReportResult::Accepted {};
                    outputs.extend(link.frame(Downstream::ReportResult { seq, result }));
                }
                Some(_) => {}
                None => match link.session.wake_at().filter(|at| *at <= until) {
                    Some(at) => {
                        link.now = at;
                        outputs.extend(link.input(Input::Tick));
                    }
                    None => break,
                },
            }
        }
        each_second.push(sent.len());
    }
    each_second
}

#[test]
fn what_a_node_owes_it_tells_at_the_rate_that_the_manager_sets() {
    let window = limits::REPORT_WINDOW;
    let told_at_200 = told(1_000, Some(200));
    for (told, second) in told_at_200.iter().zip(1..) {
        let most = window + 200 * second;
        assert!((most - 20..=most).contains(told), "{told_at_200:?}");
    }
    assert_eq!(told(60, Some(1)), [60; 4], "one that owes little tells it at once");
    assert_eq!(told(1_000, None), [1_000; 4], "an older manager sets none");
    assert_eq!(told(1_000, Some(200 * 1_000)).last(), Some(&1_000), "all is told");
}

#[test]
fn the_answer_to_a_digest_is_cut_to_frames_that_the_manager_takes() {
    let row = |i: usize| Row {
        key: ObjectKey::new("dataset", "n".repeat(60), format!("{i}-{}", "d".repeat(200))).into(),
        uid: "5d1c64a4-5a3c-4c8e-9d0e-2f1f3a1b6c7d".to_owned(),
        generation: i64::MAX,
        hash: ContentHash::of(b""),
    };
    let rows: Vec<_> = (0..3_000).map(row).collect();
    let mut same = chunk_hashes(&rows, 16);
    let empty = chunk_hashes(&[], 16);
    let answer = crate::digest::answer(&empty, &rows);
    assert!(answer.len() > 5);
    let mut found = Vec::new();
    for (at, frame) in answer.iter().enumerate() {
        let Upstream::Rows { chunks, rows, more } = frame else {
            panic!("{frame:?}")
        };
        assert_eq!(
            (chunks.len(), *more),
            (if at == 0 { 16 } else { 0 }, at + 1 < answer.len())
        );
        assert!(frame.encode().unwrap().len() <= limits::MAX_UPSTREAM);
        found.extend(rows.clone());
    }
    assert_eq!(found, rows);

    let nothing = vec![Upstream::Rows {
        chunks: vec![],
        rows: vec![],
        more: false,
    }];
    assert_eq!(crate::digest::answer(&same, &rows), nothing);
    same[3] = empty[3];
    let answer = crate::digest::answer(&same, &rows);
    let [
        Upstream::Rows {
            chunks,
            rows: found,
            more: false,
        },
    ] = &answer[..]
    else {
        panic!("{answer:?}")
    };
    assert_eq!(chunks, &[3]);
    assert!(found.iter().all(|row| chunk_of(&row.key, 16) == 3) && !found.is_empty());
}

#[test]
fn a_node_that_has_another_identity_dials_at_once_and_ends_no_session_for_it() {
    // It waits, since it was refused.
    let mut link = Link::greeting(None);
    let refusal = Downstream::Refused {
        reason: RefusedReason::Node,
        hint: "turned away".to_owned(),
    };
    link.frame(refusal.clone());
    assert!(link.cut(0.0) >= Duration::from_secs(15));
    assert_eq!(link.input(Input::Tick), [], "not yet");
    link.input(Input::IdentityChanged);
    assert_eq!(link.session.wake_at(), Some(NOW));
    link.dial();
    // It is about to be refused.
    link.input(Input::IdentityChanged);
    link.frame(refusal);
    assert_eq!(link.cut(0.9), Duration::ZERO);
    link.dial();
    assert!(link.cut(0.9) > Duration::ZERO, "once");

    let mut link = Link::live();
    assert_eq!(link.input(Input::IdentityChanged), []);
    assert_eq!(link.session.state(), State::Live);
}

/// A frame as it comes over the wire.
fn wire(frame: &serde_json::Value) -> Input {
    Input::Frame(Downstream::decode(&frame.to_string()))
}

#[test]
fn a_manager_one_version_ahead_is_understood_as_far_as_it_is_known() {
    let mut link = Link::greeting(Some(position(5)));
    let welcome = json!({"welcome": {
        "cluster": "ours", "epoch": {"lease": "a", "transitions": 3, "since": "2026"}, "start": {"resume": {"from": 5}},
        "protocol": limits::PROTOCOL + 1, "pace": {"each": 7},
    }});
    let outputs = link.input(wire(&welcome));
    assert!(matches!(outputs[..], [Output::Fetch { .. }]), "{outputs:?}");
    for unknown in [json!({"placement": {"zone": "north"}}), json!({"hint": null})] {
        assert_eq!(link.input(wire(&unknown)), [], "{unknown}");
    }
    let object = json!({
        "key": {"kind": "dataset", "namespace": "default", "name": "d"}, "uid": "u", "generation": 1, "body": {"new": 1},
        "priority": 3,
    });
    let put = json!({"put": {"version": 6, "object": object, "until": null}});
    assert_eq!(stores(&link.input(wire(&put))), [(6, 1)]);
    assert_eq!(link.session.state(), State::Live);
    assert_eq!(link.session.unknown_frames(), 2);
    let refused = json!({"refused": {"reason": "another-reason", "hint": "go away"}});
    link.input(wire(&refused));
    assert_ne!(link.session.state(), State::Live, "whatever the reason");
}
