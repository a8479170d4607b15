//! What the store does with each call, and what becomes of it when the disk is full.

mod damage;
mod mark;
mod model;
mod older;
mod outbox;
mod room;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use serde_json::json;
use skerry_edge::{
    Body, Credential, Epoch, ItemKey, Object, ObjectKey, Position, ReportPayload,
    node::{Batch, Change},
};
use tempfile::TempDir;

use super::*;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("dataset", "default", name)
}

fn object(name: &str, uid: &str, generation: i64) -> Object {
    Object {
        key: key(name),
        uid: uid.to_owned(),
        generation,
        body: json!({"generation": generation}).into(),
    }
}

fn credential(name: &str, value: &str) -> Credential {
    Credential {
        owner: key(name),
        uid: "u".to_owned(),
        secret: "s3".to_owned(),
        fields: BTreeMap::from([("ACCESS_KEY_ID".to_owned(), value.to_owned())]),
    }
}

fn position(version: u64) -> Position {
    let epoch = Epoch {
        lease: "lease".to_owned(),
        transitions: 3,
        made: None,
    };
    Position {
        version,
        ..Position::start("cluster", epoch)
    }
}

fn batch(version: u64, changes: Vec<Change>) -> Batch {
    Batch {
        changes,
        position: position(version),
    }
}

fn event(name: &str, text: &str) -> NewReport {
    NewReport {
        key: key(name),
        worker: Some("w".to_owned()),
        payload: ReportPayload::Event {
            message: Body::from(json!(text)),
        },
    }
}

fn metrics(name: &str, worker: &str, number: u64) -> NewReport {
    NewReport {
        key: key(name),
        worker: Some(worker.to_owned()),
        payload: ReportPayload::Metrics {
            message: Body::from(json!(number)),
        },
    }
}

fn round(name: &str, round: u64) -> NewReport {
    NewReport {
        key: key(name),
        worker: Some("w".to_owned()),
        payload: ReportPayload::Round {
            round,
            message: Body::from(json!(round)),
        },
    }
}

struct Home {
    _directory: TempDir,
    path: PathBuf,
}

fn home() -> Home {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("var/lib/skerry/localcontroller.db");
    Home {
        _directory: directory,
        path,
    }
}

async fn open(home: &Home) -> Store {
    Store::open(&home.path, OutboxLimits::default()).await.unwrap()
}

/// A clock that is set by hand, as one that counts from each opening.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn go_on(&self, by: Duration) {
        self.0.fetch_add(by.as_secs(), Relaxed);
    }

    async fn open(&self, home: &Home) -> Store {
        self.0.store(0, Relaxed);
        let seconds = self.0.clone();
        let limits = OutboxLimits::default();
        Store::open_with(&home.path, limits, move || Duration::from_secs(seconds.load(Relaxed)))
            .await
            .unwrap()
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn what_was_stored_is_there_after_a_restart() {
    let home = home();
    let store = open(&home).await;
    assert_eq!(store.position().await.unwrap(), None);
    let (put, secret) = (object("a", "u", 1), credential("a", "key"));
    let changes = vec![
        Change::Put(put.clone()),
        Change::PutCredential(secret.clone()),
        Change::Put(object("b", "u", 1)),
        Change::Delete(key("b").into()),
        Change::Delete(key("never").into()),
    ];
    let rows: Vec<_> = changes.iter().take(2).filter_map(Change::row).collect();
    assert_eq!(store.apply(batch(5, changes)).await.unwrap(), 2);
    store.close().await;

    let store = open(&home).await;
    assert_eq!(store.position().await.unwrap(), Some(position(5)));
    assert_eq!(store.holds().await.unwrap(), 2);
    assert_eq!(store.rows().await.unwrap(), rows);
    assert_eq!(store.object(&put.key).await.unwrap(), Some(put));
    assert_eq!(store.object(&key("b")).await.unwrap(), None);
    assert_eq!(store.credential(&secret.owner, "s3").await.unwrap(), Some(secret));
}

#[tokio::test]
async fn the_file_and_its_journal_are_for_us_alone() {
    let home = home();
    fs::create_dir_all(home.path.parent().unwrap()).unwrap();
    fs::write(&home.path, "").unwrap();
    fs::set_permissions(&home.path, fs::Permissions::from_mode(0o644)).unwrap();
    let store = open(&home).await;
    store.push(event("a", "x")).await.unwrap();
    assert_eq!(mode(&home.path), 0o600);
    let journal = PathBuf::from(format!("{}-wal", home.path.display()));
    assert_eq!(mode(&journal), 0o600);
}

#[tokio::test]
async fn changed_objects_are_announced_once() {
    let home = home();
    let store = open(&home).await;
    let puts = vec![Change::Put(object("a", "u", 1)), Change::Put(object("a", "u", 2))];
    store.apply(batch(1, puts)).await.unwrap();
    let delete = ItemKey {
        object: key("b"),
        secret: Some("s3".to_owned()),
    };
    store.apply(batch(2, vec![Change::Delete(delete)])).await.unwrap();
    assert_eq!(store.changes().next().await, [key("a"), key("b")].into());
    store.announce_all().await.unwrap();
    assert_eq!(store.changes().next().await, [key("a")].into());
}

#[tokio::test]
async fn a_finding_is_told_when_it_is_news_and_once_by_each_start() {
    let home = home();
    let store = open(&home).await;
    let found = |uid: &str, count| Finding {
        uid: uid.to_owned(),
        url: "/data/a.csv".to_owned(),
        format: "csv".to_owned(),
        fingerprint: Some("f".to_owned()),
        told: ReportPayload::DatasetSamples { count },
    };
    assert!(!store.find(&key("a"), found("u", 1)).await.unwrap(), "not held");
    store
        .apply(batch(1, vec![Change::Put(object("a", "u", 1))]))
        .await
        .unwrap();
    assert!(store.find(&key("a"), found("u", 1)).await.unwrap());
    assert!(!store.find(&key("a"), found("u", 1)).await.unwrap());
    assert!(store.find(&key("a"), found("u", 2)).await.unwrap());
    assert!(!store.find(&key("a"), found("v", 3)).await.unwrap(), "another resource");
    let kept = |is_told| {
        let finding = found("u", 2);
        Some(Kept { finding, is_told })
    };
    assert_eq!(store.finding(&key("a")).await.unwrap(), kept(true));
    assert_eq!(store.fetch(0, 10).await.unwrap().len(), 1, "only the newest");
    store.close().await;
    let store = open(&home).await;
    assert_eq!(store.finding(&key("a")).await.unwrap(), kept(false));
    assert!(store.find(&key("a"), found("u", 2)).await.unwrap());
    assert!(!store.find(&key("a"), found("u", 2)).await.unwrap());
    assert_eq!(store.finding(&key("a")).await.unwrap(), kept(true));
    assert_eq!(
        store.fetch(0, 10).await.unwrap().len(),
        1,
        "in place of what the start before had to tell"
    );
    let delete = Change::Delete(key("a").into());
    store.apply(batch(2, vec![delete])).await.unwrap();
    assert_eq!(store.finding(&key("a")).await.unwrap(), None);
}

#[tokio::test]
async fn a_second_process_is_told_who_is_in_the_way() {
    let home = home();
    let _store = open(&home).await;
    // Another connection of the same process is kept out as another process's is.
    let error = Store::open(&home.path, OutboxLimits::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::InUse), "{error}");
}

#[tokio::test]
async fn a_body_that_tells_no_workers_admits_all() {
    let home = home();
    let store = open(&home).await;
    for body in [
        json!([1]),
        json!(null),
        json!({"workers": 7}),
        json!({"workers": null}),
        json!({}),
    ] {
        let object = Object {
            body: body.clone().into(),
            ..object("a", "u", 1)
        };
        store.apply(batch(1, vec![Change::Put(object)])).await.unwrap();
        let admitted = store.admits(&key("a"), "w").await.unwrap();
        assert_eq!(admitted, Admission::Listed, "{body}");
    }
}

#[tokio::test]
async fn a_full_disk_is_said_and_costs_nothing_that_was_stored() {
    let home = home();
    let store = open(&home).await;
    store
        .apply(batch(1, vec![Change::Put(object("a", "u", 1))]))
        .await
        .unwrap();
    let pages = |pages: i64| {
        move |database: &mut Database| {
            database.first(&format!("PRAGMA max_page_count = {pages}"), [], |row| {
                row.get::<_, i64>(0)
            })
        }
    };
    store.call(pages(1)).await.unwrap();
    let mut error = None;
    for number in 0..10_000 {
        match store.push(event("a", &"x".repeat(500))).await {
            Ok(()) => assert!(number < 1_000, "the disk never fills"),
            Err(failed) => {
                error = Some(failed);
                break;
            }
        }
    }
    assert!(matches!(error, Some(StoreError::DiskFull)), "{error:?}");
    let (totals, kept) = (store.outbox().await.unwrap(), store.fetch(0, 10_000).await.unwrap());
    assert_eq!(totals.count, kept.len() as u64);
    assert!(
        store
            .apply(batch(
                2,
                vec![Change::Put(Object {
                    body: json!("x".repeat(50_000)).into(),
                    ..object("b", "u", 1)
                })]
            ))
            .await
            .is_err()
    );
    assert_eq!(store.position().await.unwrap(), Some(position(1)));
    assert_eq!(store.holds().await.unwrap(), 1);
    store.call(pages(1_000_000)).await.unwrap();
    store.push(event("a", "there is room again")).await.unwrap();
}

#[tokio::test]
async fn one_call_that_fails_takes_no_other_with_it() {
    let home = home();
    let store = open(&home).await;
    let fails = |database: &mut Database| {
        database.execute("INSERT INTO position VALUES (1, 'half')", [])?;
        database.execute("INSERT INTO position VALUES (2, 'there is one alone')", [])
    };
    let (before, failed, after) = tokio::join!(
        store.push(event("a", "before")),
        store.call(fails),
        store.push(event("a", "after")),
    );
    assert!(before.is_ok() && failed.is_err() && after.is_ok());
    assert_eq!(store.outbox().await.unwrap().count, 2);
    assert_eq!(store.position().await.unwrap(), None);
}
