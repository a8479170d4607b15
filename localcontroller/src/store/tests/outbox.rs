//! The outbox: what replaces what, which class is given up first, what waits.

use skerry_edge::{
    ReportId,
    node::{Change, Outgoing},
};

use super::{
    super::{OutboxLimits, Store},
    Home, batch, event, home, metrics, object, open, round,
};

fn said(outgoing: &[Outgoing]) -> Vec<String> {
    let said = |outgoing: &Outgoing| match outgoing {
        Outgoing::Report(report) => {
            let payload = serde_json::to_value(&report.payload).unwrap();
            let (kind, fields) = payload.as_object().unwrap().iter().next().unwrap();
            format!("{}:{kind}:{}", report.uid, fields.get("message").unwrap_or(fields))
        }
        Outgoing::Gap { count, .. } => format!("gap:{count}"),
    };
    outgoing.iter().map(said).collect()
}

async fn open_with(home: &Home, count: u64) -> Store {
    let limits = OutboxLimits {
        count,
        ..OutboxLimits::default()
    };
    Store::open(&home.path, limits).await.unwrap()
}

#[tokio::test]
async fn metrics_are_replaced_and_events_are_not() {
    let home = home();
    let store = open(&home).await;
    store
        .apply(batch(1, vec![Change::Put(object("a", "u", 1))]))
        .await
        .unwrap();
    for report in [
        metrics("a", "w", 1),
        event("a", "x"),
        metrics("a", "v", 2),
        event("a", "x"),
        metrics("a", "w", 3),
    ] {
        store.push(report).await.unwrap();
    }
    let outgoing = store.fetch(0, 10).await.unwrap();
    assert_eq!(
        said(&outgoing),
        ["u:event:\"x\"", "u:metrics:2", "u:event:\"x\"", "u:metrics:3"]
    );
    let seqs: Vec<_> = outgoing.iter().map(Outgoing::seq).collect();
    assert_eq!(seqs, [2, 3, 4, 5]);
    assert_eq!(store.fetch(3, 1).await.unwrap(), outgoing[2..3]);
}

#[tokio::test]
async fn numbers_are_never_used_again() {
    let home = home();
    let store = open(&home).await;
    store
        .apply(batch(1, vec![Change::Put(object("a", "u", 1))]))
        .await
        .unwrap();
    store.push(event("a", "x")).await.unwrap();
    store.settle(1).await.unwrap().await.unwrap();
    store.settle(1).await.unwrap().await.unwrap();
    store.close().await;
    let store = open(&home).await;
    store.push(event("a", "y")).await.unwrap();
    assert_eq!(store.fetch(0, 10).await.unwrap()[0].seq(), 2);
}

/// The number of each report, and what it is known by.
async fn numbered(store: &Store) -> Vec<(u64, Option<ReportId>)> {
    let outgoing = store.fetch(0, 10).await.unwrap();
    let numbered = |outgoing: Outgoing| match outgoing {
        Outgoing::Report(report) => (report.seq, report.id),
        Outgoing::Gap { .. } => panic!("{outgoing:?}"),
    };
    outgoing.into_iter().map(numbered).collect()
}

#[tokio::test]
async fn a_report_is_known_by_when_it_was_made_also_where_an_old_store_counts_on() {
    let home = home();
    let first = open(&home).await;
    let holds = |version, name| batch(version, vec![Change::Put(object(name, "u", 1))]);
    first.apply(holds(1, "a")).await.unwrap();
    first.push(event("a", "x")).await.unwrap();
    // About an object that comes later: it is sent by another number then, since others were sent meanwhile.
    first.push(event("b", "x")).await.unwrap();
    first.close().await;
    let copy = std::fs::read(&home.path).unwrap();
    let id = |start: &Store, number| {
        let boot = start.boot().to_owned();
        Some(ReportId { boot, number })
    };
    let second = open(&home).await;
    second.apply(holds(2, "b")).await.unwrap();
    second.push(event("a", "y")).await.unwrap();
    let (of_a, of_b) = (id(&first, 1), id(&first, 2));
    assert_eq!(
        numbered(&second).await,
        [(1, of_a.clone()), (3, of_b.clone()), (4, id(&second, 4))]
    );
    second.close().await;
    std::fs::write(&home.path, copy).unwrap();
    let third = open(&home).await;
    third.push(event("a", "z")).await.unwrap();
    third.apply(holds(2, "b")).await.unwrap();
    assert_eq!(numbered(&third).await, [(1, of_a), (3, id(&third, 3)), (4, of_b)]);
    assert_ne!(third.boot(), second.boot());
}

#[tokio::test]
async fn numbers_go_by_the_clock_and_never_go_back_with_it() {
    let home = home();
    let mut numbers = Vec::new();
    for clock in [[1_700, 1_750], [1_800, 1_800], [3, 4]] {
        let store = open(&home).await;
        for now in clock {
            store.number_by(move || now).await.unwrap();
            store.push(event("a", "x")).await.unwrap();
            let outgoing = store.fetch_homeless_too(0, 10).await.unwrap();
            numbers.push(outgoing.last().unwrap().seq());
        }
        store.close().await;
    }
    assert_eq!(numbers, [1_700, 1_750, 1_800, 1_801, 1_802, 1_803]);
}

#[tokio::test]
async fn a_full_outbox_gives_up_metrics_then_rounds_then_events() {
    let home = home();
    let store = open_with(&home, 3).await;
    store
        .apply(batch(1, vec![Change::Put(object("a", "u", 1))]))
        .await
        .unwrap();
    store.push(event("a", "1")).await.unwrap();
    store.push(round("a", 2)).await.unwrap();
    store.push(metrics("a", "w", 3)).await.unwrap();
    store.push(event("a", "4")).await.unwrap();
    let outgoing = store.fetch(0, 10).await.unwrap();
    assert_eq!(
        said(&outgoing),
        ["u:event:\"1\"", "u:round:2", "u:event:\"4\"", "gap:1"]
    );
    // That gap may be on its way; what is given up now is counted by another one.
    for number in 5..=8 {
        store.push(event("a", &number.to_string())).await.unwrap();
    }
    store.push(metrics("a", "w", 9)).await.unwrap();
    let outgoing = store.fetch(0, 10).await.unwrap();
    let expected = ["gap:1", "u:event:\"6\"", "u:event:\"7\"", "u:event:\"8\"", "gap:5"];
    assert_eq!(said(&outgoing), expected);
    assert_eq!(store.outbox().await.unwrap().count, 3);
}

#[tokio::test]
async fn of_metrics_a_full_outbox_gives_up_the_oldest() {
    let home = home();
    let store = open_with(&home, 3).await;
    store
        .apply(batch(1, vec![Change::Put(object("a", "u", 1))]))
        .await
        .unwrap();
    for report in [
        metrics("a", "w", 1),
        metrics("a", "v", 2),
        event("a", "3"),
        event("a", "4"),
    ] {
        store.push(report).await.unwrap();
    }
    let outgoing = store.fetch(0, 10).await.unwrap();
    assert_eq!(
        said(&outgoing),
        ["u:metrics:2", "u:event:\"3\"", "u:event:\"4\"", "gap:1"]
    );
}

#[tokio::test]
async fn bytes_bound_the_outbox_too() {
    let home = home();
    let limits = OutboxLimits {
        bytes: 1_000,
        ..OutboxLimits::default()
    };
    let store = Store::open(&home.path, limits).await.unwrap();
    for _ in 0..10 {
        store.push(event("a", &"x".repeat(200))).await.unwrap();
    }
    let totals = store.outbox().await.unwrap();
    assert!(totals.count == 3 && totals.bytes <= 1_000, "{totals:?}");
}

#[tokio::test]
async fn reports_wait_for_the_object_that_they_are_about() {
    let home = home();
    let store = open(&home).await;
    store.push(event("a", "early")).await.unwrap();
    store
        .apply(batch(1, vec![Change::Put(object("b", "v", 1))]))
        .await
        .unwrap();
    store.push(event("b", "held")).await.unwrap();
    assert_eq!(said(&store.fetch(0, 10).await.unwrap()), ["v:event:\"held\""]);
    store
        .apply(batch(2, vec![Change::Put(object("a", "u", 1))]))
        .await
        .unwrap();
    let outgoing = store.fetch(2, 10).await.unwrap();
    assert_eq!(
        said(&outgoing),
        ["u:event:\"early\""],
        "numbered after what was read before"
    );
}

async fn open_with_homeless(home: &Home, homeless: u64) -> Store {
    let limits = OutboxLimits {
        homeless,
        ..OutboxLimits::default()
    };
    Store::open(&home.path, limits).await.unwrap()
}

/// What is said of an object that the node did not know, once it does.
async fn said_when_it_comes(store: &Store, name: &str) -> Vec<String> {
    store
        .apply(batch(1, vec![Change::Put(object(name, "u", 1))]))
        .await
        .unwrap();
    said(&store.fetch(0, 10).await.unwrap())
}

#[tokio::test]
async fn reports_on_nothing_are_bounded_apart() {
    let home = home();
    let store = open_with_homeless(&home, 2).await;
    for number in 0..5 {
        store.push(event("nothing", &number.to_string())).await.unwrap();
    }
    assert_eq!(
        said_when_it_comes(&store, "nothing").await,
        ["gap:3", "u:event:\"3\"", "u:event:\"4\""]
    );
}

#[tokio::test]
async fn of_reports_on_nothing_metrics_are_given_up_first_whenever_they_came() {
    for pushed in [
        [event("a", "1"), metrics("a", "w", 0), event("a", "2")],
        [event("a", "1"), event("a", "2"), metrics("a", "w", 0)],
    ] {
        let home = home();
        let store = open_with_homeless(&home, 2).await;
        for report in pushed {
            store.push(report).await.unwrap();
        }
        assert_eq!(
            said_when_it_comes(&store, "a").await,
            ["gap:1", "u:event:\"1\"", "u:event:\"2\""]
        );
    }
}

#[tokio::test]
async fn metrics_on_nothing_replace_older_ones_and_nothing_is_given_up_for_them() {
    let home = home();
    let store = open_with_homeless(&home, 2).await;
    for report in [event("a", "1"), metrics("a", "w", 2), metrics("a", "w", 3)] {
        store.push(report).await.unwrap();
    }
    let outgoing = store.fetch_homeless_too(0, 10).await.unwrap();
    assert_eq!(said(&outgoing), [":event:\"1\"", ":metrics:3"]);
}
