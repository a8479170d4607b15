//! Stores of releases before and after this one and of other programs, and what is given up because of its age.

use std::{fs, time::Duration};

use rusqlite::Connection;
use skerry_edge::node::Outgoing;

use super::{
    super::{
        OutboxLimits, Store, StoreError,
        limits::METRICS_AGE,
        schema::{STEPS, migrate},
    },
    Clock, Home, event, home, key, metrics, open, position, round,
};

/// What the first release left: the reports of two workers whose objects it never got, and a Dataset.
const VERSION_1: &[u8] = include_bytes!("version-1.db");

#[tokio::test]
async fn a_store_of_each_older_version_is_taken_over_with_all_that_it_held() {
    for version in 1..STEPS.len() {
        is_taken_over(version).await;
    }
}

async fn is_taken_over(version: usize) {
    let home = home();
    fs::create_dir_all(home.path.parent().unwrap()).unwrap();
    fs::write(&home.path, VERSION_1).unwrap();
    let mut older = Connection::open(&home.path).unwrap();
    migrate(&mut older, &home.path, &STEPS[..version]).unwrap();
    older.close().unwrap();
    for _again in 0..2 {
        let store = open(&home).await;
        assert_eq!(store.position().await.unwrap(), Some(position(17)));
        let dataset = store.object(&key("images")).await.unwrap().unwrap();
        assert_eq!((dataset.uid.as_str(), dataset.generation), ("uid-images", 4));
        assert!(dataset.body.json().contains("/var/images.txt"));
        let owed = store.fetch_homeless_too(0, 10).await.unwrap();
        let kinds = owed.iter().map(|outgoing| match outgoing {
            Outgoing::Report(report) => {
                assert_eq!(report.id, None, "nobody knows which start it was");
                (report.seq, report.key.to_string())
            }
            Outgoing::Gap { .. } => panic!("{outgoing:?}"),
        });
        let (service, job) = (
            "jointinferenceservice/default/service",
            "federatedlearningjob/default/job",
        );
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            [(2, service), (3, job), (4, job)].map(|(seq, key)| (seq, key.to_owned()))
        );
        store.close().await;
    }
    let store = open(&home).await;
    store.push(event("images", "new")).await.unwrap();
    assert_eq!(store.fetch(0, 10).await.unwrap().first().map(Outgoing::seq), Some(5));
}

/// Opens the store of `home` with an error, by which nothing has changed beside it or in it.
async fn refused(home: &Home) -> StoreError {
    let bytes = fs::read(&home.path).unwrap();
    let beside = || fs::read_dir(home.path.parent().unwrap()).unwrap().count();
    let before = beside();
    let error = Store::open(&home.path, OutboxLimits::default()).await.unwrap_err();
    assert!(fs::read(&home.path).unwrap() == bytes, "the file was changed: {error}");
    assert_eq!(beside(), before, "{error}");
    error
}

#[tokio::test]
async fn a_store_of_a_newer_release_is_refused_and_left_as_it_is() {
    for also in [
        "",
        "CREATE TABLE later (x INTEGER)",
        // A statement that our SQLite does not know: to it the schema is malformed.
        "PRAGMA writable_schema = ON;
         INSERT INTO sqlite_schema VALUES ('table', 'later', 'later', 0, 'CREATE TABLE later OF ANOTHER KIND (x)')",
    ] {
        let home = home();
        let store = open(&home).await;
        store.push(event("a", "x")).await.unwrap();
        store.close().await;
        let newer = Connection::open(&home.path).unwrap();
        newer.execute_batch(also).unwrap();
        newer.pragma_update(None, "user_version", 99).unwrap();
        newer.close().unwrap();
        let error = refused(&home).await;
        assert!(
            matches!(
                error,
                StoreError::Newer {
                    found: 99,
                    known: 6,
                    ..
                }
            ),
            "{also}: {error}"
        );
    }
}

#[tokio::test]
async fn the_database_of_another_program_is_refused_and_left_as_it_is() {
    for made in [
        "CREATE TABLE resources (id INTEGER)",
        "PRAGMA application_id = 7",
        "PRAGMA journal_mode = WAL; CREATE TABLE resources (id INTEGER); PRAGMA user_version = 2",
    ] {
        let home = home();
        fs::create_dir_all(home.path.parent().unwrap()).unwrap();
        let other = Connection::open(&home.path).unwrap();
        other.execute_batch(made).unwrap();
        other.close().unwrap();
        let error = refused(&home).await;
        assert!(matches!(error, StoreError::Foreign { .. }), "{made}: {error}");
    }
}

/// What is owed: the classes of what is there, and what the gaps say.
async fn owed(store: &Store) -> Vec<String> {
    let owed = store.fetch_homeless_too(0, 100).await.unwrap();
    let word = |outgoing: &Outgoing| match outgoing {
        Outgoing::Report(report) => serde_json::to_value(&report.payload).unwrap().to_string()[2..5].to_owned(),
        Outgoing::Gap { count, .. } => format!("gap {count}"),
    };
    owed.iter().map(word).collect()
}

#[tokio::test]
async fn figures_that_are_too_old_are_given_up_and_told_and_nothing_else_is() {
    let (home, clock) = (home(), Clock::default());
    let store = clock.open(&home).await;
    for report in [
        metrics("a", "w", 1),
        metrics("a", "v", 2),
        round("a", 3),
        event("a", "x"),
    ] {
        store.push(report).await.unwrap();
    }
    clock.go_on(METRICS_AGE / 2);
    store.push(metrics("a", "w", 4)).await.unwrap();
    clock.go_on(METRICS_AGE / 2);
    assert_eq!(store.give_up_old().await.unwrap(), 0, "to the second");
    clock.go_on(Duration::from_secs(1));
    assert_eq!(
        store.give_up_old().await.unwrap(),
        1,
        "of the first worker there is a newer one"
    );
    assert_eq!(owed(&store).await, ["rou", "eve", "met", "gap 1"]);
    clock.go_on(METRICS_AGE);
    assert_eq!(store.give_up_old().await.unwrap(), 1);
    assert_eq!(
        owed(&store).await,
        ["rou", "eve", "gap 1", "gap 1"],
        "the first may be on its way"
    );
    clock.go_on(100 * METRICS_AGE);
    assert_eq!(store.give_up_old().await.unwrap(), 0);
}

#[tokio::test]
async fn age_goes_on_over_restarts_and_does_not_grow_while_nothing_runs() {
    let (home, clock) = (home(), Clock::default());
    let store = clock.open(&home).await;
    store.push(metrics("a", "w", 1)).await.unwrap();
    store.close().await;
    // However long that was: the clock counts from the opening.
    for _day in 0..7 {
        let store = clock.open(&home).await;
        clock.go_on(METRICS_AGE / 7);
        assert_eq!(store.give_up_old().await.unwrap(), 0);
        store.close().await;
    }
    let store = clock.open(&home).await;
    clock.go_on(Duration::from_secs(2));
    assert_eq!(store.give_up_old().await.unwrap(), 1);
    assert_eq!(owed(&store).await, ["gap 1"]);
}
