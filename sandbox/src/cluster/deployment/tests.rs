//! Rollouts against a simulated ReplicaSet controller: each step applies the effects, then lets some pods come or go.

mod histories;
mod revisions;

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::super::clock::after;
use super::*;

/// A Deployment, its sets and their pods, and the time.
struct World {
    deployment: Deployment,
    sets: BTreeMap<String, ReplicaSet>,
    now: Time,
    events: Vec<String>,
    /// The latest time at which a look was asked for.
    again: Option<Time>,
}

fn deployment(spec: &Value) -> Deployment {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1},
        "spec": {
            "replicas": 1, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": template("1"),
        },
    });
    json_patch::merge(&mut object["spec"], spec);
    serde_json::from_value(object).unwrap()
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

impl World {
    fn new(spec: &Value) -> Self {
        let now = Time("2026-01-01T00:00:00Z".parse().unwrap());
        Self {
            deployment: deployment(spec),
            sets: BTreeMap::new(),
            now,
            events: vec![],
            again: None,
        }
    }

    fn sets(&self) -> Vec<Arc<ReplicaSet>> {
        self.sets.values().cloned().map(Arc::new).collect()
    }

    fn edit(&mut self, spec: &Value) {
        let mut object = serde_json::to_value(&self.deployment).unwrap();
        json_patch::merge(&mut object["spec"], spec);
        self.deployment = serde_json::from_value(object).unwrap();
        *self.deployment.metadata.generation.as_mut().unwrap() += 1;
    }

    /// One look, its effects applied as an API server would; whether there were any.
    fn look(&mut self, pods: &[Arc<Pod>]) -> bool {
        let decision = reconcile(&self.deployment, &self.sets(), pods, &self.now);
        self.again = decision.again;
        for effect in &decision.effects {
            match effect {
                Effect::Create(body, _) => {
                    let mut set: ReplicaSet = body.parse().unwrap();
                    set.metadata.uid = Some(set.name_any());
                    set.metadata.creation_timestamp = Some(self.now.clone());
                    set.metadata.generation = Some(1);
                    assert!(self.sets.insert(set.name_any(), set).is_none());
                }
                Effect::Update(body) => {
                    let mut set: ReplicaSet = body.parse().unwrap();
                    if set.spec != self.sets[&set.name_any()].spec {
                        *set.metadata.generation.as_mut().unwrap() += 1;
                    }
                    self.sets.insert(set.name_any(), set);
                }
                Effect::UpdateStatus(body) => self.deployment = body.parse().unwrap(),
                Effect::Delete(delete) => drop(self.sets.remove(&delete.target.id.1).unwrap()),
                Effect::Event(event) => self.events.push(event.message.clone()),
                other => panic!("{other:?}"),
            }
        }
        !decision.effects.is_empty()
    }

    /// Gives a set that many pods, of which so many are ready.
    fn pods(&mut self, set: &str, total: i32, ready: i32) {
        let set = self.sets.get_mut(set).unwrap();
        let observed = set.metadata.generation;
        let status = set.status.get_or_insert_default();
        status.replicas = total;
        status.ready_replicas = Some(ready);
        status.available_replicas = Some(ready);
        status.observed_generation = observed;
    }

    /// Looks and lets all pods come and be ready until nothing changes.
    fn settle(&mut self) {
        for _ in 0..100 {
            let mut changed = self.look(&[]);
            let sizes: Vec<_> = self
                .sets
                .values()
                .map(|set| (set.name_any(), size(set), set.status.clone()))
                .collect();
            for (name, size, status) in sizes {
                self.pods(&name, size, size);
                changed |= self.sets[&name].status != status;
            }
            if !changed {
                return;
            }
        }
        panic!("does not settle");
    }

    fn condition(&self, of: &str) -> (String, String, String) {
        let status = self.deployment.status.as_ref().unwrap();
        let known = status
            .conditions
            .iter()
            .flatten()
            .find(|known| known.type_ == of)
            .unwrap();
        (
            known.status.clone(),
            known.reason.clone().unwrap(),
            known.message.clone().unwrap(),
        )
    }

    fn sizes(&self) -> Vec<i32> {
        let mut sets: Vec<_> = self.sets.values().collect();
        sets.sort_by_key(|set| revision::of(set));
        sets.into_iter().map(size).collect()
    }

    fn newest(&self) -> String {
        self.sets
            .values()
            .max_by_key(|set| revision::of(set))
            .unwrap()
            .name_any()
    }
}

fn size(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().unwrap().replicas.unwrap()
}

#[test]
fn a_new_deployment_makes_one_set_and_reports_it() {
    let mut world = World::new(&json!({"replicas": 3}));
    world.deployment.metadata.annotations = Some([("note".to_owned(), "hello".to_owned())].into());
    world.look(&[]);
    let (name, set) = world.sets.first_key_value().unwrap();
    let hash = set.labels()["pod-template-hash"].clone();
    assert_eq!(*name, format!("web-{hash}"));
    assert_eq!(
        set.spec.as_ref().unwrap().selector.match_labels.as_ref().unwrap()["pod-template-hash"],
        hash
    );
    insta::assert_json_snapshot!(set.annotations(), @r#"
    {
      "deployment.kubernetes.io/desired-replicas": "3",
      "deployment.kubernetes.io/max-replicas": "4",
      "deployment.kubernetes.io/revision": "1",
      "note": "hello"
    }
    "#);
    assert_eq!(world.events, [format!("Scaled up replica set {name} from 0 to 3")]);
    assert_eq!(world.deployment.annotations()["deployment.kubernetes.io/revision"], "1");
    let created = format!("Created new replica set \"{name}\"");
    assert_eq!(
        world.condition("Progressing"),
        ("True".into(), "NewReplicaSetCreated".into(), created)
    );
    assert_eq!(world.condition("Available").1, "MinimumReplicasUnavailable");
    world.settle();
    assert_eq!(world.condition("Available").1, "MinimumReplicasAvailable");
    assert_eq!(world.condition("Progressing").1, "NewReplicaSetAvailable");
    assert!(!world.look(&[]), "a settled Deployment is left alone");
    assert_eq!(world.again, None);
}

#[test]
fn conditions_move_to_the_end_when_they_change() {
    let mut world = World::new(&json!({"replicas": 2}));
    world.settle();
    let name = world.newest();
    world.pods(&name, 2, 0);
    world.look(&[]);
    let types = |world: &World| {
        let status = world.deployment.status.as_ref().unwrap();
        status
            .conditions
            .iter()
            .flatten()
            .map(|known| known.type_.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(types(&world), ["Progressing", "Available"]);
    // What was complete is not judged again: a flap is availability, not progress.
    assert_eq!(world.condition("Progressing").1, "NewReplicaSetAvailable");
}

#[test]
fn an_edit_of_the_template_rolls_within_the_bounds() {
    let mut world = World::new(&json!({"replicas": 4}));
    world.settle();
    world.edit(&json!({"template": template("2")}));
    world.look(&[]);
    assert_eq!(world.sizes(), [4, 1], "one pod may be surplus");
    world.look(&[]);
    assert_eq!(world.sizes(), [3, 1], "one pod may be unavailable");
    world.settle();
    assert_eq!(world.sizes(), [0, 4]);
    assert_eq!(world.deployment.annotations()["deployment.kubernetes.io/revision"], "2");
}

#[test]
fn unhealthy_pods_of_the_old_set_go_first() {
    let mut world = World::new(&json!({"replicas": 4}));
    world.settle();
    let old = world.newest();
    world.edit(&json!({"template": template("2")}));
    world.look(&[]);
    world.pods(&old, 4, 2);
    world.look(&[]);
    assert_eq!(
        world.sizes(),
        [3, 1],
        "four of five must be available; two are not, so only as many as are surplus"
    );
}

#[test]
fn recreate_waits_for_the_old_pods_to_be_gone() {
    let mut world = World::new(&json!({"replicas": 2, "strategy": {"type": "Recreate", "rollingUpdate": null}}));
    world.settle();
    let old = world.newest();
    world.edit(&json!({"template": template("2")}));
    world.look(&[]);
    assert_eq!(world.sizes(), [0]);
    world.look(&[]);
    assert_eq!(world.sizes(), [0], "the set still counts its pods");
    world.pods(&old, 0, 0);
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": old, "uid": old, "controller": true});
    let terminating: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web-x", "ownerReferences": [owner], "deletionTimestamp": "2026-01-01T00:00:30Z"},
        "status": {"phase": "Running"},
    }))
    .unwrap();
    world.look(&[Arc::new(terminating)]);
    assert_eq!(world.sizes(), [0], "a pod on its way out still runs");
    world.look(&[]);
    assert_eq!(world.sizes(), [0, 2]);
}

#[test]
fn a_rollout_that_does_not_move_times_out() {
    let mut world = World::new(&json!({"replicas": 1, "progressDeadlineSeconds": 60}));
    world.look(&[]);
    let name = world.newest();
    world.pods(&name, 1, 0);
    world.look(&[]);
    assert_eq!(world.condition("Progressing").1, "ReplicaSetUpdated");
    let start = world.now.clone();
    assert_eq!(world.again, Some(after(&start, 61)));
    world.now = after(&start, 60);
    world.look(&[]);
    assert_eq!(world.condition("Progressing").1, "ReplicaSetUpdated");
    world.now = after(&start, 61);
    world.look(&[]);
    let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
    assert_eq!(
        world.condition("Progressing"),
        ("False".into(), "ProgressDeadlineExceeded".into(), message)
    );
    world.pods(&name, 1, 1);
    world.look(&[]);
    assert_eq!(world.condition("Progressing").1, "NewReplicaSetAvailable");
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let mut world = World::new(&json!({"replicas": 2}));
    world.settle();
    world.edit(&json!({"paused": true, "replicas": 3, "template": template("2")}));
    world.settle();
    assert_eq!(world.sizes(), [3]);
    assert_eq!(world.condition("Progressing").1, "DeploymentPaused");
    world.edit(&json!({"paused": false}));
    world.look(&[]);
    world.settle();
    assert_eq!(world.sizes(), [0, 3]);
}

#[test]
fn scaling_in_the_middle_of_a_rollout_keeps_proportions() {
    let mut world =
        World::new(&json!({"replicas": 10, "strategy": {"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}}));
    world.settle();
    world.edit(&json!({"template": template("2")}));
    for _ in 0..3 {
        world.look(&[]);
    }
    assert_eq!(world.sizes(), [8, 5]);
    world.edit(&json!({"replicas": 15}));
    world.look(&[]);
    // 18 pods allowed instead of 13: 8 and 5 grow by 18/13, what rounding leaves goes to the larger.
    assert_eq!(world.sizes(), [11, 7]);
}

#[test]
fn a_name_that_is_taken_is_evaded() {
    let mut world = World::new(&json!({}));
    world.look(&[]);
    let mut foreign = world.sets.pop_first().unwrap().1;
    foreign.metadata.owner_references = None;
    foreign.metadata.labels = None;
    world.deployment = deployment(&json!({}));
    world.sets.insert(foreign.name_any(), foreign);
    world.look(&[]);
    assert_eq!(world.sets.len(), 2);
    assert_eq!(world.deployment.status.as_ref().unwrap().collision_count, Some(1));
}

#[test]
fn a_deployment_on_its_way_out_changes_nothing_but_its_status() {
    let mut world = World::new(&json!({"replicas": 2}));
    world.settle();
    world.edit(&json!({"replicas": 5, "template": template("2")}));
    world.deployment.metadata.deletion_timestamp = Some(world.now.clone());
    world.look(&[]);
    assert_eq!(world.sizes(), [2]);
    assert_eq!(world.deployment.status.as_ref().unwrap().observed_generation, Some(2));
}

#[test]
fn trouble_of_a_set_is_reported_and_forgotten() {
    let mut world = World::new(&json!({}));
    world.look(&[]);
    let name = world.newest();
    let failure = json!({"replicas": 0, "conditions": [
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "no quota"}]});
    world.sets.get_mut(&name).unwrap().status = Some(serde_json::from_value(failure).unwrap());
    world.look(&[]);
    assert_eq!(
        world.condition("ReplicaFailure"),
        ("True".into(), "FailedCreate".into(), "no quota".into())
    );
    world.sets.get_mut(&name).unwrap().status = None;
    world.settle();
    let status = world.deployment.status.as_ref().unwrap();
    assert!(
        !status
            .conditions
            .iter()
            .flatten()
            .any(|known| known.type_ == "ReplicaFailure")
    );
}
