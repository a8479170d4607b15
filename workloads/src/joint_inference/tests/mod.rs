//! Tests of the decisions about a service.

use insta::assert_yaml_snapshot;
use rstest::rstest;
use serde_json::{Value, json};
use skerry_crds::{
    conditions::{self, Condition},
    names,
    sedna::v1alpha1::JointInferenceService,
};

use crate::{
    Applied, Child, Children, Impact, Kind, Live, Lookup, Make, Nodes, ObjectKind, Observed, Payload, Plan, Reference,
    Report, Settings, WorkerMessage, offline, testing,
};

const EDGE: &str = "helmet-deployment-edge";
const CLOUD: &str = "helmet-deployment-cloud";

/// A service, what it refers to, and what lives of it.
struct Case {
    ji: JointInferenceService,
    seen: Observed,
}

impl Case {
    fn new() -> Self {
        let (ji, references) = testing::resource(&testing::fixture("joint-inference.yaml"));
        Self {
            ji,
            seen: Observed {
                references,
                ..Observed::default()
            },
        }
    }

    fn plan(&self) -> Plan {
        self.ji.plan(&self.seen, &Settings::default())
    }

    /// Everything planned is made, and its pods are available.
    fn running() -> Self {
        let mut case = Self::new();
        case.carry_out();
        for live in &mut case.seen.children {
            if live.kind == ObjectKind::DEPLOYMENT {
                live.object["status"] = up(1);
            }
        }
        case.look();
        case
    }

    /// Makes what is planned to be made, at once.
    fn carry_out(&mut self) {
        for (name, body) in made(&self.plan()) {
            let kind = *JointInferenceService::CHILDREN
                .iter()
                .find(|kind| body["kind"] == kind.kind)
                .unwrap();
            let before = self
                .seen
                .children
                .iter()
                .position(|live| live.kind == kind && live.name() == name);
            let status = before
                .map(|at| self.seen.children.remove(at).object["status"].clone())
                .unwrap_or_default();
            let mut object = body;
            object["metadata"]["uid"] = json!(format!("uid-of-{name}"));
            object["status"] = status;
            self.seen.children.push(Live { kind, object });
        }
    }

    /// Writes the status of this moment into the resource.
    fn look(&mut self) -> Vec<Condition> {
        let applied = Applied {
            children: self.seen.children.clone(),
            failures: vec![],
        };
        self.look_at(&applied)
    }

    fn look_at(&mut self, applied: &Applied) -> Vec<Condition> {
        let status = self.ji.status(
            &self.seen,
            &self.plan(),
            applied,
            "2024-05-01T10:00:00Z".parse().unwrap(),
        );
        self.ji.status = Some(status.clone());
        status.conditions
    }

    fn deployment(&mut self, name: &str) -> &mut Value {
        let found = self
            .seen
            .children
            .iter_mut()
            .find(|live| live.kind == ObjectKind::DEPLOYMENT && live.name() == name);
        &mut found.unwrap().object
    }

    fn lose(&mut self, kind: ObjectKind, name: &str) {
        self.seen
            .references
            .0
            .insert(Reference::new(kind, name), Lookup::Missing);
    }
}

fn up(replicas: i64) -> Value {
    json!({"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas,
        "availableReplicas": replicas})
}

fn children(plan: &Plan) -> &[Child] {
    match &plan.children {
        Children::Exactly(children) => children,
        Children::Unchanged => panic!("nothing may be touched"),
    }
}

/// The objects that are applied, by name.
fn made(plan: &Plan) -> Vec<(String, Value)> {
    let made = children(plan).iter().filter_map(|child| match &child.make {
        Make::Apply(body) => Some((child.name.clone(), body.clone())),
        Make::Create(_) => panic!("a service makes no pods"),
        Make::Keep => None,
    });
    made.collect()
}

fn body(plan: &Plan, name: &str) -> Value {
    let found = made(plan).into_iter().find(|(made, _)| made == name);
    found.unwrap_or_else(|| panic!("{name} is not applied")).1
}

fn pod_template(plan: &Plan, name: &str) -> Value {
    body(plan, name)["spec"]["template"].clone()
}

fn env(plan: &Plan, deployment: &str, var: &str) -> Option<String> {
    let template = pod_template(plan, deployment);
    let env = template["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    let found = env.iter().find(|entry| entry["name"] == var)?;
    Some(found["value"].as_str().unwrap().to_owned())
}

fn brief(conditions: &[Condition]) -> Vec<String> {
    let reason = |condition: &Condition| condition.reason.clone().unwrap_or_default();
    conditions
        .iter()
        .map(|condition| format!("{}={} {}", condition.type_, condition.status, reason(condition)))
        .collect()
}

fn message(conditions: &[Condition], type_: &str) -> String {
    conditions::find(conditions, type_)
        .and_then(|condition| condition.message.clone())
        .unwrap_or_default()
}

fn state(conditions: &[Condition]) -> &str {
    &conditions.last().unwrap().type_
}

#[rstest]
#[case("joint-inference")]
#[case("joint-inference-s3")]
fn the_plan_of_a_service(#[case] name: &str) {
    let documents = testing::fixture(&format!("{name}.yaml"));
    let plans = offline(&documents, &Settings::default()).unwrap();
    let (title, plan) = plans.first().unwrap();
    let told = serde_json::to_string(plan).unwrap();
    assert!(!told.contains("do-not-show-me"), "credentials are in the plan");
    insta::with_settings!({ description => title, snapshot_suffix => name }, { assert_yaml_snapshot!("plan", plan) });
}

#[test]
fn the_status_of_a_service_that_runs() {
    let mut case = Case::running();
    case.look();
    assert_yaml_snapshot!(case.ji.status);
}

#[test]
fn the_same_observation_gives_the_same_status_at_another_time() {
    let mut case = Case::running();
    let applied = Applied {
        children: case.seen.children.clone(),
        failures: vec![],
    };
    let later = case.ji.status(
        &case.seen,
        &case.plan(),
        &applied,
        "2030-01-01T00:00:00Z".parse().unwrap(),
    );
    case.look();
    assert_eq!(case.ji.status, Some(later));
}

/// Sedna judged a Deployment by the last of its conditions, which is `Available` after every flap, and never left
/// `Failed`.
#[test]
fn a_flap_of_readiness_is_no_failure_and_heals() {
    let mut case = Case::running();
    case.deployment(EDGE)["status"]["availableReplicas"] = json!(0);
    case.deployment(EDGE)["status"]["conditions"] =
        json!([{"type": "Progressing", "status": "True"}, {"type": "Available", "status": "False"}]);
    let down = case.look();
    assert_eq!(
        brief(&down),
        [
            "Ready=False WorkersUnavailable",
            "Progressing=True RollingOut",
            "Degraded=False AsDeclared",
            "Pending=True WorkersUnavailable"
        ]
    );
    case.deployment(EDGE)["status"]["availableReplicas"] = json!(1);
    let up = case.look();
    assert_eq!(
        brief(&up),
        [
            "Ready=True WorkersAvailable",
            "Progressing=False Settled",
            "Degraded=False AsDeclared",
            "Running=True WorkersAvailable"
        ]
    );
}

/// Sedna called a service failed whose Deployments were a second old.
#[test]
fn a_fresh_deployment_without_conditions_is_pending() {
    let mut case = Case::new();
    case.carry_out();
    let conditions = case.look();
    assert_eq!(state(&conditions), "Pending");
    assert_eq!(case.ji.status.as_ref().unwrap().failed, Some(0));
}

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

/// Sedna made deleted Deployments again by the prefix of their name, whoever they belonged to and whatever the owner.
#[test]
fn an_owner_on_its_way_out_gets_nothing_new() {
    let mut case = Case::running();
    let before = case.ji.status.clone();
    case.ji.metadata.deletion_timestamp = serde_json::from_value(json!("2024-05-01T10:00:00Z")).unwrap();
    case.seen.children.clear();
    assert_eq!(case.plan(), Plan::default());
    case.look();
    assert_eq!(case.ji.status, before, "nor is there anything to tell");
}

#[test]
fn a_deleted_child_is_made_again_once_it_is_gone() {
    for (kind, name) in [(ObjectKind::DEPLOYMENT, EDGE), (ObjectKind::SERVICE, "helmet-cloud")] {
        let mut case = Case::running();
        let at = case
            .seen
            .children
            .iter()
            .position(|live| live.kind == kind && live.name() == name)
            .unwrap();
        case.seen.children[at].object["metadata"]["deletionTimestamp"] = json!("2024-05-01T10:00:00Z");
        let plan = case.plan();
        let kept = children(&plan)
            .iter()
            .find(|child| child.kind == kind && child.name == name)
            .unwrap();
        assert_eq!(kept.make, Make::Keep);
        assert_eq!(plan.findings[0].impact, Impact::Waiting);
        assert!(plan.findings[0].message.contains(name), "{}", plan.findings[0].message);
        let conditions = case.look();
        assert_eq!(message(&conditions, "Progressing"), plan.findings[0].message);

        case.seen.children.remove(at);
        let plan = case.plan();
        assert!(made(&plan).iter().any(|(made, _)| made == name));
        assert_eq!(plan.findings, []);
    }
}

/// Sedna let a missing Model end the service.
#[test]
fn a_missing_model_is_named_and_holds_up_its_worker_alone() {
    let mut case = Case::running();
    case.lose(ObjectKind::MODEL, "small");
    let plan = case.plan();
    let make = |name: &str| &children(&plan).iter().find(|child| child.name == name).unwrap().make;
    assert_eq!(make(EDGE), &Make::Keep);
    assert!(matches!(make(CLOUD), Make::Apply(_)));
    let conditions = case.look();
    assert_eq!(
        brief(&conditions),
        [
            "Ready=False ModelMissing",
            "Progressing=False ModelMissing",
            "Degraded=True ModelMissing",
            "Running=True WorkersAvailable"
        ],
        "what runs goes on"
    );
    assert_eq!(
        message(&conditions, "Ready"),
        "Model small does not exist; the edge worker needs it"
    );

    let mut fresh = Case::new();
    fresh.lose(ObjectKind::MODEL, "small");
    fresh.carry_out();
    assert_eq!(state(&fresh.look()), "Failed");
    assert_eq!(fresh.ji.status.as_ref().unwrap().failed, Some(1));
    assert!(!made(&fresh.plan()).iter().any(|(name, _)| name == EDGE));

    case.seen.references = testing::resource::<JointInferenceService>(&testing::fixture("joint-inference.yaml")).1;
    assert_eq!(state(&case.look()), "Running");
}

/// Sedna let the autoscaler's success hide that the Deployment could not be made.
#[test]
fn a_refused_deployment_is_named_although_its_autoscaler_was_taken() {
    let mut case = Case::new();
    case.ji.spec.edge_worker.hpa = Some(testing::parse(json!({"maxReplicas": 3})));
    case.carry_out();
    case.seen.children.retain(|live| live.name() != EDGE);
    let failure = crate::Failure {
        kind: ObjectKind::DEPLOYMENT,
        name: EDGE.to_owned(),
        reason: "Forbidden".to_owned(),
        message: "Deployment helmet-deployment-edge: exceeded quota".to_owned(),
    };
    let applied = Applied {
        children: case.seen.children.clone(),
        failures: vec![failure],
    };
    let conditions = case.look_at(&applied);
    assert_eq!(state(&conditions), "Failed");
    assert_eq!(
        message(&conditions, "Ready"),
        "Deployment helmet-deployment-edge: exceeded quota"
    );
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
fn a_pod_that_cannot_run_is_named() {
    let mut case = Case::running();
    let labels = |live: &mut Live| {
        live.object["metadata"]["labels"] = json!({"jointinferenceservice.sedna.io/worker-type": "edge"});
    };
    let mut pod = testing::pod(
        "helmet-deployment-edge-abc",
        Some("edge-1"),
        &json!({"phase": "Pending", "containerStatuses": [
            {"name": "little-model", "image": "example/little:v1", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}),
    );
    labels(&mut pod);
    case.seen.pods.push(pod);
    let still_serving = case.look();
    assert_eq!(
        brief(&still_serving),
        [
            "Ready=True WorkersAvailable",
            "Progressing=False Settled",
            "Degraded=True ImagePullFailed",
            "Running=True WorkersAvailable"
        ]
    );
    case.deployment(EDGE)["status"]["availableReplicas"] = json!(0);
    let down = case.look();
    assert_eq!(state(&down), "Failed");
    assert_eq!(
        message(&down, "Ready"),
        "Pod helmet-deployment-edge-abc cannot start: the image example/little:v1 of container little-model cannot be pulled"
    );
}

#[test]
fn a_paused_service_is_left_as_it_is_and_says_so() {
    let mut case = Case::running();
    case.ji.metadata.annotations = Some([("skerry.io/paused".to_owned(), "true".to_owned())].into());
    case.seen.children.retain(|live| live.kind != ObjectKind::SERVICE);
    let plan = case.plan();
    assert_eq!((&plan.children, &plan.nodes), (&Children::Unchanged, &Nodes::Unchanged));
    let conditions = case.look();
    assert_eq!(brief(&conditions)[1], "Progressing=False Paused");
    assert_eq!(state(&conditions), "Running");
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
fn the_order_in_which_things_were_found_does_not_count() {
    let mut case = Case::running();
    for name in ["x", "y", "z"] {
        let mut pod = testing::pod(
            name,
            Some("edge-1"),
            &json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": name}]}),
        );
        pod.object["metadata"]["labels"] = json!({"jointinferenceservice.sedna.io/worker-type": "edge"});
        case.seen.pods.push(pod);
    }
    let (plan, conditions) = (case.plan(), case.look());
    case.seen.pods.reverse();
    case.seen.children.reverse();
    assert_eq!(case.plan(), plan);
    assert_eq!(case.look(), conditions);
}

fn reported(owner_info: &Value) -> Report {
    let message = WorkerMessage {
        owner_info: owner_info.as_object().unwrap().clone(),
        ..WorkerMessage::default()
    };
    Report {
        node: "edge-1".to_owned(),
        payload: Payload::Worker(Box::new(message)),
    }
}

#[test]
fn figures_become_metrics_in_order_of_name() {
    let case = Case::new();
    let report = reported(&json!({
        "uploadCloudRatio": 0.25, "inferenceNumber": 8, "startTime": "x", "updateTime": "y", "note": "text",
        "parts": [1, 2],
    }));
    let changes = case.ji.report(&report, jiff::Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(
        (changes.len(), changes[0].kind, changes[0].name.as_str()),
        (1, ObjectKind::JOINT_INFERENCE_SERVICE, "helmet")
    );
    assert_eq!(
        Value::Object(changes[0].status.clone()),
        json!({"metrics": [
            {"key": "inferenceNumber", "value": "8"}, {"key": "note", "value": "text"},
            {"key": "parts", "value": "[1,2]"}, {"key": "uploadCloudRatio", "value": "0.25"},
        ]})
    );
}

#[test]
fn a_report_without_figures_changes_nothing_and_one_of_another_kind_is_refused() {
    let case = Case::new();
    assert_eq!(
        case.ji
            .report(&reported(&json!({"startTime": "x"})), jiff::Timestamp::UNIX_EPOCH),
        Ok(vec![])
    );
    let samples = Report {
        node: "edge-1".to_owned(),
        payload: Payload::Samples(3),
    };
    let refusal = case.ji.report(&samples, jiff::Timestamp::UNIX_EPOCH).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "a JointInferenceService takes no report of this form: a count of samples"
    );
}
