//! How time passes, and what it is waited for.

use std::{future::Future, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use skerry_globalmanager::run::kinds;
use skerry_sandbox::api::FaultHandle;
use tokio::time::{Instant, sleep};

use super::{MANAGER, World};
use crate::server::Server;

/// On a real control plane: what the manager does later than this is not waited for. What failed it tries again after a
/// second there.
const SOON: Duration = Duration::from_secs(3);
/// On a real control plane nobody waits longer than this for time to pass: its own waits are set to be shorter.
const LONG_ENOUGH: Duration = Duration::from_secs(8);
/// Clients have their watches end sooner.
const LONGER_THAN_WATCHES: Duration = Duration::from_secs(1200);

impl World {
    /// Lets everything that follows from what was done happen.
    pub async fn settle(&self) {
        match &self.api {
            Server::Sandbox(_) => self.wait(sleep(self.patience.get())).await,
            Server::Cluster(borrowed) => {
                let limit = self.patience.get() / 3;
                self.wait(borrowed.calm(limit, || self.manager_is_idle(SOON))).await;
            }
        }
    }

    /// Lets everything happen that is ever to come, what is tried again minutes later included.
    pub async fn rest(&self) {
        let time = Duration::from_secs(120).max(self.patience.get());
        match &self.api {
            Server::Sandbox(_) => self.wait(sleep(time)).await,
            Server::Cluster(borrowed) => {
                self.wait(borrowed.calm(time, || self.manager_is_idle(time))).await;
            }
        }
    }

    /// Lets time pass.
    pub async fn pass(&self, time: Duration) {
        match &self.api {
            Server::Sandbox(_) => self.wait(sleep(time)).await,
            Server::Cluster(_) => {
                self.wait(sleep(time.min(LONG_ENOUGH))).await;
                // What is due by then may take its time.
                self.settle().await;
            }
        }
    }

    /// Lets the manager's watches come to their end while it is answered nothing: in memory in their time, of which a minute
    /// passes at once.
    pub async fn end_watches(&self) {
        match &self.api {
            Server::Sandbox(_) => self.pass(LONGER_THAN_WATCHES).await,
            Server::Cluster(borrowed) => {
                let wire = &borrowed.wire;
                wire.end_watches(MANAGER);
                self.until("the end of all watches", async || {
                    (wire.watches(MANAGER) == 0).then_some(())
                })
                .await;
            }
        }
    }

    /// Lets all of a time pass, and whatever follows from that happen.
    pub async fn outlast(&self, time: Duration) {
        self.wait(sleep(time)).await;
        self.settle().await;
    }

    fn manager_is_idle(&self, time: Duration) -> bool {
        let manager = self.manager.borrow();
        let Some(manager) = manager.as_ref() else { return true };
        let hears = match &self.api {
            Server::Sandbox(_) => true,
            // Whoever has lost a watch may not have heard of the last change, and nor may whoever has one: its events come
            // when the API server finds the time.
            Server::Cluster(borrowed) => {
                let mut unheard = self.unheard.borrow_mut();
                unheard.retain(|(key, version)| !manager.engine.has_seen(key, *version));
                unheard.is_empty() && borrowed.wire.watches(MANAGER) >= kinds().watched().len()
            }
        };
        hears && manager.engine.idle(time)
    }

    /// Waits, and replaces a manager that is killed meanwhile.
    async fn wait(&self, end: impl Future<Output = ()>) {
        let mut end = std::pin::pin!(end);
        loop {
            let killers = self.killers.borrow().clone();
            let hit = |(killer, fault): &(usize, FaultHandle)| {
                let (killer, fault) = (*killer, fault.clone());
                async move {
                    fault.hit().await;
                    killer
                }
            };
            let mut hits: FuturesUnordered<_> = killers.iter().map(hit).collect();
            tokio::select! {
                Some(killer) = hits.next() => {
                    self.kills.borrow_mut().insert(killer);
                    self.kill_manager().await;
                    // It may have been in the midst of several.
                    self.killers.borrow_mut().retain(|(_, fault)| fault.hits() == 0);
                    self.start_manager();
                }
                () = &mut end => return,
            }
        }
    }

    /// Looks again every second until `seen` finds what it looks for, for ten virtual minutes at most; on a real control plane
    /// five times a second, for two.
    pub async fn until<T>(&self, what: &str, mut seen: impl AsyncFnMut() -> Option<T>) -> T {
        let (pause, limit) = match &self.api {
            Server::Sandbox(_) => (Duration::from_secs(1), 600),
            Server::Cluster(_) => (Duration::from_millis(200), 120),
        };
        let end = Instant::now() + Duration::from_secs(limit);
        while Instant::now() < end {
            if let Some(found) = seen().await {
                return found;
            }
            sleep(pause).await;
        }
        panic!("{what} was not seen within {limit} seconds");
    }
}
