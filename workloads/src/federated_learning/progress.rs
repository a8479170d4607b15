//! What is to become of each place's pod: the machine drawn in the head of this kind.
//!
//! It looks at pods, at what is recorded of them and at what they should be made from; it makes nothing.

use std::time::Duration;

use jiff::Timestamp;
use skerry_crds::{
    names::annotation,
    sedna::v1alpha1::{FederatedLearningJob, JobWorker, Outcome},
};

use super::{
    adoption::pod_of,
    inputs::{Place, trainers},
    record::{ended, find},
};
use crate::{
    Finding, Live, Observed, Settings,
    inputs::source::Source,
    judge::pod::{keeps_failing, lost},
    render::owner::Owner,
};

/// What is to become of a place's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: it runs as it should, or it has ended and that is recorded.
    Keep,
    /// It has ended, which has to be recorded before anything else happens.
    Record,
    /// It is deleted; another one takes its place.
    Stop(Why),
    /// It was lost, but is too young to be replaced at once.
    Pace {
        /// How it was lost.
        how: String,
        /// How much longer it stays.
        left: Duration,
    },
    /// It is on its way out, and its name is not free yet.
    Await,
    /// It is made.
    Make,
    /// There is none, and none can be made: something is missing.
    Missing,
    /// There is none, and none is made before the aggregator's pod is there.
    AfterAggregator,
}

/// Why a pod is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// What it was made from changed.
    Changed,
    /// It was evicted, or its node was lost or would not take it.
    Lost(String),
    /// It worked with an aggregator that is no more.
    Aggregator,
    /// The aggregator has ended already, and a trainer has to be made again or came too late.
    StartOver,
}

/// A place with what is to become of its pod.
#[derive(Debug)]
pub(crate) struct Decision<'a> {
    /// The place.
    pub(crate) place: Place<'a>,
    /// Its pod.
    pub(crate) pod: Option<&'a Live>,
    /// What a pod of this place is made from now, or what is missing of it.
    pub(crate) sources: Result<Vec<Source>, Finding>,
    /// What is to become of the pod.
    pub(crate) step: Step,
    /// The uid of the pod that was in a trainer's place before, beside the same aggregator.
    pub(crate) replaces: Option<&'a str>,
}

impl Decision<'_> {
    /// The name of the place's pod, of the one that there is or of the one to be made.
    pub(crate) fn pod_name(&self, owner: &Owner) -> String {
        self.pod
            .map_or_else(|| self.place.pod_name(owner), |pod| pod.name().to_owned())
    }
}

/// All decisions about a job that has not ended.
#[derive(Debug)]
pub(crate) struct Progress<'a> {
    /// One for each place, the aggregator's first.
    pub(crate) decisions: Vec<Decision<'a>>,
    /// The uid of the aggregator's pod with which trainers work, or worked if it has ended.
    pub(crate) aggregator_uid: Option<String>,
}

/// Decides about every place.
pub(crate) fn progress<'a>(
    job: &'a FederatedLearningJob,
    owner: &Owner,
    seen: &'a Observed,
    settings: &Settings,
) -> Progress<'a> {
    let rest = Rest {
        now: seen.now,
        least: settings.replace_lost_after,
    };
    let recorded = job
        .status
        .as_ref()
        .map(|status| status.workers.as_slice())
        .unwrap_or_default();
    let look = |place: Place<'a>| Look::at(job, owner, place, seen, recorded);
    let aggregator = look(Place::aggregator(job));
    let places: Vec<_> = trainers(job).map(look).collect();

    let (mut step, mut uid) = aggregator.as_aggregator(rest);
    let has_ended = uid.is_some() && aggregator.outcome_recorded();
    let mut steps: Vec<_> = places
        .iter()
        .map(|trainer| trainer.as_trainer(uid.as_deref(), rest))
        .collect();
    let again = |(trainer, step): (&Look<'a>, &Step)| {
        trainer.is_made_again(step, uid.as_deref()) || trainer.came_too_late(step, uid.as_deref())
    };
    let is_recorded = !steps.contains(&Step::Record);
    if has_ended && is_recorded && places.iter().zip(&steps).any(again) {
        step = if aggregator.pod.is_some() {
            Step::Stop(Why::StartOver)
        } else {
            aggregator.make()
        };
        uid = None;
        steps = places.iter().map(|trainer| trainer.as_trainer(None, rest)).collect();
    }
    let decisions = std::iter::once((aggregator, step)).chain(places.into_iter().zip(steps));
    let decisions = decisions.map(|(look, step)| Decision {
        place: look.place,
        pod: look.pod,
        step,
        replaces: look.earlier_pod(uid.as_deref()),
        sources: look.sources,
    });
    Progress {
        decisions: decisions.collect(),
        aggregator_uid: uid,
    }
}

/// What is known of a place.
struct Look<'a> {
    place: Place<'a>,
    pod: Option<&'a Live>,
    sources: Result<Vec<Source>, Finding>,
    /// The hash of the sources and the template; none if something is missing.
    hash: Option<String>,
    /// What is recorded of the place.
    record: Option<&'a JobWorker>,
    /// The aggregator's pod under which it is recorded.
    recorded_under: Option<&'a str>,
}

impl<'a> Look<'a> {
    fn at(
        job: &'a FederatedLearningJob,
        owner: &Owner,
        place: Place<'a>,
        seen: &'a Observed,
        recorded: &'a [JobWorker],
    ) -> Self {
        let sources = place.sources(job, &seen.references);
        let hash = sources.as_ref().ok().map(|sources| place.hash(job, sources));
        let aggregator = find(recorded, Place::aggregator(job));
        Self {
            place,
            pod: pod_of(place, owner, &seen.children),
            sources,
            hash,
            record: find(recorded, place),
            recorded_under: aggregator.and_then(|record| record.pod_uid.as_deref()),
        }
    }

    /// What is to become of the aggregator's pod, and the uid that trainers may work with.
    fn as_aggregator(&self, rest: Rest) -> (Step, Option<String>) {
        let Some(pod) = self.pod else {
            let record = self.record.filter(|record| record.outcome == Some(Outcome::Succeeded));
            return match record.filter(|record| !self.changed(record.inputs_hash.as_deref())) {
                Some(record) => (Step::Keep, record.pod_uid.clone()),
                None => (self.make(), None),
            };
        };
        let going_on = || Some(pod.uid().to_owned());
        if ended(pod).is_some() && !self.outcome_recorded() {
            (Step::Record, going_on())
        } else if self.changed(pod.annotation(annotation::INPUTS_HASH)) {
            (
                if pod.terminating() {
                    Step::Await
                } else {
                    Step::Stop(Why::Changed)
                },
                None,
            )
        } else if ended(pod).is_some() {
            (Step::Keep, going_on())
        } else if pod.terminating() {
            (Step::Await, None)
        } else if let Some(how) = lost(pod) {
            (rest.replace(pod, how), None)
        } else {
            (Step::Keep, going_on())
        }
    }

    /// What is to become of a trainer's pod, beside the aggregator's pod of this uid.
    fn as_trainer(&self, aggregator: Option<&str>, rest: Rest) -> Step {
        let Some(pod) = self.pod else {
            return if self.counts_under(aggregator) && self.outcome_recorded() {
                Step::Keep
            } else if self.sources.is_ok() && aggregator.is_none() {
                Step::AfterAggregator
            } else {
                self.make()
            };
        };
        let belongs = works_with(pod, aggregator);
        if belongs && ended(pod).is_some() {
            if self.counts_under(aggregator) && self.outcome_recorded() {
                Step::Keep
            } else {
                Step::Record
            }
        } else if pod.terminating() {
            Step::Await
        } else if self.sources.is_err() {
            Step::Keep
        } else if !belongs {
            Step::Stop(Why::Aggregator)
        } else if let Some(how) = lost(pod) {
            rest.replace(pod, how)
        } else if self.changed(pod.annotation(annotation::INPUTS_HASH)) {
            Step::Stop(Why::Changed)
        } else {
            Step::Keep
        }
    }

    fn make(&self) -> Step {
        if self.sources.is_ok() {
            Step::Make
        } else {
            Step::Missing
        }
    }

    /// Whether a pod made from what has this hash would be made differently now; what is missing changes nothing.
    fn changed(&self, hash: Option<&str>) -> bool {
        self.hash.is_some() && self.hash.as_deref() != hash
    }

    /// Whether how the place's newest pod ended is recorded.
    fn outcome_recorded(&self) -> bool {
        let Some(record) = self.record else { return false };
        let of_this_pod = self.pod.is_none_or(|pod| record.pod_uid.as_deref() == Some(pod.uid()));
        of_this_pod && matches!(record.outcome, Some(Outcome::Succeeded | Outcome::Failed))
    }

    /// Whether the record of a trainer belongs to a run with this aggregator.
    fn counts_under(&self, aggregator: Option<&str>) -> bool {
        aggregator.is_some() && self.recorded_under == aggregator
    }

    /// The uid of the last pod of a trainer's place under this aggregator, as far as it is recorded.
    fn earlier_pod(&self, aggregator: Option<&str>) -> Option<&'a str> {
        let record = self.record.filter(|_| self.counts_under(aggregator));
        record.and_then(|record| record.pod_uid.as_deref())
    }

    /// Whether this step makes a second pod of the place under the same aggregator.
    fn is_made_again(&self, step: &Step, aggregator: Option<&str>) -> bool {
        *step == Step::Make && self.earlier_pod(aggregator).is_some()
    }

    /// Whether this is a second pod of the place beside the same aggregator that has come too late: it keeps failing, as one
    /// does that was made before the aggregator's end was known. A first pod may fail for another reason, and then would
    /// again beside another aggregator, for ever.
    fn came_too_late(&self, step: &Step, aggregator: Option<&str>) -> bool {
        let is_late = |pod: &Live| {
            let is_second = works_with(pod, aggregator) && pod.annotation(annotation::REPLACES).is_some();
            is_second && ended(pod).is_none() && keeps_failing(pod)
        };
        *step == Step::Keep && self.sources.is_ok() && self.pod.is_some_and(is_late)
    }
}

/// Whether a trainer's pod was made for the aggregator's pod of this uid.
fn works_with(pod: &Live, aggregator: Option<&str>) -> bool {
    aggregator.is_some() && pod.annotation(annotation::AGGREGATOR_UID) == aggregator
}

/// How old a lost pod has to be for another to take its place.
#[derive(Clone, Copy)]
struct Rest {
    now: Timestamp,
    least: Duration,
}

impl Rest {
    fn replace(self, pod: &Live, how: String) -> Step {
        let made: Option<Timestamp> = pod.text("/metadata/creationTimestamp").parse().ok();
        let age = made.and_then(|made| Duration::try_from(self.now.duration_since(made)).ok());
        let left = age.and_then(|age| self.least.checked_sub(age));
        match left.filter(|left| !left.is_zero()) {
            Some(left) => Step::Pace { how, left },
            None => Step::Stop(Why::Lost(how)),
        }
    }
}
