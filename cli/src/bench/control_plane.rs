//! `skerry bench control-plane`: the manager on a control plane, with a load and with twice that, in turn, or each on a
//! control plane of its own, side by side.
//!
//! Each round has a manager, namespaces and a load of its own: declared, edited, its children deleted all at once, and
//! made again. Or it has no manager, and the bench writes the children. The nodes are stand-ins; the manager, the API server
//! and the controllers are what they are.

use std::{iter, path::PathBuf, time::Duration};

use futures::{
    StreamExt as _, TryStreamExt as _,
    future::{join_all, try_join_all},
    stream,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    api::{DeleteParams, PostParams},
    core::DynamicObject,
};
use serde_json::{Map, Value, json};
use skerry_workloads::ObjectKind;
use tokio::{sync::Barrier, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    alone,
    children::{Key, Seen, Watched},
    figures::{self, Round},
    load::{Families, Load, Size},
    manager::{Manager, Setup, check_processors},
    place::{Plane, load_of, refused},
};
use crate::failure::Failure;

/// The most namespaces that the first load is in, one a service; twice as much is in twice as many. Several controllers of
/// Kubernetes go through all of a namespace for each change in it, so what it recommends at most for one is 2,000
/// Deployments and 3,000 pods (sig-scalability, thresholds), of which 2,000 services would have 4,000 of each.
const NAMESPACES: u32 = 10;
/// Requests of the bench at once: about what many users together send.
pub(super) const AT_ONCE: usize = 32;
/// And those that delete: what is deleted is soon gone, and how fast it goes is not what is measured.
const DELETED_AT_ONCE: usize = 256;
/// Whatever takes longer has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(3600);
/// With nothing told of any child, Deployment or pod for so long, Kubernetes is taken to have nothing left to do.
const STILL: Duration = Duration::from_secs(3);
/// What to measure on.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig of an administrator of a control plane that nobody else uses; the bench makes namespaces and two nodes, and
    /// takes them away
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The same of another control plane: twice the load is measured there, beside the first, and not in turn with it. Both begin
    /// each thing together, so what the speed of a machine does that both share, and whose halves they have, is the same for both
    #[arg(long, value_name = "FILE")]
    beside: Option<PathBuf>,
    /// The processors that the manager has, as `taskset` names them: those of its control plane, where two share the machine
    #[arg(long, value_name = "LIST")]
    processors: Option<String>,
    /// The same of the manager beside
    #[arg(long, value_name = "LIST", requires = "beside")]
    beside_processors: Option<String>,
    /// How many services the first round has; the second has twice as many
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    services: u32,
    /// How many jobs the first round has; the second has twice as many
    #[arg(long, value_name = "M", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=20_000))]
    jobs: u32,
    /// How many rounds: the first load, twice as much, and so on from the beginning, of which the means are compared. Of one control
    /// plane, an odd number does not take for growth what becomes slower meanwhile, as machines do that are shared; two have as
    /// many each, so it is even
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
    let processors = [
        ("--processors", &args.processors),
        ("--beside-processors", &args.beside_processors),
    ];
    for (option, list) in processors {
        list.iter().try_for_each(|list| check_processors(option, list))?;
    }
    check_rounds(args.rounds, args.beside.is_some())?;
    let planes = join(&args).await?;
    let rounds = stop.run_until_cancelled(Box::pin(rounds(&planes, &args))).await;
    let left = leave(planes, args.rounds).await;
    let rounds = rounds.ok_or_else(|| Failure::new("the bench was interrupted", "run it again to see figures"))??;
    left?;
    figures::report("control_plane", &rounds, args.json).map(drop)
}

/// Of control planes side by side, each has as many rounds as the other: they go in step.
fn check_rounds(rounds: u32, beside: bool) -> Result<(), Failure> {
    if beside && rounds % 2 == 1 {
        return Err(Failure::new(
            format!("--rounds is {rounds}, of which two control planes cannot have half each"),
            "with --beside, give an even number of rounds",
        ));
    }
    Ok(())
}

/// Joins all control planes, or none.
async fn join(args: &Args) -> Result<Vec<Plane>, Failure> {
    let beside = args
        .beside
        .iter()
        .map(|file| (file, "--beside", &args.beside_processors));
    let mut planes = Vec::new();
    for (file, option, processors) in iter::once((&args.kubeconfig, "--kubeconfig", &args.processors)).chain(beside) {
        match Plane::join(file, option).await {
            Ok(plane) => planes.push(plane.with_manager_on(processors.clone())),
            Err(error) => {
                // Why nothing is measured is what has to be said, whatever becomes of the others.
                let _ = leave(planes, 0).await;
                return Err(error);
            }
        }
    }
    Ok(planes)
}

/// Leaves all of them, whatever comes of each.
async fn leave(planes: Vec<Plane>, rounds: u32) -> Result<(), Failure> {
    let left = join_all(planes.into_iter().map(|plane| plane.leave(rounds))).await;
    left.into_iter().collect()
}

/// All rounds in order, of which every other one has twice the load. Each control plane goes through its own one after the other,
/// in step with that of the other.
async fn rounds(planes: &[Plane], args: &Args) -> Result<Vec<Round>, Failure> {
    alone::check(planes).await?;
    let size = Size {
        services: args.services,
        jobs: args.jobs,
    };
    let step = Barrier::new(planes.len());
    let side_by_side = planes.iter().enumerate().map(async |(at, plane)| {
        let mut taken = Vec::new();
        for index in turns(args.rounds, at, planes.len()) {
            let (size, namespaces) = if index % 2 == 1 {
                (size.doubled(), 2 * NAMESPACES)
            } else {
                (size, NAMESPACES)
            };
            let round = round(plane, &step, index + 1, size, namespaces, args.unmanaged).await?;
            taken.push((index, round.repeated(index / 2).beside(planes.len() - 1)));
        }
        Ok::<_, Failure>(taken)
    });
    let mut rounds = try_join_all(side_by_side)
        .await?
        .into_iter()
        .flatten()
        .collect::<Vec<_>>();
    rounds.sort_by_key(|(index, _)| *index);
    Ok(rounds.into_iter().map(|(_, round)| round).collect())
}

/// Which of so many rounds, from nought on, one of so many control planes has.
fn turns(rounds: u32, plane: usize, planes: usize) -> impl Iterator<Item = u32> {
    (0..rounds).skip(plane).step_by(planes)
}

/// How many of these nodes were given up, which were ready since these times before, and are now.
fn given_up(before: &[Option<Time>], now: &[Option<Time>]) -> u32 {
    let stayed = |(before, now): (&Option<Time>, &Option<Time>)| before.is_some() && before == now;
    before.iter().zip(now).map(|node| u32::from(!stayed(node))).sum()
}

/// A round with a load of this size, in so many namespaces at most.
async fn round(
    plane: &Plane,
    step: &Barrier,
    number: u32,
    size: Size,
    namespaces: u32,
    unmanaged: bool,
) -> Result<Round, Failure> {
    let namespace = plane.namespace(number).await?;
    let namespaces = plane
        .namespaces_of_load(&namespace, size.services.min(namespaces))
        .await?;
    let conditions = conditions(plane, size, namespaces.len()).await?;
    let load = Load::new(size, namespaces, &plane.cloud, &plane.edge);
    let mut bench = Bench {
        plane,
        step,
        watched: Watched::start(
            &plane.client,
            &load_of(&namespace),
            [ObjectKind::DEPLOYMENT, ObjectKind::SERVICE, ObjectKind::POD],
        ),
        families: load.families()?,
        number,
        ready_since: plane.ready_since().await?,
        round: Round::new(conditions),
        load,
    };
    if unmanaged {
        bench.unmanaged().await?;
    } else {
        let folder = tempfile::tempdir().map_err(|error| Failure::new(error, "see whether the disk is full"))?;
        let kubeconfig = plane.kubeconfig(&namespace, folder.path())?;
        let setup = Setup::new(&kubeconfig, &namespace, folder.path())?
            .everywhere()
            .on(plane.manager_on.as_deref());
        let manager = Manager::start(&setup).await?;
        bench.managed(&manager).await?;
        manager.end().await;
    }
    bench.say("cleaning up");
    plane.clean(number).await?;
    bench.say("done");
    Ok(bench.round)
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

/// A round under way.
pub(super) struct Bench<'a> {
    pub(super) plane: &'a Plane,
    pub(super) watched: Watched,
    pub(super) families: Families,
    pub(super) load: Load,
    /// Where all that are measured side by side wait for each other.
    step: &'a Barrier,
    /// Of the round, from one on.
    number: u32,
    /// Since when the nodes had been ready when it began.
    ready_since: [Option<Time>; 2],
    round: Round,
}

impl Bench<'_> {
    /// Takes down a figure, and says it at once: whoever interrupts a long bench knows what there was until then.
    pub(super) fn took(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        let name = name.into();
        self.say(&format!("{name}: {value:.1} {unit}"));
        self.round.took(name, value, unit);
    }

    /// Begins something that is measured, together with the others that are measured beside. A shared machine becomes slower and
    /// faster from minute to minute, and is then the same for all.
    pub(super) async fn begin(&self, what: &str) {
        self.step.wait().await;
        self.say(what);
    }

    /// How many of the nodes were given up since the round began. Then all their pods are told of, beside what is measured.
    pub(super) async fn nodes_given_up(&self) -> Result<u32, Failure> {
        let now = self.plane.ready_since().await?;
        Ok(given_up(&self.ready_since, &now))
    }

    /// Tells whoever waits how far the round is.
    fn say(&self, what: &str) {
        super::say(&format!("round {}: {what}", self.number));
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

    /// Deletes these one by one, for an API server gives up a large collection after a minute. Some may be gone already.
    pub(super) async fn delete(&self, objects: impl Iterator<Item = (Key, DeleteParams)>) -> Result<(), Failure> {
        stream::iter(objects)
            .map(async |(key, how)| {
                let api = self.plane.api(key.kind, &key.namespace);
                match api.delete(&key.name, &how).await {
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
                    other => other.map(drop).map_err(refused),
                }
            })
            .buffer_unordered(DELETED_AT_ONCE)
            .try_collect()
            .await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_control_planes_the_other_has_all_rounds_with_twice_the_load() {
        let of = |plane, planes| turns(6, plane, planes).collect::<Vec<_>>();
        assert_eq!(of(0, 1), [0, 1, 2, 3, 4, 5]);
        assert_eq!((of(0, 2), of(1, 2)), (vec![0, 2, 4], vec![1, 3, 5]));
    }

    #[test]
    fn a_node_that_is_not_ready_or_anew_was_given_up() {
        let [begun, later] = [0, 60].map(|at| jiff::Timestamp::from_second(at).ok().map(Time));
        let before = [begun.clone(), begun.clone()];
        assert_eq!(given_up(&before, &before), 0);
        assert_eq!(given_up(&before, &[begun.clone(), later.clone()]), 1);
        assert_eq!(given_up(&before, &[None, later]), 2);
        assert_eq!(given_up(&[None, begun.clone()], &[None, begun]), 1);
    }

    #[test]
    fn two_control_planes_have_as_many_rounds_each() {
        for (rounds, beside, fits) in [(2, true, true), (3, true, false), (4, true, true), (3, false, true)] {
            assert_eq!(check_rounds(rounds, beside).is_ok(), fits, "{rounds} {beside}");
        }
    }
}
