//! What becomes of a store whose file is damaged, and of what it had not delivered.

use std::{fs, os::unix::fs::FileExt as _};

use skerry_edge::{
    ReportId, ReportPayload,
    node::{Change, Outgoing},
};

use super::{
    super::{Store, StoreError, writer::Database},
    batch, event, home, key, metrics, object, open, round,
};

/// What waits, but for its numbers.
async fn waiting(store: &Store) -> Vec<(Option<ReportId>, String, ReportPayload)> {
    let outgoing = store.fetch_homeless_too(0, 10_000).await.unwrap();
    let waiting = outgoing.into_iter().map(|outgoing| match outgoing {
        Outgoing::Report(report) => (report.id, format!("{} {}", report.key, report.uid), report.payload),
        Outgoing::Gap { .. } => panic!("{outgoing:?}"),
    });
    waiting.collect()
}

#[tokio::test]
async fn a_damaged_file_is_moved_aside() {
    for damage in [
        &b"this is no database, but it is long enough to be taken for one by a careless reader, isn't it"[..],
        &[0; 8192],
    ] {
        let home = home();
        fs::create_dir_all(home.path.parent().unwrap()).unwrap();
        fs::write(&home.path, damage).unwrap();
        let store = open(&home).await;
        assert_eq!(store.position().await.unwrap(), None);
        store.push(event("a", "x")).await.unwrap();
        let kept = fs::read_dir(home.path.parent().unwrap()).unwrap();
        let kept: Vec<_> = kept
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_name().to_string_lossy().contains("damaged"))
            .collect();
        assert_eq!(kept.len(), 1);
        assert_eq!(fs::read(kept[0].path()).unwrap(), damage);
        assert_eq!(store.moved_aside(), [kept[0].path()]);
        store.close().await;
        assert_eq!(open(&home).await.moved_aside().len(), 1, "until somebody takes it away");
    }
}

#[tokio::test]
async fn what_was_not_delivered_outlives_the_damage_of_a_row() {
    for (spoil, costs) in [
        ("UPDATE items SET body = '{\"generation\":7}'", None),
        ("UPDATE outbox SET payload = '{' WHERE seq = 2", Some(1)),
        (
            "UPDATE outbox SET observed_at = 'soon', class = 1 WHERE seq = 3",
            Some(2),
        ),
    ] {
        let home = home();
        let store = open(&home).await;
        let put = Change::Put(object("a", "u", 1));
        store.apply(batch(1, vec![put])).await.unwrap();
        for report in [
            round("a", 1),
            event("a", "x"),
            metrics("a", "w", 1),
            event("early", "y"),
        ] {
            store.push(report).await.unwrap();
        }
        let mut expected = waiting(&store).await;
        store.call(move |database| database.execute(spoil, [])).await.unwrap();
        assert!(store.object(&key("a")).await.is_err() || store.fetch(0, 10).await.is_err());
        store.failure().await;
        let store = open(&home).await;
        assert_eq!((store.moved_aside().len(), store.position().await.unwrap()), (1, None));
        if let Some(lost) = costs {
            expected.remove(lost);
        }
        assert_eq!(waiting(&store).await, expected, "{spoil}");
        // The new store goes on from there: figures take the place of older ones, and numbers are new.
        store.push(metrics("a", "w", 2)).await.unwrap();
        expected.retain(|(_, _, payload)| !payload.coalesces());
        let after = waiting(&store).await;
        assert_eq!(after[..after.len() - 1], expected, "{spoil}");
        assert_eq!(store.outbox().await.unwrap().count, after.len() as u64);
    }
}

#[tokio::test]
async fn of_a_damaged_file_what_is_before_and_behind_the_damage_is_carried_over() {
    const PAGE: u64 = 4096;
    let home = home();
    let store = open(&home).await;
    for number in 0..200 {
        store.push(event(&number.to_string(), &"x".repeat(300))).await.unwrap();
    }
    let before = waiting(&store).await;
    store.close().await;
    let file = fs::File::options().write(true).open(&home.path).unwrap();
    let middle = file.metadata().unwrap().len() / PAGE / 2;
    file.write_all_at(&vec![0xa5; usize::try_from(PAGE).unwrap()], middle * PAGE)
        .unwrap();
    let store = open(&home).await;
    assert_eq!(store.moved_aside().len(), 1);
    let after = waiting(&store).await;
    assert!(after.len() > 150, "of 200 there are {}", after.len());
    let mut all = before.iter();
    assert!(after.iter().all(|report| all.any(|known| known == report)), "in order");
    assert!(after.first() == before.first() && after.last() == before.last());
}

#[tokio::test]
async fn what_was_never_written_so_is_damage() {
    for spoil in [
        "UPDATE items SET hash = x'00'",
        "UPDATE items SET uid = CAST(x'ff' AS TEXT)",
        "UPDATE items SET body = '{'",
        "ALTER TABLE items RENAME COLUMN uid TO id",
    ] {
        let home = home();
        let store = open(&home).await;
        let put = Change::Put(object("a", "u", 1));
        store.apply(batch(1, vec![put])).await.unwrap();
        store.call(move |database| database.execute(spoil, [])).await.unwrap();
        let (rows, admits) = (store.rows().await, store.admits(&key("a"), "w").await);
        assert!(rows.is_err() || admits.is_err(), "{spoil}");
        assert!(matches!(store.failure().await, StoreError::Damaged(_)), "{spoil}");
    }
}

#[tokio::test]
async fn an_index_by_a_function_that_nobody_knows_is_damage() {
    let home = home();
    open(&home).await.close().await;
    let spoil = "PRAGMA writable_schema = ON;
                 UPDATE sqlite_schema SET sql = replace(sql, 'coalesce(', 'coblesce(') WHERE name = 'outbox_share'";
    rusqlite::Connection::open(&home.path)
        .unwrap()
        .execute_batch(spoil)
        .unwrap();
    let store = open(&home).await;
    let error = store.push(event("a", "x")).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Damaged(why) if why.contains("coblesce")),
        "{error}"
    );
    assert!(matches!(store.failure().await, StoreError::Damaged(_)));
    let store = open(&home).await;
    assert_eq!(store.moved_aside().len(), 1);
    store.push(event("a", "x")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_waits_for_a_store_that_has_given_up() {
    for _ in 0..20 {
        let home = home();
        let store = open(&home).await;
        let put = Change::Put(object("a", "u", 1));
        store.apply(batch(1, vec![put])).await.unwrap();
        let ask = |store: Store| async move { while store.holds().await.is_ok() {} };
        let asking: Vec<_> = (0..8).map(|_| tokio::spawn(ask(store.clone()))).collect();
        let spoil = |database: &mut Database| database.execute("UPDATE items SET hash = x'00'", []);
        store.call(spoil).await.unwrap();
        assert!(store.rows().await.is_err());
        for asked in asking {
            let ended = tokio::time::timeout(std::time::Duration::from_secs(20), asked).await;
            ended.expect("a call was never answered").unwrap();
        }
        store.close().await;
    }
}

#[tokio::test]
async fn damage_that_shows_only_in_use_ends_the_run_and_heals_at_the_next() {
    let home = home();
    let store = open(&home).await;
    store
        .apply(batch(1, vec![Change::Put(object("a", "u", 1))]))
        .await
        .unwrap();
    let spoil = |database: &mut Database| database.execute("UPDATE items SET body = '{\"generation\":7}'", []);
    store.call(spoil).await.unwrap();
    let error = store.object(&key("a")).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged(_)), "{error}");
    assert!(matches!(store.failure().await, StoreError::Damaged(_)));
    assert!(store.position().await.is_err());
    let store = open(&home).await;
    assert_eq!(store.position().await.unwrap(), None);
}
