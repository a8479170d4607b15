//! A cluster of one job, as small as it can be and still be wrong about: an API server that keeps names unique and a
//! kubelet that does what it is told to.

use std::{collections::BTreeSet, sync::LazyLock, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};
use skerry_crds::{
    names::annotation,
    sedna::v1alpha1::{FederatedLearningJob, FederatedLearningJobStatus, JobWorker, Outcome},
};

use super::super::inputs::{Place, trainers};
use crate::{
    Applied, Children, Finding, Kind, Live, Lookup, Make, ObjectKind, Observed, Plan, Reference, References, Settings,
    render::owner::Owner, testing,
};

/// The aggregator's place; a trainer's is its number and one.
pub(super) const AGGREGATOR: usize = 0;
pub(super) const FIRST: usize = 1;
pub(super) const SECOND: usize = 2;

/// The cluster.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) job: FederatedLearningJob,
    pub(super) references: References,
    pub(super) children: Vec<Live>,
    pub(super) now: Timestamp,
    /// Writes of children so far.
    pub(super) writes: usize,
    /// Names of pods made so far, in order.
    pub(super) made: Vec<String>,
    uids: usize,
    /// The uids of trainers that have met their aggregator.
    connected: BTreeSet<String>,
    /// The places whose trainer, this one or one before, has met the aggregator with this uid.
    met: BTreeSet<(String, usize)>,
}

impl World {
    /// A job that nobody has looked at yet.
    pub(super) fn new() -> Self {
        static FIXTURE: LazyLock<(FederatedLearningJob, References)> =
            LazyLock::new(|| testing::resource(&testing::fixture("federated-learning.yaml")));
        let (job, references) = &*FIXTURE;
        Self {
            job: job.clone(),
            references: references.clone(),
            children: vec![],
            now: "2024-05-01T10:00:00Z".parse().unwrap(),
            writes: 0,
            made: vec![],
            uids: 0,
            connected: BTreeSet::new(),
            met: BTreeSet::new(),
        }
    }

    /// A job whose workers all run.
    pub(super) fn running() -> Self {
        let mut world = Self::new();
        world.settle();
        for place in 0..world.places() {
            world.start(place);
        }
        world.settle();
        world
    }

    pub(super) fn places(&self) -> usize {
        self.job.spec.training_workers.len() + 1
    }

    pub(super) fn seen(&self) -> Observed {
        let mut children = self.children.clone();
        children.sort_by_key(|live| (live.kind, live.name().to_owned()));
        Observed {
            children,
            pods: vec![],
            references: self.references.clone(),
            now: self.now,
        }
    }

    pub(super) fn plan(&self) -> Plan {
        self.job.plan(&self.seen(), &Settings::default())
    }

    pub(super) fn status(&self) -> FederatedLearningJobStatus {
        self.job.status.clone().unwrap_or_default()
    }

    /// One pass of the engine, killed before its `crash`th write if there is one. Says whether it wrote anything.
    pub(super) fn pass(&mut self, crash: Option<usize>) -> bool {
        let plan = self.plan();
        let writes = self.writes;
        let mut left = crash.unwrap_or(usize::MAX);
        if let Children::Exactly(children) = &plan.children {
            for child in children {
                let there = self
                    .children
                    .iter()
                    .any(|live| live.kind == child.kind && live.name() == child.name);
                let (Make::Create(body) | Make::Apply(body)) = &child.make else {
                    continue;
                };
                if there {
                    continue;
                }
                if left == 0 {
                    return true;
                }
                left -= 1;
                self.make(child.kind, body.clone());
            }
            let named = |live: &Live| {
                children
                    .iter()
                    .any(|child| child.kind == live.kind && child.name == live.name())
            };
            let strays: Vec<_> = self
                .children
                .iter()
                .filter(|live| !named(live) && !live.terminating())
                .cloned()
                .collect();
            for stray in strays {
                if left == 0 {
                    return true;
                }
                left -= 1;
                self.writes += 1;
                self.delete(stray.name());
            }
        }
        if left == 0 {
            return true;
        }
        let applied = Applied {
            children: self.seen().children,
            failures: vec![],
        };
        let status = self.job.status(&self.seen(), &plan, &applied, self.now);
        let changed = self.job.status.as_ref() != Some(&status);
        self.job.status = Some(status);
        changed || self.writes > writes
    }

    /// Passes until one writes nothing.
    pub(super) fn settle(&mut self) -> usize {
        for passes in 0..20 {
            if !self.pass(None) {
                return passes;
            }
        }
        panic!("does not settle: {}", self.sketch());
    }

    fn make(&mut self, kind: ObjectKind, mut object: Value) {
        self.uids += 1;
        self.writes += 1;
        object["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        object["metadata"]["creationTimestamp"] = json!(self.now);
        if kind == ObjectKind::POD {
            object["status"] = json!({"phase": "Pending"});
            self.made.push(object["metadata"]["name"].as_str().unwrap().to_owned());
        }
        self.children.push(Live { kind, object });
    }

    /// Deletes as the API server does: a pod that has ended goes at once, another one when the kubelet is done with it.
    pub(super) fn delete(&mut self, name: &str) {
        let now = json!(self.now);
        self.children.retain_mut(|live| {
            if live.name() != name {
                return true;
            }
            let over = matches!(live.text("/status/phase"), "Succeeded" | "Failed");
            live.object["metadata"]["deletionTimestamp"] = now.clone();
            live.kind == ObjectKind::POD && !over
        });
    }

    /// The kubelet is done with a pod that was deleted.
    pub(super) fn gone(&mut self, place: usize) {
        let name = self.pod_name(place);
        self.children.retain(|live| live.name() != name || !live.terminating());
    }

    pub(super) fn pod_name(&self, place: usize) -> String {
        let owner = Owner::of(&self.job);
        match place.checked_sub(1) {
            None => Place::aggregator(&self.job).pod_name(&owner),
            Some(index) => trainers(&self.job).nth(index).unwrap().pod_name(&owner),
        }
    }

    pub(super) fn pod(&self, place: usize) -> Option<&Live> {
        let name = self.pod_name(place);
        self.children
            .iter()
            .find(|live| live.kind == ObjectKind::POD && live.name() == name)
    }

    fn set_status(&mut self, place: usize, status: &Value) {
        let name = self.pod_name(place);
        for live in self.children.iter_mut().filter(|live| live.name() == name) {
            live.object["status"] = status.clone();
        }
    }

    pub(super) fn phase(&self, place: usize) -> &str {
        self.pod(place).map_or("", |pod| pod.text("/status/phase"))
    }

    /// The containers start. A trainer meets its aggregator if both run.
    pub(super) fn start(&mut self, place: usize) {
        if self.phase(place) == "Pending" {
            self.set_status(place, &json!({"phase": "Running"}));
        }
        let uid = self
            .pod(AGGREGATOR)
            .filter(|pod| !pod.terminating())
            .map(|pod| pod.uid().to_owned());
        if self.phase(AGGREGATOR) == "Running" {
            let meets = |place: &usize| self.phase(*place) == "Running" && self.works_with(*place) == uid;
            let places: Vec<_> = (1..self.places()).filter(meets).collect();
            let pods = places.iter().filter_map(|place| self.pod(*place));
            let pods: Vec<_> = pods.map(|pod| pod.uid().to_owned()).collect();
            self.connected.extend(pods);
            let uid = uid.unwrap_or_default();
            // A pod that is gone before it was ever recorded is not known to have been there.
            let recorded = self.status().workers;
            let is_recorded = |place: &usize| {
                let record = recorded.get(*place).and_then(|record| record.pod_uid.as_deref());
                record.is_some() && record == self.pod(*place).map(Live::uid)
            };
            let met: Vec<_> = places
                .into_iter()
                .filter(is_recorded)
                .map(|place| (uid.clone(), place))
                .collect();
            self.met.extend(met);
        }
    }

    /// Whether the trainer in this place has met its aggregator: one that has not waits for ever.
    pub(super) fn is_connected(&self, place: usize) -> bool {
        self.pod(place).is_some_and(|pod| self.connected.contains(pod.uid()))
    }

    /// Whether the aggregator has had all that it needs: a trainer may be gone when it has done its part.
    pub(super) fn has_met_all(&self) -> bool {
        let uid = self.pod(AGGREGATOR).map(|pod| pod.uid().to_owned()).unwrap_or_default();
        (1..self.places()).all(|place| self.met.contains(&(uid.clone(), place)))
    }

    /// A container that runs ends badly, and the kubelet is about to start it again.
    pub(super) fn crash(&mut self, place: usize) {
        if self.phase(place) == "Running" {
            let (waiting, ended) = (json!({"reason": "CrashLoopBackOff"}), json!({"exitCode": 1}));
            let status = json!({"name": "trainer", "state": {"waiting": waiting}, "lastState": {"terminated": ended}});
            self.set_status(place, &json!({"phase": "Running", "containerStatuses": [status]}));
        }
    }

    /// It ended badly, and runs again.
    pub(super) fn restart(&mut self, place: usize) {
        let ended = json!({"exitCode": 1});
        let status = json!({"name": "trainer", "state": {"running": {}}, "lastState": {"terminated": ended}});
        self.set_status(place, &json!({"phase": "Running", "containerStatuses": [status]}));
    }

    /// The containers end, well or not, as far as they run.
    pub(super) fn end(&mut self, place: usize, code: i32) {
        if self.phase(place) == "Running" {
            let phase = if code == 0 { "Succeeded" } else { "Failed" };
            let ended = json!({"exitCode": code, "reason": "Error", "finishedAt": self.now});
            let containers = json!([{"name": "trainer", "state": {"terminated": ended}}]);
            self.set_status(place, &json!({"phase": phase, "containerStatuses": containers}));
        }
    }

    /// The node has no more room for the pod.
    pub(super) fn evict(&mut self, place: usize) {
        if matches!(self.phase(place), "Pending" | "Running") {
            self.set_status(
                place,
                &json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory."}),
            );
        }
    }

    pub(super) fn edit(&mut self, place: usize, image: &str) {
        let template = match place.checked_sub(1) {
            None => &mut self.job.spec.aggregation_worker.template,
            Some(index) => &mut self.job.spec.training_workers[index].template,
        };
        let container = &mut template.as_map_mut()["spec"]["containers"][0]["image"];
        if container != image {
            *container = json!(image);
            self.job.metadata.generation = self.job.metadata.generation.map(|generation| generation + 1);
        }
    }

    pub(super) fn lose(&mut self, kind: ObjectKind, name: &str) {
        self.references.0.insert(Reference::new(kind, name), Lookup::Missing);
    }

    pub(super) fn bring_back(&mut self) {
        self.references = Self::new().references;
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    pub(super) fn worker(&self, place: usize) -> JobWorker {
        self.status().workers[place].clone()
    }

    pub(super) fn outcomes(&self) -> Vec<Option<Outcome>> {
        self.status().workers.iter().map(|worker| worker.outcome).collect()
    }

    /// The aggregator's uid that a trainer works with.
    pub(super) fn works_with(&self, place: usize) -> Option<String> {
        self.pod(place)?
            .annotation(annotation::AGGREGATOR_UID)
            .map(str::to_owned)
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        self.plan().findings
    }

    pub(super) fn reason(&self, type_: &str) -> String {
        let status = self.status();
        let condition = skerry_crds::conditions::find(&status.conditions, type_)
            .unwrap()
            .clone();
        format!("{} {}", condition.status, condition.reason.unwrap_or_default())
    }

    pub(super) fn message(&self, type_: &str) -> String {
        let status = self.status();
        let condition = skerry_crds::conditions::find(&status.conditions, type_)
            .unwrap()
            .clone();
        condition.message.unwrap_or_default()
    }

    /// What there is, in few words.
    pub(super) fn sketch(&self) -> String {
        let pod = |place| {
            let pod = self.pod(place)?;
            let terminating = if pod.terminating() { " going" } else { "" };
            let (uid, phase) = (pod.uid(), self.phase(place));
            Some(format!("{uid} {phase}{terminating} with {:?}", self.works_with(place)))
        };
        let told = |worker: &JobWorker| format!("{:?} {:?}", worker.pod_uid, worker.outcome);
        let pods: Vec<_> = (0..self.places()).map(pod).collect();
        let records: Vec<_> = self.status().workers.iter().map(told).collect();
        format!("pods {pods:#?} records {records:#?} findings {:#?}", self.findings())
    }

    pub(super) fn ended(&self) -> Option<String> {
        let conditions = self.status().conditions;
        let end = conditions
            .iter()
            .find(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed"))?;
        assert_eq!(
            conditions.last(),
            Some(end),
            "the end is what Sedna's clients read last"
        );
        Some(end.type_.clone())
    }
}

/// The uids of the pods, by place.
pub(super) fn uids(world: &World) -> Vec<String> {
    let uid = |place| world.pod(place).map(|pod| pod.uid().to_owned()).unwrap_or_default();
    (0..world.places()).map(uid).collect()
}

/// Deleted pods are gone, and what follows has happened.
pub(super) fn after_deletions(world: &mut World) {
    for _ in 0..4 {
        world.settle();
        world.children.retain(|live| !live.terminating());
    }
    world.settle();
    for place in 0..world.places() {
        world.start(place);
    }
    world.settle();
}

/// All workers end well.
pub(super) fn complete(world: &mut World) {
    for place in [FIRST, SECOND, AGGREGATOR] {
        world.end(place, 0);
        world.settle();
    }
    assert_eq!(world.ended().as_deref(), Some("Complete"));
}
