//! Nothing is lost between manager and node, and nothing comes after what is newer: both as real processes over real sockets,
//! killed by SIGKILL at random moments while a thousand objects are edited in bursts, beside one that does not parse. Whoever is
//! killed has been connected to the other one before, and edits are under way.
//!
//! `SKERRY_OBJECTS` says how many objects, where there are to be more. The seed is printed; `SKERRY_SEED` replays the choice of
//! what is killed after which edit (the operating system's scheduling is not replayed).

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::unwrap_used)]

use futures::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use skerry_crds::sedna::v1alpha1::{Dataset, DatasetSpec};
use skerry_tests::{
    definitions::{KINDS, accept_anything},
    loopback::serve,
};
use tokio::sync::{Semaphore, watch};

use parts::{Manager, Node, declared, differences, expire, last_words};

mod another_cluster;
mod parts;
mod put_back;
mod takeover;
mod way;

const NODE: &str = "edge-1";
const OBJECTS: u64 = 1_000;
const EDITS: u64 = 5;
const KILLS: u64 = 12;

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
    let leases: Api<Lease> = Api::namespaced(api.client(), "default");
    place_one_that_does_not_parse(api.client()).await;
    let edits = Edits::of(objects, datasets.clone());
    let kills = async {
        let mut random = StdRng::seed_from_u64(seed);
        let portion = objects * EDITS / (KILLS + 1);
        for before in (0..KILLS).map(|kill| kill * portion) {
            edits.allow(portion);
            edits.made(before + random.random_range(1..portion)).await;
            // Each is killed before it is started.
            if random.random_bool(0.5) {
                node.start();
            } else {
                manager.start();
                expire(&leases).await;
            }
            edits.made(before + portion).await;
            // Or else whoever is killed next might be alone.
            let there = declared(&datasets, NODE).await.len();
            let words = || format!("{}\n{}", last_words(&manager.log), last_words(&node.log));
            assert!(manager.all_acknowledged(1, there).await, "seed {seed}: {}", words());
        }
        edits.allow(objects * EDITS - KILLS * portion);
    };
    tokio::join!(edits.make(), kills);

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

async fn place_one_that_does_not_parse(client: Client) {
    accept_anything(&client, "datasets").await;
    let kind = ApiResource::erase::<Dataset>(&());
    let datasets: Api<DynamicObject> = Api::namespaced_with(client, "default", &kind);
    let mut broken = DynamicObject::new("broken", &kind);
    broken.data = json!({"spec": {"url": {"not": "text"}, "format": 7, "nodeName": [NODE]}});
    datasets.create(&PostParams::default(), &broken).await.unwrap();
}

/// What a variable says, if it is set.
fn asked(variable: &str) -> Option<u64> {
    let said = std::env::var(variable).ok()?;
    Some(said.parse().expect("a number"))
}

/// Objects that are made, edited each five times in a burst, and of which every tenth is deleted.
struct Edits {
    objects: u64,
    datasets: Api<Dataset>,
    /// One for each edit that may be made.
    allowed: Semaphore,
    made: watch::Sender<u64>,
}

impl Edits {
    /// None of them is allowed yet.
    fn of(objects: u64, datasets: Api<Dataset>) -> Self {
        Self {
            objects,
            datasets,
            allowed: Semaphore::new(0),
            made: watch::Sender::new(0),
        }
    }

    /// Lets so many more be made.
    fn allow(&self, edits: u64) {
        self.allowed.add_permits(edits.try_into().unwrap());
    }

    /// Waits until so many are made, with all that belongs to them.
    async fn made(&self, edits: u64) {
        self.made.subscribe().wait_for(|made| *made >= edits).await.unwrap();
    }

    /// Makes all, as they are allowed.
    async fn make(&self) {
        stream::iter(0..self.objects)
            .for_each_concurrent(16, |object| self.make_of(object))
            .await;
    }

    async fn make_of(&self, object: u64) {
        let name = format!("d{object}");
        for edit in 1..=EDITS {
            self.allowed.acquire().await.unwrap().forget();
            if edit == 1 {
                let spec = DatasetSpec {
                    url: "/data/0".into(),
                    format: "txt".into(),
                    node_name: NODE.into(),
                    ..DatasetSpec::default()
                };
                let dataset = Dataset::new(&name, spec);
                self.datasets.create(&PostParams::default(), &dataset).await.unwrap();
            }
            let patch = Patch::Merge(json!({"spec": {"url": format!("/data/{edit}")}}));
            let patched = self.datasets.patch(&name, &PatchParams::default(), &patch).await;
            patched.unwrap();
            if edit == EDITS && object.is_multiple_of(10) {
                self.datasets.delete(&name, &DeleteParams::default()).await.unwrap();
            }
            self.made.send_modify(|made| *made += 1);
        }
    }
}
