//! The state of one pass over a Deployment: working copies of it and of its ReplicaSets, which the steps change, and
//! from which the effects are derived at the end, at most one write per object.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;

use super::super::effect::{Announce, Announcement, Body, Delete, Effect};
use super::super::hash;
use super::super::meta::{controller_reference, reference};
use super::{COMPONENT, bounds, revision};

/// The label that tells the pods and sets of one template from those of another.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// The longest name that an object may have.
const NAME_LIMIT: usize = 253;

pub(super) struct Rollout<'a> {
    /// The working copy; what was observed is kept beside it.
    pub(super) deployment: Deployment,
    pub(super) observed: &'a Deployment,
    pub(super) sets: Vec<Set>,
    /// The index of the set whose template is the Deployment's.
    pub(super) new: Option<usize>,
    pub(super) now: Time,
    /// All sets of the namespace, ours or not: their names are taken.
    neighbours: &'a [Arc<ReplicaSet>],
    events: Vec<Announcement>,
    deletions: Vec<Delete>,
}

/// A ReplicaSet's working copy.
pub(super) struct Set {
    pub(super) object: ReplicaSet,
    pub(super) fate: Fate,
}

#[derive(PartialEq)]
pub(super) enum Fate {
    Unchanged,
    Changed,
    Created,
}

impl Set {
    pub(super) fn replicas(&self) -> i32 {
        self.object.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    pub(super) fn actual(&self) -> i32 {
        self.object.status.as_ref().map_or(0, |status| status.replicas)
    }

    pub(super) fn ready(&self) -> i32 {
        self.object
            .status
            .as_ref()
            .and_then(|status| status.ready_replicas)
            .unwrap_or_default()
    }

    pub(super) fn available(&self) -> i32 {
        self.object
            .status
            .as_ref()
            .and_then(|status| status.available_replicas)
            .unwrap_or_default()
    }

    pub(super) fn touch(&mut self) {
        if self.fate == Fate::Unchanged {
            self.fate = Fate::Changed;
        }
    }
}

impl<'a> Rollout<'a> {
    /// `sets` are the Deployment's own.
    pub(super) fn new(
        observed: &'a Deployment,
        sets: &[Arc<ReplicaSet>],
        neighbours: &'a [Arc<ReplicaSet>],
        now: Time,
    ) -> Self {
        let mut sets: Vec<_> = sets
            .iter()
            .map(|set| Set {
                object: ReplicaSet::clone(set),
                fate: Fate::Unchanged,
            })
            .collect();
        sets.sort_by(|a, b| age(&a.object).cmp(&age(&b.object)));
        let template = observed.spec.as_ref().map(|spec| without_hash(&spec.template));
        let new = sets.iter().position(|set| {
            let spec = set.object.spec.as_ref();
            spec.and_then(|spec| spec.template.as_ref()).map(without_hash) == template
        });
        let mut rollout = Self {
            deployment: observed.clone(),
            observed,
            sets,
            new,
            now,
            neighbours,
            events: vec![],
            deletions: vec![],
        };
        rollout.refresh_new_set();
        rollout
    }

    pub(super) fn new_set(&self) -> Option<&Set> {
        self.sets.get(self.new?)
    }

    /// The indexes of the old sets, oldest first.
    pub(super) fn old(&self) -> Vec<usize> {
        (0..self.sets.len()).filter(|index| Some(*index) != self.new).collect()
    }

    /// Makes the set for the Deployment's template, of the size that the strategy allows at once.
    pub(super) fn create_new_set(&mut self) {
        let Some(spec) = self.deployment.spec.clone() else {
            return;
        };
        let (name, hash) = self.free_name(&spec.template);
        let mut template = spec.template;
        template
            .metadata
            .get_or_insert_default()
            .labels
            .get_or_insert_default()
            .insert(HASH_LABEL.to_owned(), hash.clone());
        let mut selector = spec.selector;
        selector
            .match_labels
            .get_or_insert_default()
            .insert(HASH_LABEL.to_owned(), hash);
        let labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone());
        let mut object = ReplicaSet {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: self.deployment.namespace(),
                owner_references: Some(vec![controller_reference(self.observed)]),
                labels,
                ..ObjectMeta::default()
            },
            ..ReplicaSet::default()
        };
        let set = object.spec.get_or_insert_default();
        set.replicas = Some(0);
        set.min_ready_seconds = spec.min_ready_seconds;
        set.selector = selector;
        set.template = Some(template);
        let new_revision = self.next_revision();
        revision::annotate(&self.deployment, &mut object, new_revision);
        revision::set_replicas(&mut object, bounds::replicas(&self.deployment), self.limit());
        self.sets.push(Set {
            object,
            fate: Fate::Created,
        });
        let index = self.sets.len() - 1;
        self.new = Some(index);
        let size = self.new_set_size();
        self.resize(index, size);
        revision::set_revision(&mut self.deployment, &new_revision.to_string());
        self.note_created();
    }

    /// A name that no set of the namespace has; counting the collisions keeps it the same in the next pass.
    fn free_name(&mut self, template: &PodTemplateSpec) -> (String, String) {
        let prefix = self.deployment.name_any();
        loop {
            let status = self.deployment.status.get_or_insert_default();
            let hash = hash::of_template(template, status.collision_count);
            let room = NAME_LIMIT.saturating_sub(hash.len() + 1);
            let name = format!("{}-{hash}", prefix.get(..room).unwrap_or(&prefix));
            if !self.neighbours.iter().any(|set| set.name_any() == name) {
                return (name, hash);
            }
            status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
        }
    }

    /// The revision that the new set gets: one above the highest of the old ones.
    pub(super) fn next_revision(&self) -> i64 {
        let old = self.old().into_iter().filter_map(|index| self.sets.get(index));
        old.map(|set| revision::of(&set.object)).max().unwrap_or_default() + 1
    }

    /// Keeps the new set's annotations and `minReadySeconds` those of the Deployment.
    fn refresh_new_set(&mut self) {
        let new_revision = self.next_revision();
        let Some(set) = self.new.and_then(|index| self.sets.get_mut(index)) else {
            return;
        };
        let mut changed = revision::annotate(&self.deployment, &mut set.object, new_revision);
        let min_ready = self.deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        let spec = set.object.spec.get_or_insert_default();
        if spec.min_ready_seconds.unwrap_or_default() != min_ready.unwrap_or_default() {
            spec.min_ready_seconds = min_ready;
            changed = true;
        }
        if changed {
            set.touch();
        }
        let own = set
            .object
            .annotations()
            .get(revision::REVISION)
            .cloned()
            .unwrap_or_default();
        let name = set.object.name_any();
        revision::set_revision(&mut self.deployment, &own);
        self.note_found(&name);
    }

    /// The most pods that the Deployment may have.
    pub(super) fn limit(&self) -> i32 {
        bounds::replicas(&self.deployment) + bounds::max_surge(&self.deployment)
    }

    /// Sets a set's size and says so.
    pub(super) fn resize(&mut self, index: usize, size: i32) {
        let Some(set) = self.sets.get_mut(index) else { return };
        let before = set.replicas();
        if before == size {
            return;
        }
        set.object.spec.get_or_insert_default().replicas = Some(size);
        set.touch();
        let direction = if before < size { "up" } else { "down" };
        let name = set.object.name_any();
        self.refresh_size_annotations(index);
        self.events.push(Announcement {
            about: reference(self.observed),
            component: COMPONENT,
            warning: false,
            reason: "ScalingReplicaSet",
            message: format!("Scaled {direction} replica set {name} from {before} to {size}"),
        });
    }

    pub(super) fn refresh_size_annotations(&mut self, index: usize) {
        let (desired, limit) = (bounds::replicas(&self.deployment), self.limit());
        if let Some(set) = self.sets.get_mut(index)
            && revision::set_replicas(&mut set.object, desired, limit)
        {
            set.touch();
        }
    }

    pub(super) fn delete(&mut self, index: usize) {
        self.deletions
            .extend(self.sets.get(index).map(|set| Delete::of(&set.object)));
    }

    /// The writes, each object's last state once.
    pub(super) fn finish(self) -> Vec<Effect> {
        let about = reference(self.observed);
        let mut effects = vec![];
        for set in &self.sets {
            match set.fate {
                Fate::Unchanged => {}
                Fate::Changed => effects.push(Effect::Update(Body::of(&set.object))),
                Fate::Created => {
                    let refused = format!("Failed to create new replica set \"{}\": ", set.object.name_any());
                    effects.push(Effect::Create(
                        Body::of(&set.object),
                        Some(Announce {
                            about: about.clone(),
                            component: COMPONENT,
                            done: None,
                            refused: ("ReplicaSetCreateError", refused),
                        }),
                    ));
                }
            }
        }
        effects.extend(self.events.into_iter().map(Effect::Event));
        effects.extend(self.deletions.into_iter().map(Effect::Delete));
        let changed = self.deployment.status.clone().unwrap_or_default()
            != self.observed.status.clone().unwrap_or_default()
            || self.deployment.metadata.annotations != self.observed.metadata.annotations;
        if changed {
            effects.push(Effect::UpdateStatus(Body::of(&self.deployment)));
        }
        effects
    }
}

/// Older sets sort first.
fn age(set: &ReplicaSet) -> (Option<&Time>, Option<&String>) {
    (set.metadata.creation_timestamp.as_ref(), set.metadata.name.as_ref())
}

fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    let meta = template.metadata.get_or_insert_default();
    if let Some(labels) = &mut meta.labels {
        labels.remove(HASH_LABEL);
    }
    if meta.labels.as_ref().is_some_and(std::collections::BTreeMap::is_empty) {
        meta.labels = None;
    }
    meta.creation_timestamp = None;
    template
}
