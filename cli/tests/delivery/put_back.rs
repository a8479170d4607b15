//! A node's store that is replaced by a copy of before, while managers are killed and others lead: what was reported and
//! answered takes no effect again, and what is reported from then on does, whatever its number.

use skerry_sandbox::ApiServer;
use skerry_tests::{
    definitions::KINDS,
    federated_job::FederatedJob,
    loopback::{asked_again, serve},
};
use tempfile::TempDir;

use crate::{
    NODE,
    parts::{Manager, Node, last_words},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_old_store_says_again_takes_no_effect_and_what_it_says_from_then_on_does() {
    let mut world = World::start().await;
    // While the manager is away, this waits in the store of which the copy is made.
    world.manager.kill();
    for round in 1..=4 {
        world.report("first", round).await;
    }
    let copy = world.node.copy();
    world.manager.start();
    world.node.start();
    world.rounds_are(&["1 first", "2 first", "3 first", "4 first"]).await;
    // A trainer that was made anew begins anew.
    world.report("second", 1).await;
    world.report("second", 2).await;
    world.rounds_are(&["1 second", "2 second"]).await;

    for _again in 0..2 {
        world.manager.kill();
        world.node.put_back(&copy);
        world.manager.start();
        world.node.start();
        world.all_is_answered().await;
        world.rounds_are(&["1 second", "2 second"]).await;
    }

    // Where the copy counts on from, these numbers were given before.
    world.report("second", 3).await;
    world.rounds_are(&["1 second", "2 second", "3 second"]).await;
}

struct World {
    manager: Manager,
    node: Node,
    job: FederatedJob,
    _api: ApiServer,
    _folder: TempDir,
}

impl World {
    /// With a job whose trainer is on the node, which has heard of it.
    async fn start() -> Self {
        // Another test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let api = serve(folder.path(), &KINDS).await;
        let mut manager = Manager::new(folder.path(), "manager", &folder.path().join("kubeconfig"));
        let mut node = Node::new(folder.path(), NODE, manager.port);
        manager.start();
        node.start();
        let job = FederatedJob::declare(api.client(), NODE).await;
        assert!(job.is_some(), "there is no trainer: {}", last_words(&manager.log));
        let world = Self {
            manager,
            node,
            job: job.unwrap(),
            _api: api,
            _folder: folder,
        };
        let there = world.manager.all_acknowledged(1, 2).await;
        assert!(there, "{}", world.words());
        world
    }

    async fn report(&self, began: &str, round: u64) {
        let taken = self.job.report(self.node.workers, began, round).await;
        assert!(taken, "{}", self.words());
    }

    /// Waits until the manager has answered all that the node has to say.
    async fn all_is_answered(&self) {
        let answered = || async {
            let accepted = self.manager.counted().await?.value("edge_reports_accepted_total")?;
            let waits = self.node.counted().await?.value("localcontroller_outbox_reports")?;
            (accepted > 0 && waits == 0).then_some(())
        };
        assert!(asked_again(answered).await.is_some(), "{}", self.words());
    }

    async fn rounds_are(&self, wanted: &[&str]) {
        let wanted: Vec<_> = wanted.iter().map(ToString::to_string).collect();
        let stand = self.job.rounds_are(&wanted).await;
        assert!(stand, "not {wanted:?}: {}", self.words());
    }

    fn words(&self) -> String {
        let (manager, node) = (last_words(&self.manager.log), last_words(&self.node.log));
        format!("manager:\n{manager}\nnode:\n{node}")
    }
}
