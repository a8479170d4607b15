//! What a node reads: its workers' messages, its own database, and the Datasets of its users.

use std::{cell::OnceCell, fs, path::Path, time::Duration};

use jiff::Timestamp;
use rusqlite::Connection;
use serde_json::json;
use skerry_edge::{
    ContentHash, Credential, Epoch, Object, ObjectKey, Position, Report, ReportId, ReportPayload, Upstream,
    node::{Batch, Change},
};
use skerry_localcontroller::{
    dataset::{Counter, Format, Location},
    store::{Finding, NewReport, OutboxLimits, Store, StoreError},
    worker_api::{Meant, read},
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::Came;

/// Whatever is taken can be sent: the manager would end the session otherwise, and each one after it.
pub(crate) fn worker_message(data: &[u8]) -> Came {
    match read("w", data) {
        Err(error) => Came::refused(error),
        Ok(Meant::Nothing(why)) => Came::refused(format!("nothing: {why}")),
        Ok(Meant::Report(report)) => {
            let NewReport { key, payload, .. } = *report;
            let way = format!(
                "{} {}",
                key.kind,
                if payload.coalesces() { "coalesces" } else { "is kept" }
            );
            let frame = Upstream::Report {
                settled: u64::MAX,
                after: None,
                report: Report {
                    seq: u64::MAX,
                    id: Some(ReportId {
                        boot: "b".repeat(36),
                        number: u64::MAX,
                    }),
                    key,
                    uid: "u".repeat(253),
                    observed_at: Timestamp::MAX,
                    payload,
                },
            };
            let text = frame.encode().unwrap();
            assert!(Upstream::decode(&text).is_ok(), "taken, and cannot be sent: {text}");
            Came::taken(way)
        }
    }
}

/// A line with the URL, one with the format, and the file itself, which may come in any pieces.
pub(crate) fn dataset(data: &[u8]) -> Came {
    let mut parts = data.splitn(3, |&byte| byte == b'\n');
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (url, format) = (text(), text());
    let location = match Location::parse(&url) {
        Ok(location) => location,
        Err(error) => return Came::refused(error),
    };
    if let Location::Http(_) = location {
        // A query may be a signature, and who asks may be said with a password.
        let shown = location.to_string();
        let host = shown.split('/').nth(2).unwrap_or_default();
        assert!(
            !shown.contains(['?', '#']) && !host.contains('@'),
            "{shown} shows what opens it"
        );
    }
    let format: Format = match format.parse() {
        Ok(format) => format,
        Err(error) => return Came::refused(error),
    };
    let file = parts.next().unwrap_or_default();
    let (mut whole, mut pieces) = (Counter::new(format), Counter::new(format));
    whole.push(file);
    file.chunks(3).for_each(|piece| pieces.push(piece));
    let counted = whole.finish();
    assert_eq!(pieces.finish(), counted, "counted differently in pieces");
    match counted {
        Ok(samples) => {
            assert!(
                samples <= file.len() as u64,
                "{samples} samples in {} bytes",
                file.len()
            );
            Came::taken(format!("{format:?}"))
        }
        Err(error) => Came::refused(error),
    }
}

/// Puts texts into the tables of a good database, one a line: `position …`, `item …`, `credential …`, `payload …`,
/// `observed …`, `told …`.
pub(crate) fn store_records(data: &[u8]) -> Came {
    let Ok(text) = std::str::from_utf8(data) else {
        return Came::refused("not text");
    };
    in_folder(|path| {
        write_records(path, text);
        open_and_use(path)
    })
}

fn write_records(path: &Path, text: &str) {
    let connection = Connection::open(path).unwrap();
    for line in text.lines() {
        let (what, text) = line.split_once(' ').unwrap_or((line, ""));
        let hash = ContentHash::of(text.as_bytes());
        // One whose hash is wrong would be refused before it is read.
        let _ = match what {
            "position" => connection.execute("UPDATE position SET body = ?1", [text]),
            "item" => connection.execute(
                "UPDATE items SET body = ?1, hash = ?2 WHERE secret = ''",
                (text, hash.as_bytes()),
            ),
            "credential" => connection.execute("UPDATE items SET body = ?1 WHERE secret != ''", [text]),
            "payload" => connection.execute("UPDATE outbox SET payload = ?1", [text]),
            "observed" => connection.execute("UPDATE outbox SET observed_at = ?1", [text]),
            "told" => connection.execute("UPDATE datasets SET told = ?1", [text]),
            _ => Ok(0),
        }
        .unwrap();
    }
}

/// Changes a good database: two bytes say where, one how many bytes, and those follow; with none, it ends there.
pub(crate) fn store_file(data: &[u8]) -> Came {
    in_folder(|path| {
        let mut file = fs::read(path).unwrap();
        let mut rest = data;
        while let Some((&[high, low, count], after)) = rest.split_first_chunk() {
            let (bytes, after) = after.split_at(usize::from(count).min(after.len()));
            let at = usize::from(u16::from_be_bytes([high, low]));
            if count == 0 {
                file.truncate(at);
            }
            for (to, byte) in file.iter_mut().skip(at).zip(bytes) {
                *to = *byte;
            }
            rest = after;
        }
        fs::write(path, file).unwrap();
        open_and_use(path)
    })
}

/// Runs on a copy of the good database.
fn in_folder(run: impl FnOnce(&Path) -> Came) -> Came {
    thread_local! {
        static GOOD: OnceCell<Vec<u8>> = const { OnceCell::new() };
    }
    let folder = memory();
    let path = folder.path().join("store.db");
    GOOD.with(|good| {
        let good = good.get_or_init(|| runtime(|runtime| runtime.block_on(good_database())));
        fs::write(&path, good).unwrap();
    });
    run(&path)
}

/// A folder in memory, where there is one: the store waits for the disk each time.
pub(crate) fn memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub(crate) fn runtime<T>(run: impl FnOnce(&Runtime) -> T) -> T {
    thread_local! {
        static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().unwrap();
    }
    RUNTIME.with(run)
}

fn key(kind: &str) -> ObjectKey {
    ObjectKey::new(kind, "default", "o")
}

fn report(kind: &str) -> NewReport {
    NewReport {
        key: key(kind),
        worker: Some("w".to_owned()),
        payload: ReportPayload::Event {
            message: json!({"name": "w"}).into(),
        },
    }
}

/// A change of everything.
fn batch(generation: i64) -> Batch {
    let object = |kind: &str| Object {
        key: key(kind),
        uid: "uid".to_owned(),
        generation,
        body: json!({"workers": ["w"], "generation": generation}).into(),
    };
    let epoch = Epoch {
        lease: "lease".to_owned(),
        transitions: 0,
        made: None,
    };
    Batch {
        changes: vec![
            Change::Put(object("dataset")),
            Change::Put(object("jointinferenceservice")),
            Change::PutCredential(Credential {
                owner: key("dataset"),
                uid: "uid".to_owned(),
                secret: "s3".to_owned(),
                fields: [("k".to_owned(), "v".to_owned())].into(),
            }),
        ],
        position: Position::start("cluster", epoch),
    }
}

/// The file of a store that holds a little of everything.
async fn good_database() -> Vec<u8> {
    let folder = memory();
    let path = folder.path().join("store.db");
    let store = Store::open(&path, OutboxLimits::default()).await.unwrap();
    store.apply(batch(1)).await.unwrap();
    store.push(report("jointinferenceservice")).await.unwrap();
    // On one that the node has not heard of.
    store.push(report("reidjob")).await.unwrap();
    store.find(&key("dataset"), finding()).await.unwrap();
    store.close().await;
    fs::read(path).unwrap()
}

fn finding() -> Finding {
    Finding {
        uid: "uid".to_owned(),
        url: "/data".to_owned(),
        format: "txt".to_owned(),
        fingerprint: Some("1-1".to_owned()),
        told: ReportPayload::DatasetSamples { count: 1 },
    }
}

/// Opens a database and does with it all that there is to do. Each step may fail, and says so; none breaks down.
fn open_and_use(path: &Path) -> Came {
    runtime(|runtime| {
        runtime.block_on(async {
            let opened = Store::open(path, OutboxLimits::default()).await;
            let store = match opened {
                Ok(store) => store,
                Err(error) => {
                    assert!(
                        !matches!(error, StoreError::Closed),
                        "the store broke down as it was opened"
                    );
                    return Came::refused(format!("{} when opened", error.category()));
                }
            };
            let used = use_all(&store).await;
            assert!(!used.contains(&"sqlite"), "what is damaged is not said to be: {used:?}");
            if used.contains(&"closed") {
                // It ends where it cannot go on, and says why. A thread that broke down says nothing.
                let why = tokio::time::timeout(Duration::from_secs(10), store.failure())
                    .await
                    .unwrap();
                assert!(!matches!(why, StoreError::Closed), "the store broke down: {used:?}");
            }
            store.close().await;
            let aside = !store.moved_aside().is_empty();
            Came::taken(format!("{}{}", used.join(" "), if aside { " moved aside" } else { "" }))
        })
    })
}

fn way<T>(result: Result<T, StoreError>) -> &'static str {
    result.map_or_else(|error| error.category(), |_| "fine")
}

async fn use_all(store: &Store) -> Vec<&'static str> {
    let mut ways = Vec::new();
    for kind in ["dataset", "jointinferenceservice"] {
        ways.push(way(store.object(&key(kind)).await));
        ways.push(way(store.admits(&key(kind), "w").await));
    }
    ways.push(way(store.position().await));
    ways.push(way(store.rows().await));
    ways.push(way(store.credential(&key("dataset"), "s3").await));
    ways.push(way(store.finding(&key("dataset")).await));
    ways.push(way(store.announce_all().await));
    ways.push(way(store.fetch(0, 64).await));
    ways.push(way(store.push(report("jointinferenceservice")).await));
    ways.push(way(store.apply(batch(2)).await));
    ways.push(way(store.fetch(0, 64).await));
    ways.push(match store.settle(1).await {
        Ok(settled) => way(settled.await),
        Err(error) => error.category(),
    });
    ways
}
