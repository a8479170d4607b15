//! The store, killed between any two operations, again and again: what was acknowledged is there, and what is there is
//! what some prefix of the operations leaves.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the lints know tests only by their attribute, not what these call"
)]

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use skerry_edge::{
    Epoch, Object, ObjectKey, Position, ReportPayload, Row,
    node::{Batch, Change, Outgoing},
};
use skerry_localcontroller::store::{NewReport, OutboxLimits, Store};
use tempfile::TempDir;

/// Tells the child which store to work on.
const STORE: &str = "SKERRY_TEST_STORE";

const OBJECTS: u64 = 11;
const ROUNDS: usize = 25;

fn key(number: u64) -> ObjectKey {
    ObjectKey::new("dataset", "default", (number % OBJECTS).to_string())
}

/// The object that the reports are about: never deleted.
fn job() -> ObjectKey {
    ObjectKey::new("federatedlearningjob", "default", "job")
}

/// What the batch that leads to this version changes.
fn changes(version: u64) -> Vec<Change> {
    let put = |key: ObjectKey, number: u64| {
        Change::Put(Object {
            key,
            uid: "u".to_owned(),
            generation: i64::try_from(version).unwrap(),
            body: json!({"version": version, "padding": "x".repeat(usize::try_from(number * 97 % 500).unwrap())})
                .into(),
        })
    };
    let mut changes = vec![
        put(job(), version),
        put(key(version), version),
        put(key(version + 1), version + 1),
        put(key(version * 3), version * 3),
    ];
    if version.is_multiple_of(4) {
        changes.push(Change::Delete(key(version / 4).into()));
    }
    changes
}

/// What the store holds at a version.
fn expected(version: u64) -> Vec<Row> {
    let mut rows = BTreeMap::new();
    for change in (1..=version).flat_map(changes) {
        match change.row() {
            Some(row) => rows.insert(change.key(), row),
            None => rows.remove(&change.key()),
        };
    }
    rows.into_values().collect()
}

fn position(version: u64) -> Position {
    let epoch = Epoch {
        lease: "lease".to_owned(),
        transitions: 1,
        made: None,
    };
    Position {
        version,
        ..Position::start("cluster", epoch)
    }
}

async fn open(path: &Path) -> Store {
    Store::open(path, OutboxLimits::default()).await.unwrap()
}

async fn version(store: &Store) -> u64 {
    store.position().await.unwrap().map_or(0, |position| position.version)
}

/// The rounds in the outbox.
async fn rounds(store: &Store) -> Vec<u64> {
    let outgoing = store.fetch(0, 1_000_000).await.unwrap();
    let round = |outgoing: Outgoing| match outgoing {
        Outgoing::Report(report) => match report.payload {
            ReportPayload::Round { round, .. } => round,
            other => panic!("{other:?}"),
        },
        gap @ Outgoing::Gap { .. } => panic!("{gap:?}"),
    };
    outgoing.into_iter().map(round).collect()
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

async fn apply_next(store: &Store) {
    let version = version(store).await + 1;
    let batch = Batch {
        changes: changes(version),
        position: position(version),
    };
    store.apply(batch).await.unwrap();
    say(&format!("stored {version}"));
}

async fn apply(store: &Store) {
    loop {
        apply_next(store).await;
    }
}

/// Puts rounds in at one end and settles them at the other, so that between 20 and 40 stay.
async fn report(store: &Store) {
    let mut next = rounds(store).await.last().map_or(1, |last| last + 1);
    loop {
        let report = NewReport {
            key: job(),
            worker: Some("w".to_owned()),
            payload: ReportPayload::Round {
                round: next,
                message: json!({"round": next}).into(),
            },
        };
        store.push(report).await.unwrap();
        say(&format!("reported {next}"));
        next += 1;
        let outgoing = store.fetch(0, 100).await.unwrap();
        if outgoing.len() > 40 {
            for outgoing in &outgoing[..20] {
                store.settle(outgoing.seq()).await.unwrap().await.unwrap();
            }
        }
    }
}

/// Not a test: the process that is killed.
#[test]
#[ignore = "run by the test below"]
fn child() {
    let Some(path) = env::var_os(STORE).map(PathBuf::from) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = open(&path).await;
        apply_next(&store).await;
        tokio::join!(apply(&store), report(&store));
    });
}

/// Lets the child work on the store and kills it; the last version and round that it said were durable.
fn work_and_kill(path: &Path, random: &mut StdRng) -> (u64, u64) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child", "--nocapture"])
        .env(STORE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reading = thread::spawn(move || {
        let (mut stored, mut reported) = (0, 0);
        for line in lines.map_while(Result::ok) {
            match line.split_once(' ') {
                Some(("stored", number)) => stored = number.parse().unwrap(),
                Some(("reported", number)) => reported = number.parse().unwrap(),
                _ => {}
            }
        }
        (stored, reported)
    });
    // At any moment, that of opening included.
    thread::sleep(Duration::from_micros(random.random_range(0..200_000)));
    child.kill().unwrap();
    child.wait().unwrap();
    reading.join().unwrap()
}

#[test]
fn what_was_acknowledged_survives_a_kill_at_any_moment() {
    let seed = env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(rand::random::<u64>);
    eprintln!("SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store.db");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut least_version, mut least_round) = (0, 0);
    for _ in 0..ROUNDS {
        let (stored, reported) = work_and_kill(&path, &mut random);
        (least_version, least_round) = (least_version.max(stored), least_round.max(reported));
        runtime.block_on(async {
            let store = open(&path).await;
            let version = version(&store).await;
            assert!(
                version >= least_version,
                "version {least_version} was stored, {version} is"
            );
            let mut rows = store.rows().await.unwrap();
            rows.sort();
            assert_eq!(rows, expected(version), "at version {version}");
            assert_eq!(store.holds().await.unwrap(), rows.len() as u64);
            let rounds = rounds(&store).await;
            let last = rounds.last().copied().unwrap_or_default();
            assert!(last >= least_round, "round {least_round} was taken, {last} is the last");
            assert!(
                rounds.windows(2).all(|two| two[0] + 1 == two[1]),
                "a hole in {rounds:?}"
            );
            store.close().await;
        });
    }
    assert!(
        least_version > 10 && least_round > 10,
        "it never got to work: {least_version}, {least_round}"
    );
}
