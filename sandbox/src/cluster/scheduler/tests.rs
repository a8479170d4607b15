use serde_json::{Value, json};

use super::super::effect::Effect;
use super::*;

fn now() -> Time {
    Time("2026-01-01T00:00:00Z".parse().unwrap())
}

fn node(name: &str, change: &Value) -> Arc<Node> {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"},
        },
    });
    json_patch::merge(&mut node, change);
    Arc::new(serde_json::from_value(node).unwrap())
}

fn pod(name: &str, spec: &Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{"name": "c"}]},
    });
    json_patch::merge(&mut pod["spec"], spec);
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// The node that the pod is bound to, or why it is not.
fn outcome(pod: &Pod, nodes: &[Arc<Node>], pods: &[Arc<Pod>]) -> Result<String, String> {
    match schedule(pod, nodes, pods, &now()).effects.as_slice() {
        [Effect::Bind { node, .. }, Effect::Event(event)] => {
            assert_eq!(
                event.message,
                format!("Successfully assigned default/{} to {node}", pod.name_any())
            );
            Ok(node.clone())
        }
        [Effect::PatchStatus(_, patch), Effect::Event(event)] => {
            assert_eq!(patch["status"]["conditions"][0]["reason"], "Unschedulable");
            assert_eq!(event.reason, "FailedScheduling");
            assert_eq!(patch["status"]["conditions"][0]["message"], event.message);
            Err(event.message.clone())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_emptiest_node_is_taken_and_siblings_are_spread() {
    let nodes = [node("a", &json!({})), node("b", &json!({}))];
    assert_eq!(outcome(&pod("x", &json!({})), &nodes, &[]), Ok("a".to_owned()));
    let there = pod("y", &json!({"nodeName": "a"}));
    assert_eq!(outcome(&pod("x", &json!({})), &nodes, &[there]), Ok("b".to_owned()));
}

#[test]
fn a_pod_goes_where_its_constraints_allow() {
    let edge = json!({
        "metadata": {"labels": {"role": "edge", "zone": "7"}},
        "spec": {"taints": [{"key": "edge", "effect": "NoSchedule"}]},
    });
    let nodes = [node("cloud", &json!({})), node("edge", &edge)];
    let tolerations = json!([{"key": "edge", "operator": "Exists"}]);
    let affinity = |term: Value| {
        let required = json!({"nodeSelectorTerms": [term]});
        json!({"tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    };
    let expression = |key: &str, operator: &str, values: &[&str]| {
        affinity(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
    };
    for (spec, expected) in [
        (json!({}), "cloud"),
        (
            json!({"nodeSelector": {"role": "edge"}, "tolerations": tolerations}),
            "edge",
        ),
        (expression("role", "In", &["edge"]), "edge"),
        (expression("role", "NotIn", &["edge"]), "cloud"),
        (expression("zone", "Gt", &["6"]), "edge"),
        (expression("zone", "DoesNotExist", &[]), "cloud"),
        (
            affinity(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["edge"]}]})),
            "edge",
        ),
    ] {
        assert_eq!(
            outcome(&pod("x", &spec), &nodes, &[]),
            Ok(expected.to_owned()),
            "{spec}"
        );
    }
}

#[test]
fn the_refusal_counts_the_reasons_as_kubernetes_does() {
    assert_eq!(
        outcome(&pod("x", &json!({})), &[], &[]),
        Err("no nodes available to schedule pods".to_owned())
    );
    let nodes = [
        node("a", &json!({})),
        node("b", &json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})),
        node("c", &json!({"spec": {"unschedulable": true}})),
        node("d", &json!({"metadata": {"labels": {"role": "edge"}}})),
    ];
    let greedy = json!({"nodeSelector": {"role": "edge"},
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "3", "memory": "2Gi"}}}]});
    assert_eq!(
        outcome(&pod("x", &greedy), &nodes, &[]).unwrap_err(),
        "0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) didn't match Pod's node \
         affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. no new claims to \
         deallocate, preemption: 0/4 nodes are available: 1 No preemption victims found for incoming pod, 3 Preemption \
         is not helpful for scheduling."
    );
}

#[test]
fn a_full_node_and_a_taken_port_refuse() {
    let nodes = [node("a", &json!({}))];
    let port =
        json!({"nodeName": "a", "containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 9100}]}]});
    let mut wanting = port.clone();
    wanting["nodeName"] = Value::Null;
    let refusal = outcome(&pod("x", &wanting), &nodes, &[pod("y", &port)]).unwrap_err();
    assert!(
        refusal.contains("1 node(s) didn't have free ports for the requested pod ports"),
        "{refusal}"
    );
    let full: Vec<_> = ["1", "2", "3"]
        .iter()
        .map(|name| pod(name, &json!({"nodeName": "a"})))
        .collect();
    let refusal = outcome(&pod("x", &json!({})), &nodes, &full).unwrap_err();
    assert!(refusal.contains("1 Too many pods"), "{refusal}");
}

#[test]
fn a_refusal_is_written_once() {
    let mut pod = Pod::clone(&pod("x", &json!({})));
    let decision = schedule(&pod, &[], &[], &now());
    let [Effect::PatchStatus(_, patch), _] = decision.effects.as_slice() else {
        panic!("{decision:?}")
    };
    pod.status = Some(serde_json::from_value(patch["status"].clone()).unwrap());
    assert_eq!(schedule(&pod, &[], &[], &now()).effects, []);
}

#[test]
fn pods_that_are_placed_or_gated_or_of_another_scheduler_are_left_alone() {
    for spec in [
        json!({"nodeName": "a"}),
        json!({"schedulerName": "other"}),
        json!({"schedulingGates": [{"name": "g"}]}),
    ] {
        assert_eq!(
            schedule(&pod("x", &spec), &[node("a", &json!({}))], &[], &now()).effects,
            [],
            "{spec}"
        );
    }
}
