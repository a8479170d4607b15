//! Nothing is lost between manager and node, and nothing comes after what is newer: both as real processes over real sockets,
//! killed by SIGKILL at random moments while a thousand objects are edited in bursts.
//!
//! `SKERRY_OBJECTS` says how many objects, where there are to be more. The seed is printed; `SKERRY_SEED` replays the choice of
//! what is killed after which edit (the operating system's scheduling is not replayed).

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::unwrap_used)]

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures::{StreamExt as _, stream};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use skerry_crds::sedna::v1alpha1::{Dataset, DatasetSpec};
use skerry_tests::{definitions::KINDS, loopback::serve};
use tokio::sync::Notify;

use parts::{Manager, Node, declared, differences, last_words};

mod parts;
mod put_back;
mod takeover;
mod way;

const NODE: &str = "edge-1";
const OBJECTS: u64 = 1_000;
const EDITS: u64 = 5;
const KILLS: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_ends_equal_to_what_was_declared_and_never_goes_back() {
    let seed = asked("SKERRY_SEED").unwrap_or_else(rand::random);
    let objects = asked("SKERRY_OBJECTS").unwrap_or(OBJECTS);
    println!("SKERRY_SEED={seed}");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let api = serve(folder.path(), &KINDS).await;
    let mut manager = Manager::new(folder.path(), "manager", &folder.path().join("kubeconfig"));
    let mut node = Node::new(folder.path(), NODE, manager.port);
    manager.start();
    node.start();
    assert!(manager.all_acknowledged(1, 0).await, "{}", last_words(&manager.log));
    node.write_down();
    node.start();

    let datasets: Api<Dataset> = Api::namespaced(api.client(), "default");
    let (edited, progress) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let edits = tokio::spawn(edit_all(objects, datasets.clone(), edited.clone(), progress.clone()));
    let mut random = StdRng::seed_from_u64(seed);
    let mut moments: Vec<_> = (0..KILLS).map(|_| random.random_range(1..objects * EDITS)).collect();
    moments.sort_unstable();
    for moment in moments {
        while edited.load(Ordering::SeqCst) < moment {
            progress.notified().await;
        }
        // Each is killed before it is started.
        if random.random_bool(0.5) {
            node.start();
        } else {
            manager.start();
        }
    }
    edits.await.unwrap();

    let declared = declared(&datasets, NODE).await;
    assert_eq!(declared.len() as u64, objects - objects.div_ceil(10));
    let settled = manager.all_acknowledged(1, declared.len()).await;
    let (wrong, extra) = differences(&declared, &node.held());
    let (came, back) = node.came();
    println!(
        "{objects} objects edited {EDITS} times each: {came} versions came to the node, {back} of them out of order"
    );
    assert!(
        settled && wrong + extra + usize::try_from(back).unwrap() == 0 && came >= declared.len() as u64,
        "seed {seed}: all acknowledged: {settled}, {wrong} missing or old, {extra} too many, {back} of {came} out of order
manager:\n{}\nnode:\n{}",
        last_words(&manager.log),
        last_words(&node.log)
    );
}

/// What a variable says, if it is set.
fn asked(variable: &str) -> Option<u64> {
    let said = std::env::var(variable).ok()?;
    Some(said.parse().expect("a number"))
}

/// Creates the objects, edits each five times in a burst, and deletes every tenth.
async fn edit_all(objects: u64, datasets: Api<Dataset>, edited: Arc<AtomicU64>, progress: Arc<Notify>) {
    stream::iter(0..objects)
        .for_each_concurrent(16, |object| {
            let (datasets, edited, progress) = (datasets.clone(), edited.clone(), progress.clone());
            async move {
                let name = format!("d{object}");
                let spec = DatasetSpec {
                    url: "/data/0".into(),
                    format: "txt".into(),
                    node_name: NODE.into(),
                    ..DatasetSpec::default()
                };
                datasets
                    .create(&PostParams::default(), &Dataset::new(&name, spec))
                    .await
                    .unwrap();
                for edit in 1..=EDITS {
                    let patch = json!({"spec": {"url": format!("/data/{edit}")}});
                    datasets
                        .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                        .await
                        .unwrap();
                    edited.fetch_add(1, Ordering::SeqCst);
                    progress.notify_one();
                }
                if object % 10 == 0 {
                    datasets.delete(&name, &DeleteParams::default()).await.unwrap();
                }
            }
        })
        .await;
}
