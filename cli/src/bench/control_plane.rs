//! `skerry bench control-plane`: the manager on a control plane, with a load and with twice that, in turn.
//!
//! Each round has a manager, namespaces and a load of its own: declared, edited, its children deleted all at once, and
//! made again. Or it has no manager, and the bench writes the children. The nodes are stand-ins; the manager, the API server
//! and the controllers are what they are.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
};
use serde_json::{Map, Value, json};
use skerry_workloads::ObjectKind;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    alone,
    children::{Key, Seen, Watched},
    figures::{self, Round, percentile},
    load::{Families, Load, SERVICE, Size},
    manager::{Manager, Setup},
    place::{Plane, load_of, refused},
};
use crate::failure::Failure;

/// The most namespaces that the first load is in, one a service; twice as much is in twice as many. Several controllers of
/// Kubernetes go through all of a namespace for each change in it, so what it recommends at most for one is 2,000
/// Deployments and 3,000 pods (sig-scalability, thresholds), of which 2,000 services would have 4,000 of each.
const NAMESPACES: u32 = 10;
/// Requests of the bench at once: about what many users together send.
const AT_ONCE: usize = 32;
/// Whatever takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(1800);
/// With nothing told of any child, Deployment or pod for so long, Kubernetes is taken to have nothing left to do.
const STILL: Duration = Duration::from_secs(3);
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

/// What to measure on.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig of an administrator of a control plane that nobody else uses; the bench makes namespaces and two nodes, and
    /// takes them away
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// How many services the first round has; the second has twice as many
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    services: u32,
    /// How many jobs the first round has; the second has twice as many
    #[arg(long, value_name = "M", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=20_000))]
    jobs: u32,
    /// How many rounds: the first load and twice as much in turn, of which the means are compared. With an odd number, what
    /// becomes slower meanwhile, as machines do that are shared, is not taken for what grows
    #[arg(long, value_name = "R", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=9))]
    rounds: u32,
    /// Write the children with the bench itself, with no manager beside, and measure nothing else: what the control plane
    /// takes for them anyhow, and how that grows
    #[arg(long)]
    unmanaged: bool,
    /// Print one JSON object a line: name, value, unit, conditions
    #[arg(long)]
    json: bool,
}

/// Measures, prints, and cleans up.
pub(super) async fn run(args: Args, stop: CancellationToken) -> Result<(), Failure> {
    let plane = Plane::join(&args.kubeconfig).await?;
    let size = Size {
        services: args.services,
        jobs: args.jobs,
    };
    let rounds = stop.run_until_cancelled(Box::pin(rounds(&plane, size, &args))).await;
    let left = plane.leave(args.rounds).await;
    let rounds = rounds.ok_or_else(|| Failure::new("the bench was interrupted", "run it again to see figures"))??;
    left?;
    figures::report("control_plane", &rounds, args.json).map(drop)
}

async fn rounds(plane: &Plane, size: Size, args: &Args) -> Result<Vec<Round>, Failure> {
    alone::check(&plane.client).await?;
    let loads = [(size, NAMESPACES), (size.doubled(), 2 * NAMESPACES)];
    let mut rounds = Vec::new();
    for (index, (size, namespaces)) in (0..args.rounds).zip(loads.into_iter().cycle()) {
        let taken = round(plane, index + 1, size, namespaces, args.unmanaged).await?;
        rounds.push(taken.repeated(index / 2));
    }
    Ok(rounds)
}

/// A round with a load of this size, in so many namespaces at most.
async fn round(plane: &Plane, number: u32, size: Size, namespaces: u32, unmanaged: bool) -> Result<Round, Failure> {
    let namespace = plane.namespace(number).await?;
    let namespaces = plane
        .namespaces_of_load(&namespace, size.services.min(namespaces))
        .await?;
    let conditions = conditions(plane, size, namespaces.len()).await?;
    let load = Load::new(size, namespaces, &plane.cloud, &plane.edge);
    let mut bench = Bench {
        plane,
        watched: Watched::start(
            &plane.client,
            &load_of(&namespace),
            [ObjectKind::DEPLOYMENT, ObjectKind::SERVICE, ObjectKind::POD],
        ),
        families: load.families()?,
        round: Round::new(conditions),
        load,
    };
    if unmanaged {
        bench.unmanaged(number).await?;
    } else {
        let folder = tempfile::tempdir().map_err(|error| Failure::new(error, "see whether the disk is full"))?;
        let kubeconfig = plane.kubeconfig(&namespace, folder.path())?;
        let setup = Setup::new(&kubeconfig, &namespace, folder.path())?.everywhere();
        let manager = Manager::start(&setup).await?;
        bench.managed(number, &manager).await?;
        manager.end().await;
    }
    say(number, "cleaning up");
    plane.clean(number).await?;
    say(number, "done");
    Ok(bench.round)
}

pub(super) fn say(round: u32, what: &str) {
    super::say(&format!("round {round}: {what}"));
}

async fn conditions(plane: &Plane, size: Size, namespaces: usize) -> Result<Map<String, Value>, Failure> {
    let server = plane.version().await?;
    let own = [
        ("services", json!(size.services)),
        ("jobs", json!(size.jobs)),
        ("namespaces", json!(namespaces)),
    ];
    Ok(figures::conditions(own, &server))
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

/// A round under way.
pub(super) struct Bench<'a> {
    pub(super) plane: &'a Plane,
    watched: Watched,
    families: Families,
    pub(super) load: Load,
    round: Round,
}

impl Bench<'_> {
    /// Takes down a figure, and says it at once: whoever interrupts a long bench knows what there was until then.
    fn took(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        let name = name.into();
        super::say(&format!("{name}: {value:.1} {unit}"));
        self.round.took(name, value, unit);
    }

    /// All that is asked of a manager.
    async fn managed(&mut self, number: u32, manager: &Manager) -> Result<(), Failure> {
        say(number, "declaring");
        self.declare(manager).await?;
        for churn in &CHURNS {
            say(number, "editing");
            self.edit(churn, manager).await?;
            say(number, "deleting all children");
            self.make_again(churn, manager).await?;
        }
        self.costs(manager).await?;
        say(number, "deleting everything");
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

    /// Waits until all children are there, and says after how long that was.
    pub(super) async fn present(&mut self, figure: &str, begun: Instant) -> Result<(), Failure> {
        self.watched
            .until("all children", PATIENCE, |seen| self.families.complete(seen))
            .await?;
        let present = Families::last_change(&self.watched.seen(), begun);
        self.took(figure, present.as_secs_f64(), "s");
        Ok(())
    }

    /// Waits until neither Kubernetes nor the manager has anything left to do, and says after how long that was.
    async fn settle(&mut self, figure: impl Into<String>, begun: Instant, manager: &Manager) -> Result<(), Failure> {
        self.still(figure, begun).await?;
        manager.quiet().await;
        Ok(())
    }

    /// Waits until Kubernetes has nothing left to do, and says after how long that was. The pods that follow from Deployments
    /// take longer than these, and what is measured next would be measured beside what is left of them: the more of it, the
    /// larger the load.
    pub(super) async fn still(&mut self, figure: impl Into<String>, begun: Instant) -> Result<(), Failure> {
        let last = self.watched.still(STILL, PATIENCE).await?;
        self.took(figure, last.saturating_duration_since(begun).as_secs_f64(), "s");
        Ok(())
    }

    /// Declares all services and jobs, and says what the API server made of each.
    pub(super) async fn declare_all(&self) -> Result<Vec<DynamicObject>, Failure> {
        stream::iter(self.load.resources())
            .map(|(namespace, kind, object)| self.create(namespace, kind, object))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    pub(super) async fn create(
        &self,
        namespace: &str,
        kind: ObjectKind,
        object: Value,
    ) -> Result<DynamicObject, Failure> {
        let object = serde_json::from_value(object).map_err(Failure::defect)?;
        let api = self.plane.api(kind, namespace);
        api.create(&PostParams::default(), &object).await.map_err(refused)
    }

    /// Edits every service; an edit is done when the Deployment at the edge carries it.
    async fn edit(&mut self, churn: &Churn, manager: &Manager) -> Result<(), Failure> {
        let edit = self.load.edit(churn.image);
        let begun = Instant::now();
        let sent: Vec<(String, Instant)> = stream::iter(self.load.services())
            .map(async |(namespace, number)| {
                let (name, sent) = (Load::name(number), Instant::now());
                self.plane
                    .api(SERVICE, namespace)
                    .patch(&name, &PatchParams::default(), &Patch::Merge(&edit))
                    .await
                    .map_err(refused)?;
                Ok::<_, Failure>((name, sent))
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
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
        let carried: BTreeMap<&str, Instant> = seen
            .values()
            .filter(|child| child.image.as_deref() == Some(churn.image))
            .map(|child| (child.owner.1.as_str(), child.since))
            .collect();
        let last = carried.values().max().copied().unwrap_or(begun);
        let mut waits: Vec<f64> = sent
            .iter()
            .filter_map(|(name, sent)| Some((*carried.get(name.as_str())? - *sent).as_secs_f64()))
            .collect();
        waits.sort_by(f64::total_cmp);
        let number = f64::from(self.load.size.services);
        self.took(
            churn.named("edits_per_second"),
            number / (last - begun).as_secs_f64(),
            "edits/s",
        );
        self.took(churn.named("edit_to_child_p50_seconds"), percentile(&waits, 50), "s");
        self.took(churn.named("edit_to_child_p99_seconds"), percentile(&waits, 99), "s");
        self.settle(churn.named("edits_settled_seconds"), begun, manager).await
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
        let children = before.iter().map(|(key, child)| (key.clone(), this(&child.uid)));
        self.delete(children).await?;
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

    /// Deletes these one by one, for an API server gives up a large collection after a minute. Some may be gone already.
    async fn delete(&self, objects: impl Iterator<Item = (Key, DeleteParams)>) -> Result<(), Failure> {
        stream::iter(objects)
            .map(async |(key, how)| {
                let api = self.plane.api(key.kind, &key.namespace);
                match api.delete(&key.name, &how).await {
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
                    other => other.map(drop).map_err(refused),
                }
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
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

    /// Deletes all services and jobs, and waits for the end of their children.
    pub(super) async fn delete_all(&self) -> Result<(), Failure> {
        let resources = self.load.resources().map(|(namespace, kind, resource)| {
            let name = resource.pointer("/metadata/name").and_then(Value::as_str);
            let key = Key {
                kind,
                namespace: namespace.to_owned(),
                name: name.unwrap_or_default().to_owned(),
            };
            (key, DeleteParams::background())
        });
        self.delete(resources).await?;
        let ours = |seen: &Seen| seen.values().filter(|child| Families::ours(&child.owner.0)).count();
        self.watched
            .until("the end of all children", PATIENCE, |seen| ours(seen) == 0)
            .await
    }
}
