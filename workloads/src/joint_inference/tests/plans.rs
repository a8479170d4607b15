//! What is planned for a service.

use rstest::rstest;
use serde_json::{Value, json};
use skerry_crds::names;

use super::{CLOUD, Case, EDGE, body, children, env, made, pod_template};
use crate::{Kind, Nodes, ObjectKind, Observed, Plan, Settings, testing};

/// Sedna ended in `Failed` for good where one of the children already existed.
#[test]
fn what_is_there_already_is_applied_like_the_rest() {
    let mut case = Case::new();
    case.carry_out();
    case.seen.children.retain(|live| live.kind == ObjectKind::SERVICE);
    assert_eq!(made(&case.plan()).len(), 3);
}

/// Sedna applied an edit only if it saw the change happen.
#[test]
fn an_edit_is_found_by_comparison_however_long_ago_it_was_made() {
    let mut case = Case::running();
    case.ji.spec.edge_worker.hard_example_mining.name = "Random".to_owned();
    case.ji.metadata.generation = Some(7);
    let plan = case.plan();
    assert_eq!(env(&plan, EDGE, "HEM_NAME").as_deref(), Some("Random"));
    assert_ne!(&body(&plan, EDGE)["spec"], &case.deployment(EDGE)["spec"]);
    assert_eq!(
        &body(&plan, CLOUD)["spec"],
        &case.deployment(CLOUD)["spec"],
        "the other worker is not touched"
    );
    assert_eq!(plan.events.len(), 1, "{:?}", plan.events);
    assert_eq!(plan.events[0].reason, "WorkerUpdated");
}

/// Sedna ordered variables by chance and drew a new `WORKER_NAME` on every update.
#[test]
fn the_same_resource_gives_the_same_bytes_and_names() {
    let case = Case::new();
    let bytes = |plan: &Plan| serde_json::to_string(plan).unwrap();
    assert_eq!(bytes(&case.plan()), bytes(&case.plan()));
    let name = env(&case.plan(), EDGE, "WORKER_NAME");
    let mut edited = Case::new();
    edited.ji.spec.edge_worker.hard_example_mining.parameters.clear();
    assert_eq!(env(&edited.plan(), EDGE, "WORKER_NAME"), name);
    assert_ne!(env(&case.plan(), CLOUD, "WORKER_NAME"), name);
}

#[rstest]
#[case("template", |case: &mut Case| {
    let spec = case.ji.spec.edge_worker.template.as_map_mut();
    spec["spec"]["containers"][0]["image"] = json!("example/little:v2");
})]
#[case("filter", |case: &mut Case| case.ji.spec.edge_worker.hard_example_mining.parameters[0].value = "0.1".to_owned())]
#[case("model", |case: &mut Case| {
    let model = testing::model("small", "/models/helmet/newer.pb", "");
    case.seen.references.0.extend(testing::found([model]).0);
})]
fn a_change_of_any_input_rolls_the_worker_that_uses_it(#[case] what: &str, #[case] change: fn(&mut Case)) {
    let mut case = Case::running();
    change(&mut case);
    let plan = case.plan();
    let hash = |template: &Value| template["metadata"]["annotations"][names::annotation::INPUTS_HASH].clone();
    let before = case.deployment(EDGE)["spec"]["template"].clone();
    assert_ne!(hash(&pod_template(&plan, EDGE)), hash(&before), "{what}");
    assert_eq!(
        pod_template(&plan, CLOUD),
        case.deployment(CLOUD)["spec"]["template"],
        "{what}"
    );
}

#[test]
fn a_rotated_secret_rolls_the_worker_that_uses_it() {
    let documents = testing::fixture("joint-inference-s3.yaml");
    let (ji, references) = testing::resource(&documents);
    let mut case = Case {
        ji,
        seen: Observed {
            references,
            ..Observed::default()
        },
    };
    let before = (
        pod_template(&case.plan(), "digits-deployment-edge"),
        pod_template(&case.plan(), "digits-deployment-cloud"),
    );
    let mut secret = testing::secret("storage");
    secret["metadata"]["annotations"] = json!({"s3-endpoint": "storage.example:9000", "s3-usehttps": "0"});
    case.seen.references.0.extend(testing::found([secret]).0);
    assert_ne!(pod_template(&case.plan(), "digits-deployment-edge"), before.0);
    assert_eq!(pod_template(&case.plan(), "digits-deployment-cloud"), before.1);
}

#[test]
fn the_inputs_hash_is_of_what_was_declared_not_of_what_was_made_of_it() {
    let case = Case::new();
    let hash = |settings: &Settings| {
        let template = pod_template(&case.ji.plan(&case.seen, settings), EDGE);
        template["metadata"]["annotations"][names::annotation::INPUTS_HASH].clone()
    };
    let newer = Settings {
        local_controller_server: "http://localhost:9999".to_owned(),
        ..Settings::default()
    };
    assert_eq!(hash(&Settings::default()), hash(&newer));
}

#[rstest]
#[case::made("no one", json!(null), Some(1))]
#[case::ours(names::MANAGER, json!(3), Some(3))]
#[case::taken_over("kube-controller-manager", json!(3), None)]
fn replicas_are_left_to_an_autoscaler_once_it_has_taken_over(
    #[case] manager: &str,
    #[case] observed: Value,
    #[case] applied: Option<i64>,
) {
    let mut case = Case::new();
    case.ji.spec.edge_worker.hpa = Some(testing::parse(json!({"maxReplicas": 3})));
    case.carry_out();
    if observed.is_null() {
        case.seen.children.clear();
    } else {
        let deployment = case.deployment(EDGE);
        deployment["spec"]["replicas"] = observed;
        deployment["metadata"]["managedFields"] =
            json!([{"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
    }
    assert_eq!(
        body(&case.plan(), EDGE)["spec"].get("replicas"),
        applied.map(Value::from).as_ref()
    );
}

#[test]
fn replicas_set_by_hand_are_put_back() {
    let mut case = Case::running();
    let deployment = case.deployment(EDGE);
    deployment["spec"]["replicas"] = json!(3);
    deployment["metadata"]["managedFields"] =
        json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
    assert_eq!(body(&case.plan(), EDGE)["spec"]["replicas"], json!(1));
}

#[test]
fn an_autoscaler_that_is_no_longer_declared_goes() {
    let mut case = Case::new();
    case.ji.spec.edge_worker.hpa = Some(testing::parse(json!({"maxReplicas": 3})));
    let scaler = "hpa-helmet-deployment-edge";
    assert!(children(&case.plan()).iter().any(|child| child.name == scaler));
    case.carry_out();
    case.ji.spec.edge_worker.hpa = None;
    assert!(!children(&case.plan()).iter().any(|child| child.name == scaler));
}

#[test]
fn the_edge_node_is_where_the_template_or_the_scheduler_put_the_pod() {
    let nodes = |case: &Case| match case.plan().nodes {
        Nodes::Exactly(nodes) => nodes.into_keys().collect::<Vec<_>>(),
        Nodes::Unchanged => panic!("nodes are known"),
    };
    let mut case = Case::new();
    assert_eq!(nodes(&case), ["edge-1"]);
    case.ji.spec.edge_worker.template.as_map_mut()["spec"]
        .as_object_mut()
        .unwrap()
        .remove("nodeName");
    assert_eq!(nodes(&case), [""; 0]);
    for (name, worker, node, phase) in [
        ("a", "edge", Some("edge-2"), "Running"),
        ("b", "edge", Some("edge-3"), "Failed"),
        ("c", "cloud", Some("cloud-1"), "Running"),
        ("d", "edge", None, "Pending"),
    ] {
        let mut pod = testing::pod(name, node, &json!({"phase": phase}));
        pod.object["metadata"]["labels"] = json!({"jointinferenceservice.sedna.io/worker-type": worker});
        case.seen.pods.push(pod);
    }
    assert_eq!(nodes(&case), ["edge-2"]);
}

#[test]
fn two_services_share_nothing() {
    let one = Case::new();
    let mut other = Case::new();
    other.ji.metadata.name = Some("other".to_owned());
    other.ji.metadata.uid = Some("another-uid".to_owned());
    let told = serde_json::to_string(&other.plan()).unwrap();
    assert!(
        !told.contains("helmet-deployment") && !told.contains("helmet-cloud"),
        "{told}"
    );
    assert_ne!(
        env(&one.plan(), EDGE, "WORKER_NAME"),
        env(&other.plan(), "other-deployment-edge", "WORKER_NAME")
    );
}
