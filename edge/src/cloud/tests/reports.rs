//! Whose reports are taken, and how often.

use super::*;

#[test]
fn a_node_reports_on_what_is_placed_on_it_until_it_has_acknowledged_the_deletion() {
    let mut node = Node::default();
    node.objects.set(NOW, object("d", 1));
    let mut link = Link::live(&mut node);
    assert!(matches!(
        link.frame(&mut node, report(1, "d", "uid-d"))[..],
        [Output::Report(_)]
    ));
    assert_eq!(denied(&link.frame(&mut node, report(2, "d", "another"))), "other_uid");
    assert_eq!(denied(&link.frame(&mut node, report(3, "e", "uid-d"))), "not_placed");

    let version = node.objects.version();
    link.frame(&mut node, Upstream::Ack { version });
    node.objects.remove(NOW, &key("d").into());
    link.wake(&mut node);
    assert!(matches!(
        link.frame(&mut node, report(4, "d", "uid-d"))[..],
        [Output::Report(_)]
    ));
    link.frame(&mut node, Upstream::Ack { version: version + 1 });
    assert_eq!(denied(&link.frame(&mut node, report(5, "d", "uid-d"))), "not_placed");
}

/// The word of the denial, which the node is told, too.
fn denied(outputs: &[Output]) -> &'static str {
    let [
        Output::Denied(denial),
        Output::Send(Downstream::ReportResult {
            result: ReportResult::Refused { reason },
            ..
        }),
    ] = outputs
    else {
        panic!("{outputs:?}")
    };
    assert_eq!(*reason, denial.to_string());
    assert!(reason.len() < 1_000, "{reason}");
    denial.word()
}

#[test]
fn what_a_node_may_not_report_is_refused_and_nothing_else_changes() {
    let mut node = Node::default();
    node.objects.set(NOW, object("d", 1));
    let mut link = Link::live(&mut node);
    let version = node.objects.version();
    link.frame(&mut node, Upstream::Ack { version });
    let about = |kind: &str, namespace: &str, name: &str, uid: &str| {
        let key = ObjectKey::new(kind, namespace, name);
        let report = Report {
            key,
            ..said(report(7, name, uid))
        };
        Upstream::Report {
            settled: 7,
            after: None,
            report,
        }
    };
    let long = "x".repeat(200_000);
    for (frame, word) in [
        (about("dataset", "default", "d", "uid-e"), "other_uid"),
        (about("dataset", "default", "d", ""), "other_uid"),
        (about("dataset", "default", "d", &long), "other_uid"),
        (about("dataset", "default", "e", "uid-d"), "not_placed"),
        (about("dataset", "kube-system", "d", "uid-d"), "not_placed"),
        (about("model", "default", "d", "uid-d"), "not_placed"),
        (about("dataset", "default", "../d", "uid-d"), "no_name"),
        (about("dataset", "../../etc", "d", "uid-d"), "no_name"),
        (about("dataset", "default", "d/status", "uid-d"), "no_name"),
        (about("dataset/d", "default", "d", "uid-d"), "no_name"),
        (about("dataset", "default", "", "uid-d"), "no_name"),
        (
            about("dataset", "default", "d\n[ERROR] all is lost", "uid-d"),
            "no_name",
        ),
        (about("dataset", "default", &long, "uid-d"), "no_name"),
    ] {
        assert_eq!(denied(&link.frame(&mut node, frame)), word);
    }
    let mut unknown = about("dataset", "default", "d", "uid-d");
    if let Upstream::Report { report, .. } = &mut unknown {
        report.payload = ReportPayload::Unknown { variant: long.clone() };
    }
    assert_eq!(denied(&link.frame(&mut node, unknown)), "form");
    for boot in [long, "b\n7".to_owned(), "start\u{e9}".to_owned()] {
        let mut unnamed = about("dataset", "default", "d", "uid-d");
        if let Upstream::Report { report, .. } = &mut unnamed {
            report.id = Some(ReportId { boot, number: 7 });
        }
        assert_eq!(denied(&link.frame(&mut node, unnamed)), "boot");
    }

    // The numbers of those that were refused are not used up, and the session goes on.
    assert!(matches!(
        link.frame(&mut node, report(7, "d", "uid-d"))[..],
        [Output::Report(_)]
    ));
    assert_eq!(node.objects.counts().assigned, 1);
    assert_eq!(names(&link.wake(&mut node)), [""; 0]);
}

#[test]
fn no_report_overtakes_one_of_its_resource_that_was_put_off() {
    let mut node = Node::default();
    node.objects.set(NOW, object("d", 1));
    let mut link = Link::live(&mut node);
    let comes = |seq, after| Upstream::Report {
        settled: 0,
        after,
        report: said(report(seq, "d", "uid-d")),
    };
    let taken = |outputs: &[Output]| match outputs {
        [Output::Report(_)] => true,
        [Output::Send(Downstream::ReportLater { .. })] => false,
        other => panic!("{other:?}"),
    };
    let later = || Verdict::Later {
        retry_after: Duration::from_secs(5),
    };
    assert!(taken(&link.frame(&mut node, comes(4, None))));
    assert!(
        taken(&link.frame(&mut node, comes(5, Some(4)))),
        "that one is worked on"
    );
    node.finish_report("boot", 4, later());
    node.finish_report("boot", 5, later());
    link.wake(&mut node);
    // These were under way already.
    assert!(!taken(&link.frame(&mut node, comes(6, Some(5)))));
    assert!(!taken(&link.frame(&mut node, comes(7, Some(6)))));
    assert!(taken(&link.frame(&mut node, comes(4, None))), "it comes again");
    node.finish_report("boot", 4, Verdict::Done(ReportResult::Accepted {}));
    link.wake(&mut node);
    assert!(taken(&link.frame(&mut node, comes(5, Some(4)))), "that one is done");
    assert!(!taken(&link.frame(&mut node, comes(7, Some(6)))));
    assert!(taken(&link.frame(&mut node, comes(7, None))), "the node has given up 6");
}

#[test]
fn a_report_that_comes_again_is_answered_again_and_carried_out_once() {
    let mut node = Node::default();
    node.objects.set(NOW, object("d", 1));
    let mut link = Link::live(&mut node);
    assert_eq!(link.frame(&mut node, report(1, "d", "uid-d")).len(), 1);
    node.finish_report("boot", 1, Verdict::Done(ReportResult::Accepted {}));
    assert_eq!(names(&link.wake(&mut node)), ["report-result"]);
    let mut link = Link::live(&mut node);
    assert_eq!(
        names(&link.frame(&mut node, report(1, "d", "uid-d"))),
        ["report-result"]
    );
    assert_eq!(
        link.frame(&mut node, Upstream::Gap { seq: 2, count: 7 }).first(),
        Some(&Output::Gap { count: 7 })
    );
    assert_eq!(
        names(&link.frame(&mut node, Upstream::Gap { seq: 2, count: 7 })),
        ["report-result"]
    );
}

#[test]
fn a_report_that_was_taken_is_not_judged_again_when_its_object_has_gone() {
    let mut node = Node::default();
    node.objects.set(NOW, object("d", 1));
    let mut link = Link::live(&mut node);
    let comes = |seq| Upstream::Report {
        settled: 1,
        after: None,
        report: said(report(seq, "d", "uid-d")),
    };
    for seq in [1, 2] {
        let outputs = link.frame(&mut node, comes(seq));
        assert!(matches!(outputs[..], [Output::Report(_)]), "{outputs:?}");
    }
    let accepted = ReportResult::Accepted {};
    node.finish_report("boot", 1, Verdict::Done(accepted.clone()));
    node.objects.remove(NOW, &key("d").into());
    link.wake(&mut node);
    let version = node.objects.version();
    link.frame(&mut node, Upstream::Ack { version });
    assert_eq!(node.objects.counts(), Counts::default());

    let answered = Output::Send(Downstream::ReportResult {
        seq: 1,
        result: accepted,
    });
    let judged = |link: &mut Link, node: &mut Node| {
        assert_eq!(link.frame(node, comes(1)), std::slice::from_ref(&answered));
        assert_eq!(link.frame(node, comes(2)), [], "it is under way");
        assert_eq!(denied(&link.frame(node, comes(3))), "not_placed");
    };
    judged(&mut link, &mut node);
    let mut link = Link::live(&mut node);
    judged(&mut link, &mut node);
}

#[test]
fn an_answer_to_another_start_of_the_node_is_not_given_to_this_one() {
    let mut node = Node::default();
    node.objects.set(NOW, object("d", 1));
    let mut link = Link::live(&mut node);
    link.frame(&mut node, report(1, "d", "uid-d"));
    link.frame(&mut node, report(2, "d", "uid-d"));
    node.finish_report("boot", 1, Verdict::Done(ReportResult::Accepted {}));
    let mut link = Link::start(
        &mut node,
        1,
        &peer(),
        Hello {
            boot: "another".to_owned(),
            ..hello(None)
        },
    );
    node.finish_report("boot", 2, Verdict::Done(ReportResult::Accepted {}));
    assert!(!names(&link.answer(&mut node, &[])).contains(&"report-result"));
    let another = Report {
        observed_at: Timestamp::MAX,
        ..said(report(1, "d", "uid-d"))
    };
    let another = Upstream::Report {
        settled: 1,
        after: None,
        report: another,
    };
    assert!(matches!(link.frame(&mut node, another)[..], [Output::Report(_)]));
}
