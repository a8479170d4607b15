//! What is kept of earlier templates.

use super::*;

impl World {
    fn revisions(&self) -> Vec<i64> {
        let mut revisions: Vec<_> = self.sets.values().map(revision::of).collect();
        revisions.sort_unstable();
        revisions
    }
}

#[test]
fn an_edit_back_takes_the_old_set_again_as_a_new_revision() {
    let mut world = World::new(&json!({"replicas": 1}));
    world.settle();
    let first = world.newest();
    world.edit(&json!({"template": template("2")}));
    world.settle();
    world.edit(&json!({"template": template("1")}));
    world.settle();
    assert_eq!(world.newest(), first);
    assert_eq!(
        world.sets[&first].annotations()["deployment.kubernetes.io/revision"],
        "3"
    );
    assert_eq!(
        world.sets[&first].annotations()["deployment.kubernetes.io/revision-history"],
        "1"
    );
}

#[test]
fn old_sets_beyond_the_limit_are_removed_oldest_first() {
    let mut world = World::new(&json!({"replicas": 1, "revisionHistoryLimit": 1}));
    for image in ["1", "2", "3", "4"] {
        world.edit(&json!({"template": template(image)}));
        world.settle();
    }
    assert_eq!(world.revisions(), [3, 4]);
    // A limit that is lowered counts at once, for what was kept before, too.
    world.edit(&json!({"revisionHistoryLimit": 0}));
    world.settle();
    assert_eq!(world.revisions(), [4]);
}

#[test]
fn an_old_set_goes_when_the_rollout_is_complete_and_not_before() {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}});
    let mut world = World::new(&json!({"replicas": 1, "revisionHistoryLimit": 0, "strategy": strategy}));
    world.settle();
    let old = world.newest();
    world.edit(&json!({"template": template("2")}));
    world.look(&[]);
    let new = world.newest();
    // The old pod is lost, and the new one is not up yet.
    world.pods(&new, 1, 0);
    world.pods(&old, 1, 0);
    world.look(&[]);
    world.pods(&old, 0, 0);
    world.look(&[]);
    assert_eq!(world.sizes(), [0, 1]);
    world.look(&[]);
    assert_eq!(world.revisions(), [1, 2]);
    world.pods(&new, 1, 1);
    world.look(&[]);
    assert_eq!(world.revisions(), [1, 2], "the status comes first");
    world.look(&[]);
    assert_eq!(world.revisions(), [2]);
}
