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
    let refused = |outputs: &[Output]| {
        matches!(
            sent(outputs)[..],
            [Downstream::ReportResult {
                result: ReportResult::Refused { .. },
                ..
            }]
        )
    };
    assert!(refused(&link.frame(&mut node, report(2, "d", "another"))));
    assert!(refused(&link.frame(&mut node, report(3, "e", "uid-d"))));

    let version = node.objects.version();
    link.frame(&mut node, Upstream::Ack { version });
    node.objects.remove(NOW, &key("d").into());
    link.wake(&mut node);
    assert!(matches!(
        link.frame(&mut node, report(4, "d", "uid-d"))[..],
        [Output::Report(_)]
    ));
    link.frame(&mut node, Upstream::Ack { version: version + 1 });
    assert!(refused(&link.frame(&mut node, report(5, "d", "uid-d"))));
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
    assert!(
        matches!(link.frame(&mut node, report(1, "d", "uid-d"))[..], [Output::Report(_)]),
        "another report"
    );
}
