//! Figures of a store that was put back: which are worth something.

use super::*;

/// A session of this start of a local controller, past its digest.
fn begin(node: &mut Node, boot: &str, has_store: bool) -> Link {
    let before = Epoch {
        transitions: server().epoch.transitions - 1,
        ..server().epoch
    };
    let hello = Hello {
        boot: boot.to_owned(),
        ..hello(has_store.then(|| Position::start("ours", before)))
    };
    let mut link = Link::start(node, 0, &peer(), hello);
    link.answer(node, &[]);
    link
}

/// What is said of a Dataset.
fn count(dataset: &str, seq: u64, second: i64) -> Report {
    Report {
        observed_at: Timestamp::from_second(second).unwrap(),
        ..said(report(seq, dataset, &format!("uid-{dataset}")))
    }
}

/// The node reports this, which comes to `verdict` if it is carried out; whether it is.
fn tell(link: &mut Link, node: &mut Node, report: Report, verdict: Verdict) -> bool {
    let told = link.frame(node, Upstream::Report { settled: 0, report });
    match &told[..] {
        [Output::Report(report)] => {
            node.finish_report(link.session.boot(), report, verdict);
            link.wake(node);
            true
        }
        [Output::Send(Downstream::ReportResult { result, .. })] => {
            assert_eq!(*result, ReportResult::Accepted {});
            false
        }
        other => panic!("{other:?}"),
    }
}

fn carried_out(link: &mut Link, node: &mut Node, report: Report) -> bool {
    tell(link, node, report, Verdict::Done(ReportResult::Accepted {}))
}

#[test]
fn of_a_store_that_was_put_back_figures_do_not_replace_newer_ones() {
    let mut node = Node::default();
    set(&mut node, &[object("d", 1), object("e", 1), object("f", 1)]);
    let mut link = begin(&mut node, "a", true);
    for report in [count("d", 1, 100), count("e", 2, 101), count("d", 3, 102)] {
        assert!(carried_out(&mut link, &mut node, report));
    }
    let mut link = begin(&mut node, "b", true);
    assert!(!carried_out(&mut link, &mut node, count("d", 1, 100)));
    let event = Report {
        payload: ReportPayload::Event {
            message: json!({}).into(),
        },
        ..count("d", 1, 100)
    };
    assert!(carried_out(&mut link, &mut node, event), "events are never left out");
    for (new, why) in [
        (count("d", 2, 103), "the store goes on from where it was"),
        (count("d", 4, 7), "the clock was put right"),
        (count("f", 3, 100), "of this one nothing was said"),
    ] {
        assert!(carried_out(&mut link, &mut node, new), "{why}");
    }
    let mut link = begin(&mut node, "a", true);
    assert!(
        carried_out(&mut link, &mut node, count("d", 3, 102)),
        "newer by the clock than what is there"
    );
}

#[test]
fn figures_that_were_refused_or_put_off_stand_in_the_way_of_none() {
    let later = Verdict::Later {
        retry_after: Duration::from_secs(1),
    };
    let refused = Verdict::Done(ReportResult::Refused {
        reason: "no".to_owned(),
    });
    for verdict in [later, refused] {
        let mut node = Node::default();
        set(&mut node, &[object("d", 1)]);
        let mut link = begin(&mut node, "a", true);
        tell(&mut link, &mut node, count("d", 9, 100), verdict);
        let mut link = begin(&mut node, "b", true);
        assert!(carried_out(&mut link, &mut node, count("d", 8, 99)));
    }
}

#[test]
fn a_node_that_was_installed_anew_is_heard_whatever_its_clock_says() {
    let mut node = Node::default();
    set(&mut node, &[object("d", 1)]);
    let mut link = begin(&mut node, "a", true);
    carried_out(&mut link, &mut node, count("d", 9, 100));
    let mut link = begin(&mut node, "b", false);
    assert!(carried_out(&mut link, &mut node, count("d", 1, 0)));
}

#[test]
fn however_many_resources_are_placed_the_newest_figures_of_each_are_known() {
    const PLACED: u64 = 10_000;
    let mut node = Node::default();
    fill(&mut node, 10_000);
    let mut link = begin(&mut node, "a", true);
    let all = || (1..=PLACED).map(|seq| count(&format!("d{}", seq - 1), seq, 100));
    for report in all() {
        assert!(carried_out(&mut link, &mut node, report));
    }
    let mut link = begin(&mut node, "b", true);
    let replaced = all().filter(|report| carried_out(&mut link, &mut node, report.clone()));
    assert_eq!(replaced.count(), 0);
}

#[test]
fn of_what_is_no_longer_placed_nothing_is_remembered() {
    let mut node = Node::default();
    set(&mut node, &[object("d", 1), object("e", 1)]);
    let mut link = begin(&mut node, "a", true);
    for report in [count("d", 8, 100), count("e", 9, 100)] {
        assert!(carried_out(&mut link, &mut node, report));
    }
    node.objects.remove(NOW, &key("d").into());
    link.wake(&mut node);
    let version = node.objects.version();
    link.frame(&mut node, Upstream::Ack { version });

    let another = Item::Object(Object {
        key: key("e"),
        uid: "another".to_owned(),
        generation: 1,
        body: json!({}).into(),
    });
    set(&mut node, &[object("d", 1), another]);
    let mut link = begin(&mut node, "b", true);
    let of_another = Report {
        uid: "another".to_owned(),
        ..count("e", 2, 8)
    };
    for report in [count("d", 1, 7), of_another] {
        assert!(carried_out(&mut link, &mut node, report));
    }
}

#[test]
fn figures_take_tens_of_bytes() {
    assert!(size_of::<super::super::figures::Figures>() <= 48);
}
