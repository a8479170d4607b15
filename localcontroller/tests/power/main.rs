//! A node whose power fails, again and again, while it is cut off from its manager. Of its disk survives what was synced,
//! and of the rest whatever happens to. When the manager is back it hears of all that was promised to a worker, and the
//! node has all that it had acknowledged.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the lints know tests only by their attribute, not what these call"
)]

mod disk;
#[path = "../support/mod.rs"]
mod support;

use std::{collections::BTreeSet, net::SocketAddr, sync::Mutex, time::Duration};

use disk::Disk;
use futures::future::join_all;
use rand::Rng as _;
use serde_json::json;
use skerry_edge::{Item, Object, ObjectKey, report::Report};
use skerry_localcontroller::{
    Args,
    store::{OutboxLimits, Store},
};
use support::{Cloud, Root, random, rounds};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// How often the power fails.
const FAILURES: usize = 12;
/// Workers that report at once.
const WORKERS: u64 = 4;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

fn job() -> ObjectKey {
    ObjectKey::new("federatedlearningjob", "default", "job")
}

fn declared() -> Item {
    Item::Object(Object {
        key: job(),
        uid: "u".to_owned(),
        generation: 1,
        body: json!({}).into(),
    })
}

/// A local controller with everything that belongs to it, from power to power.
struct Life {
    runtime: Runtime,
    workers: SocketAddr,
}

impl Life {
    fn begin(root: &Root, manager: &str, workers: SocketAddr) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let args = Args {
            gm_address: Some(manager.to_owned()),
            node_name: Some(support::NODE.to_owned()),
            bind_address: Some(workers.ip().to_string()),
            bind_port: Some(workers.port().to_string()),
            rootfs_mount_dir: Some(root.path().display().to_string()),
            ..Args::default()
        };
        let config = args.resolve().unwrap();
        // How it ends when the power fails nobody is there to see.
        runtime.spawn(skerry_localcontroller::run(config, CancellationToken::new()));
        Self { runtime, workers }
    }

    /// Has a worker report this round; whether it was promised that it is kept.
    async fn report(&self, client: &reqwest::Client, worker: u64, round: u64) -> bool {
        let url = format!("http://{}/sedna/workers/w-{worker}/info", self.workers);
        let message = json!({
            "name": format!("w-{worker}"), "namespace": "default", "ownerName": "job",
            "ownerKind": "federatedlearningjob", "kind": "train", "status": "running",
            "ownerInfo": {"currentRound": round}, "results": [],
        });
        let asked = client.post(url).header("Content-Type", "application/json");
        let answer = asked.body(message.to_string()).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    async fn is_up(&self, client: &reqwest::Client) {
        let up = async {
            let health = format!("http://{}/healthz", self.workers);
            let asked = async || {
                client
                    .get(&health)
                    .send()
                    .await
                    .and_then(reqwest::Response::error_for_status)
            };
            while asked().await.is_err() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, up).await.expect("it comes up");
    }

    /// Ends it, wherever it is. Its port is free then.
    async fn end(self) {
        spawn_blocking(|| self.runtime.shutdown_timeout(PATIENCE))
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_was_promised_to_a_worker_is_lost_by_power_failures_without_the_manager() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (mut random, disk, root) = (random(), Disk::default(), Root::new());
    disk.serve();
    // At an address that no connection comes from: whoever asks before it is up must not be given its port.
    let free = TcpListener::bind("127.0.0.9:0").await.unwrap();
    let workers = free.local_addr().unwrap();
    drop(free);
    let mut cloud = Cloud::up().await;
    cloud.declare(declared());
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let life = Life::begin(&root, &cloud.address(), workers);
    cloud.acknowledged().await;
    cloud.stop();

    let (mut life, mut next, promised) = (Some(life), 1, Mutex::new(BTreeSet::new()));
    for _ in 0..FAILURES {
        let running = life
            .take()
            .unwrap_or_else(|| Life::begin(&root, &cloud.address(), workers));
        running.is_up(&client).await;
        let fails_at = disk.syncs() + random.random_range(1..60);
        let reporting = async {
            while disk.syncs() < fails_at {
                let said = join_all((0..WORKERS).map(async |worker| {
                    let round = next + worker;
                    if running.report(&client, worker, round).await {
                        promised.lock().unwrap().insert(round);
                    }
                }));
                // In the middle of what is being written, most times.
                tokio::select! {
                    _ = said => {}
                    () = until(&disk, fails_at) => {}
                }
                next += WORKERS;
            }
        };
        timeout(PATIENCE, reporting).await.expect("what is reported is written");
        disk.fail(&mut random);
        running.end().await;
    }
    let promised = promised.into_inner().unwrap();
    assert!(promised.len() > 10 * FAILURES, "{promised:?}");
    assert_eq!(cloud.reports(), []);
    let store = Store::open(&root.store_path(), OutboxLimits::default()).await.unwrap();
    assert_eq!(store.holds().await.unwrap(), 1, "what it had acknowledged it has");
    assert!(store.moved_aside().is_empty(), "it was never damaged");
    store.close().await;

    let running = Life::begin(&root, &cloud.address(), workers);
    cloud.start().await;
    let all = |reports: &[Report]| {
        rounds(reports)
            .into_iter()
            .collect::<BTreeSet<_>>()
            .is_superset(&promised)
    };
    cloud.reported(all).await;
    assert_eq!(cloud.gaps(), 0);
    // What changes at once may be much.
    for generation in 1..=2 {
        for number in 0..200 {
            cloud.declare(large(number, generation));
        }
        timeout(PATIENCE, cloud.acknowledged())
            .await
            .expect("all of it is stored");
    }
    running.end().await;
}

fn large(number: u32, generation: i64) -> Item {
    Item::Object(Object {
        key: ObjectKey::new("dataset", "default", format!("large-{number}")),
        uid: format!("u-{number}"),
        generation,
        body: json!({"text": generation.to_string().repeat(2_000)}).into(),
    })
}

/// Returns when so much was synced.
async fn until(disk: &Disk, syncs: u64) {
    while disk.syncs() < syncs {
        tokio::task::yield_now().await;
    }
}
