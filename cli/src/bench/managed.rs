//! What is asked of a manager in a round: a load is declared, edited, and its children deleted all at once.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use tokio::time::Instant;

use super::{
    children::{Child, Seen},
    clock::{ServerClock, last_declared},
    control_plane::{AT_ONCE, Bench, PATIENCE},
    figures::percentile,
    load::{Families, Load, SERVICE},
    manager::Manager,
    place::refused,
};
use crate::failure::Failure;

/// The images that all services get at the edge, one after the other, and how the figures of that are told apart: what stays
/// as it is when all is done once more is not used up.
const CHURNS: [Churn; 2] = [
    Churn {
        image: "bench/edge:2",
        suffix: "",
    },
    Churn {
        image: "bench/edge:3",
        suffix: ".again",
    },
];

/// An edit of a service, and what came of it.
struct Edit {
    sent: Instant,
    /// Since when its Deployment carries it, at the latest: an API server that has more to do than it can tells watches of a
    /// change when it gets to it, and says in the object in which second it was made.
    carried: Instant,
    /// When a watch told of that.
    heard: Instant,
}

impl Edit {
    fn of(sent: Instant, child: &Child, clock: &ServerClock) -> Self {
        let heard = child.since;
        let declared = child.declared.and_then(|second| clock.end_of(second));
        Self {
            sent,
            carried: declared.map_or(heard, |declared| declared.min(heard)),
            heard,
        }
    }
}

/// All services edited, then all children deleted.
struct Churn {
    image: &'static str,
    suffix: &'static str,
}

impl Churn {
    /// What a figure of it is called.
    fn named(&self, figure: &str) -> String {
        format!("{figure}{}", self.suffix)
    }
}

impl Bench<'_> {
    /// All that is asked of a manager.
    pub(super) async fn managed(&mut self, manager: &Manager) -> Result<(), Failure> {
        self.begin("declaring").await;
        self.declare(manager).await?;
        for churn in &CHURNS {
            self.begin("editing").await;
            self.edit(churn, manager).await?;
            self.begin("deleting all children").await;
            self.make_again(churn, manager).await?;
        }
        self.costs(manager).await?;
        self.begin("deleting everything").await;
        self.empty(manager).await
    }

    /// From the first resource that is declared to the last child that is there.
    async fn declare(&mut self, manager: &Manager) -> Result<(), Failure> {
        for (namespace, kind, object) in self.load.shared() {
            self.create(namespace, kind, object).await?;
        }
        let begun = Instant::now();
        self.declare_all().await?;
        let declared = begun.elapsed();
        let number = f64::from(self.load.size.services + self.load.size.jobs);
        self.took("declared_per_second", number / declared.as_secs_f64(), "resources/s");
        self.present("children_present_seconds", begun).await?;
        self.settle("children_settled_seconds", begun, manager).await?;
        let memory = manager.costs.memory()?;
        self.took("manager_rss_bytes", memory.resident, "bytes");
        Ok(())
    }

    /// Waits until neither Kubernetes nor the manager has anything left to do, and says after how long that was.
    async fn settle(&mut self, figure: impl Into<String>, begun: Instant, manager: &Manager) -> Result<(), Failure> {
        self.still(figure, begun).await?;
        manager.quiet().await;
        Ok(())
    }

    /// Edits every service; an edit is done when the Deployment at the edge carries it.
    async fn edit(&mut self, churn: &Churn, manager: &Manager) -> Result<(), Failure> {
        let begun = Instant::now();
        let (sent, clock) = self.send_edits(churn.image).await?;
        let edited = |seen: &Seen| {
            seen.values()
                .filter(|child| child.image.as_deref() == Some(churn.image))
                .count()
        };
        self.watched
            .until("all edits in the Deployments", PATIENCE, |seen| {
                edited(seen) >= sent.len()
            })
            .await?;
        let seen = self.watched.seen();
        let carrying = seen
            .values()
            .filter(|child| child.image.as_deref() == Some(churn.image));
        let edits: Vec<Edit> = carrying
            .filter_map(|child| Some(Edit::of(*sent.get(&child.owner.1)?, child, &clock)))
            .collect();
        let last = edits.iter().map(|edit| edit.carried).max().unwrap_or(begun);
        let number = f64::from(self.load.size.services);
        self.took(
            churn.named("edits_per_second"),
            number / (last - begun).as_secs_f64(),
            "edits/s",
        );
        self.waited(churn, "child", edits.iter().map(|edit| edit.carried - edit.sent));
        self.waited(churn, "watch", edits.iter().map(|edit| edit.heard - edit.sent));
        self.settle(churn.named("edits_settled_seconds"), begun, manager).await
    }

    /// How long edits took until that.
    fn waited(&mut self, churn: &Churn, until: &str, waits: impl Iterator<Item = Duration>) {
        let mut waits: Vec<f64> = waits.map(|wait| wait.as_secs_f64()).collect();
        waits.sort_by(f64::total_cmp);
        for percent in [50, 99] {
            let figure = churn.named(&format!("edit_to_{until}_p{percent}_seconds"));
            self.took(figure, percentile(&waits, percent), "s");
        }
    }

    /// Gives all services this image at the edge: when each was sent, by its name, and what the answers show of the API server's
    /// clock.
    async fn send_edits(&self, image: &str) -> Result<(BTreeMap<String, Instant>, ServerClock), Failure> {
        let edit = self.load.edit(image);
        let mut edits = stream::iter(self.load.services())
            .map(async |(namespace, number)| {
                let (name, sent) = (Load::name(number), Instant::now());
                let service = self
                    .plane
                    .api(SERVICE, namespace)
                    .patch(&name, &PatchParams::default(), &Patch::Merge(&edit))
                    .await
                    .map_err(refused)?;
                Ok::<_, Failure>((name, sent, last_declared(&service), Instant::now()))
            })
            .buffer_unordered(AT_ONCE);
        let (mut sent, mut clock) = (BTreeMap::new(), ServerClock::default());
        while let Some((name, at, taken, answered)) = edits.try_next().await? {
            sent.insert(name, at);
            if let Some(taken) = taken {
                clock.showed(taken, answered);
            }
        }
        Ok((sent, clock))
    }

    /// Deletes all children at once; they are made again when each is there under another uid.
    async fn make_again(&mut self, churn: &Churn, manager: &Manager) -> Result<(), Failure> {
        let before = self.watched.seen();
        let begun = Instant::now();
        // The very ones: what was made again under the name meanwhile stays.
        let this = |uid: &String| {
            let uid = Some(uid.clone());
            DeleteParams::background().grace_period(0).preconditions(Preconditions {
                uid,
                resource_version: None,
            })
        };
        // Not what Kubernetes makes of them: a ReplicaSet would make its pods again until it goes itself.
        let children = before.iter().filter(|(_, child)| Families::ours(&child.owner.0));
        self.delete(children.map(|(key, child)| (key.clone(), this(&child.uid))))
            .await?;
        self.watched
            .until("all children made again", PATIENCE, |seen| {
                let new = seen
                    .iter()
                    .filter(|(key, child)| before.get(key).is_none_or(|old| old.uid != child.uid));
                self.families
                    .complete_among(new.map(|(key, child)| (key.kind, child.owner.0.as_str())))
            })
            .await?;
        let again = Families::last_change(&self.watched.seen(), begun);
        self.took(churn.named("recreate_seconds"), again.as_secs_f64(), "s");
        self.settle(churn.named("recreate_settled_seconds"), begun, manager)
            .await?;
        let memory = manager.costs.memory()?;
        self.took(churn.named("manager_rss_after_churn_bytes"), memory.resident, "bytes");
        Ok(())
    }

    /// What the manager cost so far.
    async fn costs(&mut self, manager: &Manager) -> Result<(), Failure> {
        let counted = manager.counted().await?;
        let memory = manager.costs.memory()?;
        self.took("manager_rss_peak_bytes", memory.peak, "bytes");
        self.took("manager_cpu_seconds", manager.costs.processor_seconds()?, "s");
        if let Some(depth) = manager.deepest_queue() {
            self.took("queue_depth_peak", depth, "resources");
        }
        let calls = counted.by("skerry_api_requests_total", "verb");
        for (verb, number) in &calls {
            self.took(format!("api_calls.{verb}"), *number, "requests");
        }
        let answers = counted.by("skerry_api_requests_total", "code");
        let throttled = answers.get("429").copied().unwrap_or_default();
        self.took("api_calls_throttled", throttled, "requests");
        self.took("nodes_given_up", self.nodes_given_up().await?.into(), "nodes");
        Ok(())
    }

    /// Deletes everything that was declared.
    async fn empty(&mut self, manager: &Manager) -> Result<(), Failure> {
        let begun = Instant::now();
        self.delete_all().await?;
        self.settle("emptied_settled_seconds", begun, manager).await?;
        let memory = manager.costs.memory()?;
        self.took("manager_rss_emptied_bytes", memory.resident, "bytes");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn an_edit_is_carried_when_a_watch_tells_of_it_or_when_the_second_it_was_written_in_is_over() {
        let sent = Instant::now();
        let after = |seconds: u64| sent + Duration::from_secs(seconds);
        let second = |number| Timestamp::from_second(number).unwrap();
        let mut clock = ServerClock::default();
        clock.showed(second(100), after(0));
        let carried = |declared, heard| {
            let child = Child {
                uid: String::new(),
                owner: (String::new(), String::new()),
                image: None,
                since: after(heard),
                declared,
            };
            let edit = Edit::of(sent, &child, &clock);
            assert_eq!(edit.heard, after(heard));
            edit.carried
        };
        assert_eq!(carried(Some(second(104)), 30), after(5));
        assert_eq!(carried(Some(second(104)), 4), after(4));
        assert_eq!(carried(None, 30), after(30));
    }
}
