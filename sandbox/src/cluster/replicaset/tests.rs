use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn now() -> Time {
    Time(NOW.parse().unwrap())
}

fn set(replicas: i32) -> ReplicaSet {
    serde_json::from_value(json!({
        "metadata": {"name": "web-1", "namespace": "default", "uid": "s", "generation": 4},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": {"containers": []}},
        },
    }))
    .unwrap()
}

fn pod(name: &str, change: &Value) -> Arc<Pod> {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "s", "controller": true});
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"},
            "ownerReferences": [owner], "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [], "nodeName": "n"},
        "status": {"phase": "Running", "conditions": [ready("2026-01-01T00:10:00Z")]},
    });
    json_patch::merge(&mut pod, change);
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn ready(since: &str) -> Value {
    json!({"type": "Ready", "status": "True", "lastTransitionTime": since})
}

fn deleted(effects: &[Effect]) -> Vec<String> {
    let target = |effect: &Effect| match effect {
        Effect::Delete(delete) => Some(delete.target.id.1.clone()),
        _ => None,
    };
    effects.iter().filter_map(target).collect()
}

#[test]
fn missing_pods_are_made_from_the_template() {
    let effects = manage(&set(2), &[pod("a", &json!({}))], &[], &now());
    let [Effect::Create(body, Some(announce))] = effects.as_slice() else {
        panic!("{effects:?}")
    };
    insta::assert_json_snapshot!(body.object, @r#"
    {
      "apiVersion": "v1",
      "kind": "Pod",
      "metadata": {
        "annotations": {
          "a": "b"
        },
        "generateName": "web-1-",
        "labels": {
          "app": "web"
        },
        "namespace": "default",
        "ownerReferences": [
          {
            "apiVersion": "apps/v1",
            "blockOwnerDeletion": true,
            "controller": true,
            "kind": "ReplicaSet",
            "name": "web-1",
            "uid": "s"
          }
        ]
      },
      "spec": {
        "containers": []
      }
    }
    "#);
    assert_eq!(announce.done, Some(("SuccessfulCreate", "Created pod: ")));
}

#[test]
fn finished_and_terminating_pods_do_not_count() {
    let gone = json!({"metadata": {"deletionTimestamp": NOW}});
    let pods = [
        pod("a", &json!({"status": {"phase": "Failed"}})),
        pod("b", &gone),
        pod("c", &json!({})),
    ];
    assert_eq!(manage(&set(2), &pods, &[], &now()).len(), 1);
}

#[test]
fn a_set_on_its_way_out_makes_and_deletes_nothing() {
    let mut set = set(5);
    set.metadata.deletion_timestamp = Some(now());
    assert_eq!(manage(&set, &[pod("a", &json!({}))], &[], &now()), []);
}

#[test]
fn orphans_are_adopted_and_strays_released() {
    let orphan = pod("orphan", &json!({"metadata": {"ownerReferences": null}}));
    let stray = pod("stray", &json!({"metadata": {"labels": {"app": "other"}}}));
    let foreign = pod(
        "foreign",
        &json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": true}]}}),
    );
    let effects = manage(&set(1), &[orphan, stray, foreign], &[], &now());
    assert!(
        matches!(effects.as_slice(), [Effect::Adopt { child, .. }, Effect::Release { child: released, .. }]
            if child.uid == "orphan" && released.uid == "stray"),
        "{effects:?}"
    );
}

#[test]
fn the_most_dispensable_pods_go_first() {
    for (name, dispensable) in [
        ("without a node", json!({"spec": {"nodeName": null}})),
        ("pending", json!({"status": {"phase": "Pending"}})),
        ("not ready", json!({"status": {"conditions": null}})),
        (
            "cheap",
            json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}}),
        ),
        (
            "young",
            json!({"status": {"conditions": [ready("2026-01-01T00:59:59Z")]}}),
        ),
        (
            "restarted",
            json!({"status": {"containerStatuses": [
            {"name": "c", "restartCount": 3, "ready": true, "image": "", "imageID": ""}]}}),
        ),
        (
            "new",
            json!({"metadata": {"creationTimestamp": "2026-01-01T00:59:59Z"}}),
        ),
    ] {
        let pods = [pod("a", &json!({})), pod("victim", &dispensable), pod("z", &json!({}))];
        assert_eq!(deleted(&manage(&set(2), &pods, &[], &now())), ["victim"], "{name}");
    }
}

#[test]
fn a_crowded_node_gives_first() {
    let pods = [
        pod("a", &json!({"spec": {"nodeName": "quiet"}})),
        pod("b", &json!({"spec": {"nodeName": "crowded"}})),
        pod("c", &json!({"spec": {"nodeName": "crowded"}})),
    ];
    let victims = deleted(&manage(&set(2), &pods, &[Arc::new(set(2))], &now()));
    assert!(victims == ["b"] || victims == ["c"], "{victims:?}");
}

#[test]
fn the_status_counts_and_waits_for_availability() {
    let mut set = set(3);
    set.spec.as_mut().unwrap().min_ready_seconds = Some(60);
    let fresh = json!({"status": {"conditions": [ready("2026-01-01T00:59:30Z")]}});
    let pods = [
        pod("a", &json!({})),
        pod("b", &fresh),
        pod("c", &json!({"status": {"conditions": null}})),
    ];
    let decision = status(&set, &pods, None, &now());
    assert_eq!(decision.again, Some(Time("2026-01-01T01:00:30Z".parse().unwrap())));
    let [Effect::UpdateStatus(body)] = decision.effects.as_slice() else {
        panic!("{decision:?}")
    };
    insta::assert_json_snapshot!(body.object["status"], @r#"
    {
      "availableReplicas": 1,
      "fullyLabeledReplicas": 3,
      "observedGeneration": 4,
      "readyReplicas": 2,
      "replicas": 3
    }
    "#);
    set.status = body.parse::<ReplicaSet>().unwrap().status;
    assert_eq!(
        status(&set, &pods, None, &now()).effects,
        [],
        "a status that is right is not written again"
    );
}

#[test]
fn a_refusal_is_a_condition_until_it_is_over() {
    let mut set = set(1);
    let written = |decision: &Decision| {
        let [Effect::UpdateStatus(body)] = decision.effects.as_slice() else {
            panic!("{decision:?}")
        };
        body.parse::<ReplicaSet>().unwrap().status.unwrap()
    };
    let failing = written(&status(&set, &[], Some("no quota"), &now()));
    let condition = &failing.conditions.as_ref().unwrap()[0];
    assert_eq!(
        (condition.reason.as_deref(), condition.message.as_deref()),
        (Some("FailedCreate"), Some("no quota"))
    );
    set.status = Some(failing);
    assert_eq!(
        status(&set, &[], Some("still no quota"), &now()).effects,
        [],
        "the first reason stays"
    );
    assert_eq!(
        written(&status(&set, &[pod("a", &json!({}))], None, &now())).conditions,
        None
    );
}
