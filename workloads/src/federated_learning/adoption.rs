//! Pods that Sedna made, under random names and without a mark of ours.
//!
//! Decides which place of the job each of them is in: the aggregator's by its label, a trainer's by its `DATASET_NAME`
//! and its node. The place, what the pod counts as made from and whom it works with are written onto it before anything
//! else is decided; from then on it is a pod of its place like any other, but for its name. What fits no place is a stray.

use std::collections::{BTreeMap, BTreeSet};

use skerry_crds::{
    names::{annotation, env, label},
    sedna::v1alpha1::FederatedLearningJob,
};

use super::inputs::{Place, trainers};
use crate::{
    Child, Event, EventType, Live, Make, ObjectKind, Observed, adoption,
    judge::pod::{lost, node},
    render::owner::Owner,
};

/// The pod of a place: the one of its name, or one of Sedna's that was given the place.
pub(crate) fn pod_of<'a>(place: Place<'_>, owner: &Owner, children: &'a [Live]) -> Option<&'a Live> {
    let (name, key) = (place.pod_name(owner), place.key());
    let pods = || children.iter().filter(|live| live.kind == ObjectKind::POD);
    let adopted = || pods().find(|pod| pod.annotation(annotation::ADOPTED_PLACE) == Some(&key));
    pods().find(|pod| pod.name() == name).or_else(adopted)
}

/// The name under which the worker in a place reports: its pod's own, where there is one.
pub(crate) fn worker_name(place: Place<'_>, owner: &Owner, pod: Option<&Live>) -> String {
    let own = pod.and_then(|pod| adoption::var(pod.object.get("spec"), env::WORKER_NAME));
    own.map_or_else(|| place.worker_name(owner), str::to_owned)
}

/// What has to be written onto Sedna's pods, everything else staying as it is; nothing where all are adopted.
pub(crate) fn adopt(job: &FederatedLearningJob, owner: &Owner, seen: &Observed) -> Option<(Vec<Child>, Event)> {
    let marking = Marking { job, owner, seen };
    let marks = marking.marks();
    if marks.is_empty() {
        return None;
    }
    let kept = seen.children.iter().map(|live| Child {
        kind: live.kind,
        name: live.name().to_owned(),
        make: Make::Keep,
    });
    let kept = kept.filter(|kept| {
        !marks
            .iter()
            .any(|mark| mark.kind == kept.kind && mark.name == kept.name)
    });
    let names: Vec<_> = marks.iter().map(|mark| mark.name.clone()).collect();
    let told = Event {
        type_: EventType::Normal,
        reason: "PodsAdopted",
        message: format!(
            "adopts pods {} as they are: each is replaced when what it is made from changes",
            super::told::listed(&names)
        ),
    };
    Some((kept.chain(marks.clone()).collect(), told))
}

struct Marking<'a> {
    job: &'a FederatedLearningJob,
    owner: &'a Owner,
    seen: &'a Observed,
}

impl<'a> Marking<'a> {
    fn marks(&self) -> Vec<Child> {
        let aggregator = Place::aggregator(self.job);
        let mut places: Vec<_> = std::iter::once(aggregator).chain(trainers(self.job)).collect();
        let mut newcomers = self.newcomers(&places);
        // Whoever names a node has the first choice: the others take any.
        places.sort_by_key(|place| place.template().node_name().is_none());
        let mut found = Vec::new();
        for place in places {
            match pod_of(place, self.owner, &self.seen.children) {
                Some(pod) => found.push((place, pod)),
                None => {
                    if let Some(at) = newcomers.iter().position(|pod| self.fits(place, pod)) {
                        found.push((place, newcomers.remove(at)));
                    }
                }
            }
        }
        let aggregator = found.iter().find(|(place, _)| matches!(place, Place::Aggregator(_)));
        let aggregator_uid = aggregator.map(|(_, pod)| pod.uid());
        let marks = found
            .iter()
            .filter_map(|(place, pod)| self.mark(*place, pod, aggregator_uid));
        marks.collect()
    }

    /// Sedna's pods without a place, the likeliest first: Sedna now and then made two for one.
    fn newcomers(&self, places: &[Place<'_>]) -> Vec<&'a Live> {
        let ours: BTreeSet<_> = places.iter().map(|place| place.pod_name(self.owner)).collect();
        let pods = self.seen.children_of(ObjectKind::POD);
        let pods = pods.filter(|pod| is_newcomer(pod) && !ours.contains(pod.name()));
        let mut newcomers: Vec<_> = pods.collect();
        newcomers.sort_by_key(|pod| {
            let made = pod.text("/metadata/creationTimestamp");
            (pod.terminating(), lost(pod).is_some(), made, pod.name())
        });
        newcomers
    }

    fn fits(&self, place: Place<'_>, pod: &Live) -> bool {
        let role = pod.label(&label::worker_type(self.owner.kind.kind));
        let same_samples = match place {
            Place::Aggregator(_) => return role == Some(&place.role()),
            Place::Trainer(_, trainer) => {
                adoption::var(pod.object.get("spec"), env::DATASET_NAME) == Some(trainer.dataset.name.as_str())
            }
        };
        let there = place
            .template()
            .node_name()
            .is_none_or(|wanted| node(pod) == Some(wanted));
        role == Some(&place.role()) && same_samples && there
    }

    /// What is written onto a pod of Sedna's; nothing where all of it is there. Something that is missing of what the
    /// pod is made from leaves open what it counts as made from.
    fn mark(&self, place: Place<'_>, pod: &Live, aggregator_uid: Option<&str>) -> Option<Child> {
        if pod.name() == place.pod_name(self.owner) {
            return None;
        }
        let new = is_newcomer(pod);
        let hash = place
            .sources(self.job, &self.seen.references)
            .map(|sources| place.hash(self.job, &sources));
        if !new && (pod.annotation(annotation::INPUTS_HASH).is_some() || hash.is_err()) {
            return None;
        }
        let works_with = if new {
            aggregator_uid.filter(|_| matches!(place, Place::Trainer(..)))
        } else {
            pod.annotation(annotation::AGGREGATOR_UID)
        };
        let marks = [
            (annotation::ADOPTED_PLACE, Some(place.key())),
            (annotation::INPUTS_HASH, hash.ok()),
            (annotation::AGGREGATOR_UID, works_with.map(str::to_owned)),
        ];
        let marks: BTreeMap<_, _> = marks
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect();
        let labels = self.owner.labels(place.worker_type());
        Some(adoption::keep(self.owner, pod, &labels, &marks))
    }
}

/// Sedna's pods carry no marks.
fn is_newcomer(pod: &Live) -> bool {
    let marks = [annotation::INPUTS_HASH, annotation::ADOPTED_PLACE];
    marks.iter().all(|mark| pod.annotation(mark).is_none())
}
