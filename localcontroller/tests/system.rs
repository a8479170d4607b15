//! The real local controller against a manager that is the protocol's own state machine: killed at any moment, without
//! the manager, with it again.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the lints know tests only by their attribute, not what these call"
)]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::ErrorKind,
    os::unix::fs::PermissionsExt as _,
    time::Duration,
};

use rand::Rng as _;
use serde_json::{Value, json};
use skerry_edge::{Credential, Item, ItemKey, Object, ObjectKey, ReportPayload, report::Report};
use support::{Cloud, Process, Root, random, rounds};
use tokio::time::sleep;

const OBJECTS: u32 = 1_000;
const EDITS: i64 = 5;

fn job(name: &str) -> ObjectKey {
    ObjectKey::new("federatedlearningjob", "default", name)
}

fn object(key: &ObjectKey, generation: i64, body: Value) -> Item {
    Item::Object(Object {
        key: key.clone(),
        uid: format!("uid-of-{}", key.name),
        generation,
        body: body.into(),
    })
}

fn edit(name: u32, edit: i64) -> Item {
    let padding = "x".repeat(usize::try_from(name).unwrap() % 700);
    object(&job(&name.to_string()), edit, json!({"edit": edit, "padding": padding}))
}

/// What a trainer says of a round.
fn round(job: &str, round: u64) -> Value {
    json!({
        "name": "w", "namespace": "default", "ownerName": job, "ownerKind": "federatedlearningjob",
        "kind": "train", "status": "completed", "ownerInfo": {"currentRound": round}, "results": [],
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bursts_of_edits_arrive_whoever_is_killed_meanwhile() {
    let mut random = random();
    let root = Root::new();
    let mut cloud = Cloud::up().await;
    let mut process = Process::start(&root, &cloud.address());
    for burst in 0..EDITS {
        for name in 0..OBJECTS {
            cloud.declare(edit(name, burst + 1));
            // Some are deleted, and most of those made again by the next burst.
            if random.random_ratio(1, 20) {
                cloud.withdraw(&job(&name.to_string()).into());
            }
            if random.random_ratio(1, 500) {
                process.kill().await;
                process = Process::start(&root, &cloud.address());
            }
            if random.random_ratio(1, 1_500) {
                cloud.start().await;
            }
        }
        // Into the middle of what is stored for this burst.
        sleep(Duration::from_millis(random.random_range(0..400))).await;
        process.kill().await;
        process = Process::start(&root, &cloud.address());
    }
    cloud.acknowledged().await;
    process.kill().await;
    assert_eq!(root.rows().await, cloud.declared());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_stored_whenever_it_is_killed() {
    let mut random = random();
    let root = Root::new();
    let cloud = Cloud::up().await;
    for generation in 1..=10 {
        let process = Process::start(&root, &cloud.address());
        for name in 0..random.random_range(1..200) {
            cloud.declare(edit(name, generation));
        }
        cloud.acknowledged().await;
        process.kill().await;
        assert_eq!(root.rows().await, cloud.declared());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_that_were_taken_without_the_manager_arrive_when_it_comes() {
    let mut random = random();
    let root = Root::new();
    let mut cloud = Cloud::new().await;
    cloud.declare(object(&job("job"), 1, json!({})));
    let (mut process, mut taken) = (Process::start(&root, &cloud.address()), Vec::new());
    for number in 1..=60 {
        if process.post("w", &round("job", number)).await {
            taken.push(number);
        }
        if random.random_ratio(1, 10) {
            process.kill().await;
            process = Process::start(&root, &cloud.address());
        }
    }
    assert!(taken.len() > 50, "{taken:?}");
    assert_eq!(cloud.reports(), []);
    cloud.start().await;
    cloud.reported(|reports| reports.len() >= taken.len()).await;
    let arrived = rounds(&cloud.reports());
    assert!(arrived.is_sorted(), "{arrived:?}");
    let (arrived, taken): (BTreeSet<_>, BTreeSet<_>) = (arrived.into_iter().collect(), taken.into_iter().collect());
    assert!(arrived.is_superset(&taken), "lost: {:?}", taken.difference(&arrived));
    assert_eq!(cloud.gaps(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_round_arrives_whoever_is_killed_meanwhile() {
    let mut random = random();
    let root = Root::new();
    let mut cloud = Cloud::up().await;
    cloud.declare(object(&job("job"), 1, json!({})));
    let (mut process, mut taken) = (Process::start(&root, &cloud.address()), BTreeSet::new());
    for number in 1..=100 {
        if process.post("w", &round("job", number)).await {
            taken.insert(number);
        }
        if random.random_ratio(1, 15) {
            process.kill().await;
            process = Process::start(&root, &cloud.address());
        }
        if random.random_ratio(1, 25) {
            cloud.start().await;
        }
    }
    let all = |reports: &[Report]| rounds(reports).into_iter().collect::<BTreeSet<_>>().is_superset(&taken);
    cloud.reported(all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_that_nobody_has_fetched_for_a_week_are_given_up_and_rounds_are_not() {
    let root = Root::new();
    let mut cloud = Cloud::up().await;
    cloud.declare(object(&job("job"), 1, json!({})));
    let service = ObjectKey::new("jointinferenceservice", "default", "s");
    cloud.declare(object(&service, 1, json!({})));
    let process = Process::start(&root, &cloud.address());
    cloud.acknowledged().await;
    cloud.stop();
    let figures = json!({
        "name": "w", "namespace": "default", "ownerName": "s", "ownerKind": "jointinferenceservice",
        "kind": "inference", "ownerInfo": {"inferenceNumber": 1}, "results": [],
    });
    assert!(process.post("w", &figures).await);
    assert!(process.post("w", &round("job", 1)).await);
    process.kill().await;

    // As if it had been open for so long since.
    root.age(Duration::from_secs(8 * 24 * 60 * 60));
    let process = Process::start(&root, &cloud.address());
    process.says("were too old, and were given up").await;
    cloud.start().await;
    cloud.gave_up(1).await;
    cloud.reported(|reports| rounds(reports) == [1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_a_newer_release_is_left_as_it_is_and_the_program_says_why_it_ends() {
    let root = Root::new();
    let cloud = Cloud::up().await;
    cloud.declare(edit(1, 1));
    let process = Process::start(&root, &cloud.address());
    cloud.acknowledged().await;
    process.kill().await;
    root.set_schema(99);
    let before = fs::read(root.store_path()).unwrap();
    let (status, log) = Process::start(&root, &cloud.address()).ended().await;
    assert_eq!(status.code(), Some(1));
    let sentence = "has schema version 99, this release knows up to 6: run the newer release, or move the file away";
    assert!(log.iter().any(|line| line.contains(sentence)), "{log:#?}");
    assert_eq!(fs::read(root.store_path()).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_said_and_what_came_meanwhile_is_there_when_there_is_room() {
    let root = Root::new();
    let cloud = Cloud::up().await;
    cloud.declare(object(&job("job"), 1, json!({})));
    let Some(process) = Process::start_on_disk(&root, &cloud.address(), 8).await else {
        return;
    };
    cloud.acknowledged().await;
    let others = process.disk(&root).join("others");
    let full = fs::write(&others, vec![0; 8 << 20]).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);

    for name in 0..OBJECTS {
        cloud.declare(edit(name, 1));
    }
    let mut taken = Vec::new();
    let refused = loop {
        let number = taken.len() as u64 + 1;
        assert!(number < 10_000, "the disk never fills");
        match process.status_of_post("w", &round("job", number)).await {
            Some(200) => taken.push(number),
            refused => break refused,
        }
    };
    assert_eq!(refused, Some(507));
    let said = process.get("/readyz").await;
    assert!(said.contains("store: the disk of the store is full"), "{said}");

    fs::remove_file(&others).unwrap();
    cloud.acknowledged().await;
    let number = taken.len() as u64 + 1;
    assert!(process.post("w", &round("job", number)).await);
    taken.push(number);
    cloud.reported(|reports| rounds(reports) == taken).await;
    let said = process.get("/readyz").await;
    assert!(said.starts_with("ok\n"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_told_to_end_delivers_what_it_has() {
    let root = Root::new();
    let cloud = Cloud::up().await;
    cloud.declare(object(&job("job"), 1, json!({})));
    let process = Process::start(&root, &cloud.address());
    cloud.acknowledged().await;
    for number in 1..=200 {
        assert!(process.post("w", &round("job", number)).await);
    }
    process.terminate().await;
    assert_eq!(rounds(&cloud.reports()), (1..=200).collect::<Vec<_>>());
    assert_eq!(root.store().await.fetch(0, 1).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dataset_is_counted_and_again_after_a_restart_without_the_manager() {
    let root = Root::new();
    fs::write(root.path().join("a.csv"), "h\n1\n2\n").unwrap();
    let mut cloud = Cloud::up().await;
    let key = ObjectKey::new("dataset", "default", "d");
    cloud.declare(object(
        &key,
        1,
        json!({"spec": {"url": "/a.csv", "format": "csv", "nodeName": "edge-1"}}),
    ));
    let process = Process::start(&root, &cloud.address());
    let last_is = |count| {
        move |reports: &[Report]| {
            let last = reports.last().map(|report| &report.payload);
            last == Some(&ReportPayload::DatasetSamples { count })
        }
    };
    cloud.reported(last_is(2)).await;
    cloud.stop();
    process.kill().await;
    fs::write(root.path().join("a.csv"), "h\n1\n2\n3\n").unwrap();
    let _process = Process::start(&root, &cloud.address());
    cloud.start().await;
    cloud.reported(last_is(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_is_kept_for_us_alone_and_never_logged() {
    let root = Root::new();
    let cloud = Cloud::up().await;
    let key = ObjectKey::new("dataset", "default", "d");
    let spec = json!({"spec": {"url": "s3://bucket/key", "format": "csv", "credentialName": "s3"}});
    cloud.declare(object(&key, 1, spec));
    let secret = "a-very-secret-word";
    let fields = [
        ("s3-endpoint", "127.0.0.1:1"),
        ("ACCESS_KEY_ID", secret),
        ("SECRET_ACCESS_KEY", secret),
    ];
    cloud.declare(Item::Credential(Credential {
        owner: key,
        uid: "uid-of-d".to_owned(),
        secret: "s3".to_owned(),
        fields: BTreeMap::from(fields.map(|(name, value)| (name.to_owned(), value.to_owned()))),
    }));
    let process = Process::start_with(
        &root,
        &cloud.address(),
        "skerry_localcontroller=trace,skerry_edge=trace",
    );
    cloud.acknowledged().await;
    cloud.reported(|reports| !reports.is_empty()).await;
    let log = process.terminate().await;
    assert!(log.len() > 2);
    assert!(!log.iter().any(|line| line.contains(secret)), "{log:#?}");
    assert_eq!(root.rows().await, cloud.declared());
    for file in fs::read_dir(root.store_path().parent().unwrap()).unwrap() {
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

/// Who can tell that a store is an old one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KnownBy {
    /// By the mark beside it.
    Node,
    /// By how far it has heard of the node, if it has led since then.
    Manager,
    Both,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_store_put_back_is_brought_up_to_date() {
    let root = Root::new();
    let mut cloud = Cloud::up().await;
    for name in 0..50 {
        cloud.declare(edit(name, 1));
    }
    let sentence = "this store is not as the node last had it: an old one was put back, ";
    let told = async |process: Process, times: u32| {
        let (ready, figures) = (process.get("/readyz").await, process.get("/metrics").await);
        let log = process.terminate().await;
        let figure = format!("\nskerry_localcontroller_store_out_of_step_total {times}\n");
        assert!(figures.contains(&figure), "{figures}");
        assert!(ready.starts_with("ok\n"), "it takes reports: {ready}");
        let line = format!("\nstore out of step (1 since the start): {sentence}");
        assert_eq!(ready.contains(&line), times == 1, "{ready}");
        assert_eq!(ready.contains(sentence), times == 1, "{ready}");
        assert_eq!(log.iter().any(|line| line.contains(sentence)), times == 1, "{log:#?}");
    };
    let process = Process::start(&root, &cloud.address());
    cloud.acknowledged().await;
    told(process, 0).await;
    let old = fs::read(root.store_path()).unwrap();
    for name in 0..50 {
        cloud.declare(edit(name, 2));
    }
    cloud.withdraw(&ItemKey::from(job("7")));
    let process = Process::start(&root, &cloud.address());
    cloud.acknowledged().await;
    // It goes on where it was.
    told(process, 0).await;
    let put_back = async |cloud: &Cloud, known_by: KnownBy, generation: i64| {
        fs::write(root.store_path(), &old).unwrap();
        if known_by == KnownBy::Manager {
            assert_ne!(root.rows().await, cloud.declared());
            fs::remove_file(format!("{}.mark", root.store_path().display())).unwrap();
        }
        let process = Process::start(&root, &cloud.address());
        // An edit that shows when the node is up to date.
        cloud.declare(edit(99, generation));
        cloud.acknowledged().await;
        told(process, 1).await;
        assert_eq!(root.rows().await, cloud.declared());
    };
    put_back(&cloud, KnownBy::Manager, 1).await;
    put_back(&cloud, KnownBy::Both, 2).await;
    cloud.start().await;
    let process = Process::start(&root, &cloud.address());
    cloud.acknowledged().await;
    // That another manager leads means nothing.
    told(process, 0).await;
    put_back(&cloud, KnownBy::Node, 3).await;
    cloud.stop();
    fs::write(root.store_path(), &old).unwrap();
    told(Process::start(&root, &cloud.address()), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_of_another_empty_cluster_deletes_nothing_even_if_it_does_not_ask_where_the_node_belongs() {
    let root = Root::new();
    let cloud = Cloud::up().await;
    for name in 0..50 {
        cloud.declare(edit(name, 1));
    }
    let process = Process::start(&root, &cloud.address());
    cloud.acknowledged().await;
    process.kill().await;
    let held = root.rows().await;
    assert_eq!(held, cloud.declared());

    let mut stranger = Cloud::of_another_cluster().await;
    let process = Process::start(&root, &stranger.address());
    let refused = stranger.done_with().await;
    process.kill().await;
    assert_eq!(root.rows().await, held);
    assert!(refused.is_some_and(|why| why.contains("belongs to cluster")));
    stranger.stop();

    let process = Process::start(&root, &cloud.address());
    cloud.declare(edit(7, 2));
    cloud.acknowledged().await;
    process.kill().await;
    assert_eq!(root.rows().await, cloud.declared());
}
