//! The same again, in another order, too much at once, or about what another holds.

use rstest::rstest;
use serde_json::json;
use skerry_edge::limits;
use tokio::{io::AsyncWriteExt as _, task::yield_now};

use super::{
    net::{Line, STUCK, World, uid},
    wire::{Wire, hello, hello_of_start, report},
};

/// A session of `edge-1`, which holds `d`.
async fn holder(world: &World) -> Wire<Line> {
    world.place("edge-1", "d", 1);
    let mut wire = world.live("edge-1").await;
    let put = wire.frame().await;
    wire.text(&json!({"ack": {"version": put["put"]["version"]}}).to_string())
        .await
        .unwrap();
    wire
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn a_report_that_is_replayed_is_carried_out_once(#[case] world: fn() -> World) {
    let world = world();
    let mut wire = holder(&world).await;
    for _ in 0..1_000 {
        wire.text(&report(1, "d", &uid("d"))).await.unwrap();
        assert_eq!(wire.answer().await, (1, None));
    }
    // Over another session of the same start, too.
    drop(wire);
    world.sessions(0).await;
    let mut wire = holder(&world).await;
    wire.text(&report(1, "d", &uid("d"))).await.unwrap();
    assert_eq!(wire.answer().await, (1, None));
    assert_eq!(world.engine.taken.lock().len(), 1);
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn frames_that_are_replayed_out_of_place_end_the_session(#[case] world: fn() -> World) {
    let world = world();
    for (frame, why) in [
        (hello("edge-1"), "a hello frame is out of place here"),
        (hello("edge-2"), "a hello frame is out of place here"),
        (
            json!({"rows": {"chunks": [], "rows": [], "more": false}}).to_string(),
            "a rows frame is out of place here",
        ),
        (
            json!({"ack": {"version": 1_000_000}}).to_string(),
            "version 1000000 was acknowledged and never sent",
        ),
    ] {
        let mut wire = holder(&world).await;
        wire.text(&frame).await.unwrap();
        assert_eq!(wire.refused().await.as_deref(), Some(why));
    }
    world.serves_others().await;
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn a_hello_that_comes_after_that_of_a_newer_connection_ends_no_session(#[case] world: fn() -> World) {
    let world = world();
    let mut late = world.come("edge-1").await;
    assert!(late.upgrade().await.starts_with("HTTP/1.1 101"));
    while world.hub.snapshot().connections == 0 {
        yield_now().await;
    }
    let mut wire = holder(&world).await;
    late.text(&hello("edge-1")).await.unwrap();
    assert!(late.frame().await["replaced"].is_object());
    assert_eq!(late.refused().await, None);
    wire.text(&report(1, "d", &uid("d"))).await.unwrap();
    assert_eq!(wire.answer().await, (1, None));
    world.place("edge-1", "d", 2);
    assert_eq!(wire.frame().await["put"]["object"]["generation"], 2);
    assert_eq!(world.hub.snapshot().sessions, 1);
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_is_replayed_or_comes_late_takes_nothing_back(#[case] world: fn() -> World) {
    let world = world();
    let mut wire = holder(&world).await;
    let mut versions = Vec::new();
    for edit in 2..=4 {
        world.place("edge-1", "d", edit);
        versions.push(wire.frame().await["put"]["version"].as_u64().unwrap());
    }
    // The last one first, then the others, and again.
    for version in versions.iter().rev().chain(&versions) {
        wire.text(&json!({"ack": {"version": version}}).to_string())
            .await
            .unwrap();
    }
    wire.text(&report(1, "d", &uid("d"))).await.unwrap();
    assert_eq!(wire.answer().await, (1, None));
    assert_eq!((world.hub.nodes()[0].unacked, world.hub.nodes()[0].assigned), (0, 1));
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn reports_in_another_order_are_carried_out_once_each(#[case] world: fn() -> World) {
    let world = world();
    let mut wire = holder(&world).await;
    let order = [3, 1, 2, 3, 1, 5, 4, 2];
    for seq in order {
        wire.text(&report(seq, "d", &uid("d"))).await.unwrap();
        assert_eq!(wire.answer().await, (seq, None));
    }
    let taken: Vec<_> = world.engine.taken.lock().iter().map(|(_, seq)| *seq).collect();
    assert_eq!(taken, [3, 1, 2, 5, 4]);
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn a_flood_of_reports_is_bounded_by_the_window_and_holds_up_no_other_node(#[case] world: fn() -> World) {
    let world = world();
    let mut wire = world.live("edge-1").await;
    world.place("edge-1", STUCK, 1);
    wire.frame().await;
    let window = limits::REPORT_WINDOW as u64;
    let report_on_it = |seq| report(seq, STUCK, &uid(STUCK));
    for seq in 1..=window {
        wire.text(&report_on_it(seq)).await.unwrap();
    }
    world.place("edge-1", STUCK, 2);
    let put = wire.frame().await;
    assert_eq!(put["put"]["object"]["generation"], 2, "a full window is no harm");
    world.serves_others().await;

    wire.text(&report_on_it(window + 1)).await.unwrap();
    let refused = wire.refused().await.unwrap();
    assert!(refused.contains("more reports than the window allows"), "{refused}");
    // What was taken is carried out, once.
    world.engine.turns.add_permits(2 * limits::REPORT_WINDOW);
    let carried_out = || {
        let taken = world.engine.taken.lock();
        taken.iter().filter(|(node, _)| node == "edge-1").count()
    };
    while carried_out() < limits::REPORT_WINDOW {
        yield_now().await;
    }
    world.serves_others().await;
    assert_eq!(carried_out(), limits::REPORT_WINDOW);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_again_and_again_has_no_more_kept_of_it_than_its_window() {
    const STARTS: usize = 5;
    let world = World::plain();
    let stuck = |start: usize| format!("{STUCK}-{start}");
    for start in 0..STARTS {
        world.place("edge-1", &stuck(start), 1);
    }
    let mut put_off = 0;
    for start in 0..STARTS {
        let mut wire = world.dial();
        wire.begin_by(&hello_of_start("edge-1", &start.to_string())).await;
        for _ in 0..STARTS {
            assert!(wire.frame().await["put"].is_object());
        }
        for seq in 1..=limits::REPORT_WINDOW as u64 {
            wire.text(&report(seq, &stuck(start), &uid(&stuck(start))))
                .await
                .unwrap();
            if start > 0 {
                assert!(wire.frame().await["report-later"].is_object());
                put_off += 1;
            }
        }
        wire.0.shutdown().await.unwrap();
        while !matches!(wire.next().await, super::wire::Said::Gone) {}
        world.sessions(0).await;
    }
    assert_eq!(put_off, (STARTS - 1) * limits::REPORT_WINDOW);
    world.engine.turns.add_permits(STARTS * limits::REPORT_WINDOW);
    let taken = || world.engine.taken.lock().len();
    while taken() < limits::REPORT_WINDOW {
        yield_now().await;
    }
    // And once there is room, what it says is taken.
    let mut wire = world.dial();
    wire.begin_by(&hello_of_start("edge-1", "last")).await;
    wire.text(&report(1, &stuck(0), &uid(&stuck(0)))).await.unwrap();
    loop {
        let frame = wire.frame().await;
        if frame["report-result"].is_object() {
            break;
        }
        assert!(frame["put"].is_object(), "{frame}");
    }
    assert_eq!(taken(), limits::REPORT_WINDOW + 1);
    wire.0.shutdown().await.unwrap();
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn a_report_on_what_another_holds_or_nobody_any_more_is_refused_and_the_session_goes_on(
    #[case] world: fn() -> World,
) {
    let world = world();
    world.place("edge-2", "others", 1);
    let mut wire = holder(&world).await;
    let path = |field: &str, value: &str| {
        let mut frame: serde_json::Value = serde_json::from_str(&report(1, "d", &uid("d"))).unwrap();
        frame["report"]["report"]["key"][field] = json!(value);
        frame.to_string()
    };
    for (frame, why) in [
        (
            report(1, "others", &uid("others")),
            "dataset/default/others is not placed on this node",
        ),
        (
            report(1, "d", "uid-of-before"),
            "dataset/default/d of that uid is not placed on this node",
        ),
        (path("name", "../others"), "name \"../others\" is not a Kubernetes name"),
        (
            path("name", "others/status"),
            "name \"others/status\" is not a Kubernetes name",
        ),
        (
            path("namespace", "../../secrets"),
            "namespace \"../../secrets\" is not a Kubernetes name",
        ),
        (
            path("namespace", "kube-system"),
            "dataset/kube-system/d is not placed on this node",
        ),
        (path("kind", "secret"), "secret/default/d is not placed on this node"),
        (path("kind", "a/b"), "kind \"a/b\" is not"),
    ] {
        wire.text(&frame).await.unwrap();
        let (seq, refused) = wire.answer().await;
        let refused = refused.unwrap();
        assert!(seq == 1 && refused.contains(why), "{refused}");
    }
    wire.text(&report(1, "d", &uid("d"))).await.unwrap();
    assert_eq!(wire.answer().await, (1, None), "its own is taken");
    assert_eq!(world.engine.taken.lock().as_slice(), [("edge-1".to_owned(), 1)]);
    assert_eq!(
        world.hub.snapshot().reports_denied,
        [("no_name", 4), ("not_placed", 3), ("other_uid", 1)].into()
    );
    wire.0.shutdown().await.unwrap();
}
