//! Two managers that take over from each other while nodes are connected: the one that leads is killed, then ended with
//! grace, and then it hangs, and does not know when it wakes up that it is deposed. Each time objects are edited, made and
//! deleted before, meanwhile and after, and a trainer is in another round.
//!
//! All of them are of one version, in plain and over mutual TLS, or as in the midst of an upgrade: the first manager and the first
//! node, which is the trainer's, are older. So each version leads in turn, and has a node of each.

use std::{future::Future, path::Path};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use skerry_crds::sedna::v1alpha1::{Dataset, DatasetSpec};
use skerry_sandbox::ApiServer;
use skerry_tests::{definitions::KINDS, federated_job::FederatedJob, loopback::serve};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::{
    parts::{Counted, LEASE, Link, Manager, Node, Version, declared, differences, expire, last_words},
    way::{To, Way},
};

const NODES: [&str; 2] = ["edge-1", "edge-2"];
/// Objects on each node.
const OBJECTS: usize = 60;
/// Edits of each.
const EDITS: usize = 5;
/// When the trainer began.
const BEGAN: &str = "2026-01-01 00:00:00";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_regressed_when_managers_take_over() {
    let world = World::start([Version::built(), Version::built()], Link::Plain).await;
    Box::pin(take_over(world)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_regressed_over_mutual_tls() {
    let world = World::start([Version::built(), Version::built()], Link::Tls).await;
    Box::pin(take_over(world)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the program of an older version, which SKERRY_OLDER names: `.ci/older` builds it"]
async fn nothing_is_lost_doubled_or_regressed_between_two_versions() {
    let world = World::start([Version::older(), Version::built()], Link::Plain).await;
    Box::pin(take_over(world)).await;
}

async fn take_over(mut world: World) {
    world.trainer.goes_on(&world.nodes).await;
    let World {
        leader,
        leases,
        datasets,
        trainer,
        nodes,
        ..
    } = &mut world;
    let killed = async {
        leader.manager.kill();
        trainer.goes_on(nodes).await;
        expire(leases).await;
    };
    edit(datasets, "killed", killed).await;
    world.follow().await;
    world.compare().await;
    world.restart();

    world.trainer.goes_on(&world.nodes).await;
    let World {
        leader,
        datasets,
        trainer,
        nodes,
        ..
    } = &mut world;
    let ended = async { tokio::join!(leader.manager.end(), trainer.goes_on(nodes)).0 };
    let status = edit(datasets, "ended", ended).await;
    assert!(status.success(), "{status}");
    world.follow().await;
    world.compare().await;
    world.restart();

    // It stops in the midst of everything, and time goes on.
    world.trainer.goes_on(&world.nodes).await;
    let World {
        leader,
        standby,
        leases,
        datasets,
        front,
        trainer,
        nodes,
        ..
    } = &mut world;
    let hung = async {
        // Between two renewals: one that is under way then would tell it as soon as it wakes up that it is too late.
        renewed(leases).await;
        leader.manager.signal(Signal::SIGSTOP);
        trainer.goes_on(nodes).await;
        front.point(To::Ports(vec![standby.manager.port]));
        expire(leases).await;
    };
    edit(datasets, "hung", hung).await;
    world.follow().await;
    // It wakes up without the API server, which would tell it that it is deposed, and nodes come to it.
    let World { standby, front, .. } = &mut world;
    standby.api.point(To::Nowhere);
    front.point(To::Ports(vec![standby.manager.port]));
    front.carries(1).await;
    standby.manager.signal(Signal::SIGCONT);
    // Whichever is first: a node tells it, or its own clock, by which its Lease has ended.
    let stands_down = |counted: &Counted| {
        counted.value("edge_refused_total{reason=\"deposed\"}") > Some(0) || counted.value("leader") == Some(0)
    };
    assert!(
        standby.manager.until(stands_down).await,
        "it takes itself for the leader: {}",
        world.words()
    );
    // Nobody is there who would have put right what it did.
    world.compare().await;
}

/// A manager, and its way to the API server.
struct Candidate {
    manager: Manager,
    api: Way,
}

impl Candidate {
    async fn new(folder: &Path, name: &str, version: Version, link: Link) -> Self {
        let kubeconfig = std::fs::read_to_string(folder.join("kubeconfig")).unwrap();
        let mut kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
        let server = &mut kubeconfig["clusters"][0]["cluster"]["server"];
        let (_, port) = server.as_str().unwrap().rsplit_once(':').unwrap();
        let api = Way::new(To::Ports(vec![port.parse().unwrap()])).await;
        *server = json!(format!("http://127.0.0.1:{}", api.port));
        let own = folder.join(format!("{name}.kubeconfig"));
        std::fs::write(&own, kubeconfig.to_string()).unwrap();
        Self {
            manager: Manager::new(folder, name, &own).of(version).by(link),
            api,
        }
    }

    async fn leads(&self) -> bool {
        self.manager.until(|counted| counted.value("leader") == Some(1)).await
    }
}

/// A trainer on the first node, and what its job should say of it.
struct Trainer {
    job: FederatedJob,
    rounds: Vec<String>,
}

impl Trainer {
    /// It reports its next round.
    async fn goes_on(&mut self, nodes: &[Node; 2]) {
        let round = self.rounds.len() as u64 + 1;
        let node = &nodes[0];
        assert!(
            self.job.report(node.workers, BEGAN, round).await,
            "round {round}: {}",
            last_words(&node.log)
        );
        self.rounds.push(format!("{round} {BEGAN}"));
    }
}

struct World {
    leader: Candidate,
    standby: Candidate,
    nodes: [Node; 2],
    /// The way of nodes to managers: as a Service leads it, to either of those that are there.
    front: Way,
    trainer: Trainer,
    datasets: Api<Dataset>,
    leases: Api<Lease>,
    _api: ApiServer,
    _folder: TempDir,
}

impl World {
    /// Managers and nodes of these versions.
    async fn start(versions: [Version; 2], link: Link) -> Self {
        // Another test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let api = serve(folder.path(), &[&KINDS[..], &["EdgeNode"]].concat()).await;
        let [first, second] = versions;
        let mut leader = Candidate::new(folder.path(), "manager-1", first.clone(), link).await;
        let mut standby = Candidate::new(folder.path(), "manager-2", second.clone(), link).await;
        let front = Way::new(To::Ports(vec![leader.manager.port, standby.manager.port])).await;
        leader.manager.start();
        assert!(leader.leads().await, "{}", last_words(&leader.manager.log));
        standby.manager.start();
        let kubeconfig = folder.path().join("kubeconfig");
        let node = async |name: &str, version: Version| {
            let node = Node::new(folder.path(), name, front.port).of(version);
            node.by(link, &kubeconfig).await
        };
        let mut nodes = [node(NODES[0], first).await, node(NODES[1], second).await];
        nodes.iter_mut().for_each(Node::start);
        let there = leader.manager.all_acknowledged(NODES.len() as u64, 0).await;
        assert!(there, "{}", last_words(&leader.manager.log));
        for node in &mut nodes {
            node.write_down();
            node.start();
        }
        let job = FederatedJob::declare(api.client(), NODES[0]).await;
        let there = leader.manager.all_acknowledged(NODES.len() as u64, 2).await;
        assert!(there, "{}", last_words(&leader.manager.log));
        let trainer = Trainer {
            job: job.expect("there is a trainer"),
            rounds: Vec::new(),
        };
        Self {
            leader,
            standby,
            nodes,
            front,
            trainer,
            datasets: Api::namespaced(api.client(), "default"),
            leases: Api::namespaced(api.client(), "default"),
            _api: api,
            _folder: folder,
        }
    }

    /// Waits until the standby leads, and nodes have all that they should, while none of them was started anew; and until
    /// whatever they reported stands where it should, and what they report now.
    async fn follow(&mut self) {
        std::mem::swap(&mut self.leader, &mut self.standby);
        assert!(self.leader.leads().await, "nobody takes over: {}", self.words());
        // The job itself is one of them.
        let mut objects = 1;
        for node in NODES {
            objects += declared(&self.datasets, node).await.len();
        }
        let acknowledged = self.leader.manager.all_acknowledged(NODES.len() as u64, objects).await;
        assert!(acknowledged, "{objects} objects: {}", self.words());
        assert!(self.nodes.iter_mut().all(Node::runs), "{}", self.words());
        self.trainer.goes_on(&self.nodes).await;
        let Trainer { job, rounds } = &self.trainer;
        assert!(job.rounds_are(rounds).await, "{rounds:?}: {}", self.words());
    }

    /// Ends the nodes, and compares what they hold with what is declared; nothing came to them after what is newer.
    async fn compare(&mut self) {
        let held: Vec<_> = self.nodes.iter_mut().map(|node| (node.held(), node.came())).collect();
        for (name, (held, (came, back))) in NODES.iter().zip(&held) {
            let wanted = declared(&self.datasets, name).await;
            let (wrong, extra) = differences(&wanted, held);
            assert!(
                !wanted.is_empty() && wrong + extra == 0 && *back == 0 && *came >= wanted.len() as u64,
                "{name}: {wrong} of {} missing or old, {extra} too many, {back} of {came} out of order\n{}",
                wanted.len(),
                self.words()
            );
        }
    }

    /// All run again, the one that led before as a standby.
    fn restart(&mut self) {
        self.standby.manager.start();
        self.nodes.iter_mut().for_each(Node::start);
    }

    fn words(&self) -> String {
        let managers = [&self.leader, &self.standby].map(|candidate| &candidate.manager.log);
        let logs = managers.into_iter().chain(self.nodes.iter().map(|node| &node.log));
        let words: Vec<_> = logs
            .map(|log| format!("{}:\n{}", log.display(), last_words(log)))
            .collect();
        words.join("\n")
    }
}

/// Makes objects and edits each several times in a row, some of which are deleted then; in the midst of it, something
/// happens.
async fn edit<T>(datasets: &Api<Dataset>, stage: &str, happens: impl Future<Output = T>) -> T {
    let objects = OBJECTS * NODES.len();
    let (edited, mut progress) = watch::channel(0);
    let edited = &edited;
    let edits = stream::iter(0..objects).for_each_concurrent(16, |object| async move {
        let name = format!("{stage}-{object}");
        let spec = DatasetSpec {
            url: "/data/0".into(),
            format: "txt".into(),
            node_name: NODES[object % NODES.len()].into(),
            ..DatasetSpec::default()
        };
        let dataset = Dataset::new(&name, spec);
        datasets.create(&PostParams::default(), &dataset).await.unwrap();
        for edit in 1..=EDITS {
            let patch = Patch::Merge(json!({"spec": {"url": format!("/data/{edit}")}}));
            datasets.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            edited.send_modify(|edited| *edited += 1);
        }
        if object % 10 < NODES.len() {
            datasets.delete(&name, &DeleteParams::default()).await.unwrap();
        }
    });
    let happens = async {
        progress
            .wait_for(|edited| *edited >= objects * EDITS / 2)
            .await
            .unwrap();
        happens.await
    };
    tokio::join!(edits, happens).1
}

/// Waits until the holder of the Lease has renewed it.
async fn renewed(leases: &Api<Lease>) {
    let renewal = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
    let before = renewal(&leases.get(LEASE).await.unwrap());
    let is_newer = move |lease: Option<&Lease>| lease.is_some_and(|lease| renewal(lease) != before);
    await_condition(leases.clone(), LEASE, is_newer).await.unwrap();
}
