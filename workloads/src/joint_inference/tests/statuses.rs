//! What the status of a service says.

use insta::assert_yaml_snapshot;
use proptest::prelude::*;
use serde_json::json;
use skerry_crds::sedna::v1alpha1::JointInferenceService;

use super::{CLOUD, Case, EDGE, brief, children, made, message, state, up};
use crate::{Applied, Children, Impact, Kind, Live, Make, Nodes, ObjectKind, Plan, testing};

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

/// Sedna failed a service for good while it was scaled out.
#[test]
fn a_service_that_is_scaled_out_serves_all_the_same() {
    let mut case = Case::running();
    case.ji.spec.edge_worker.hpa = Some(testing::parse(json!({"maxReplicas": 5})));
    let deployment = case.deployment(EDGE);
    deployment["spec"]["replicas"] = json!(5);
    deployment["status"]["replicas"] = json!(5);
    let conditions = case.look();
    assert_eq!(state(&conditions), "Running");
    assert_eq!(brief(&conditions)[1], "Progressing=True RollingOut");
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the Deployments went through, the state is what they are in now, and telling it again changes nothing.
    #[test]
    fn no_state_is_final(history in prop::collection::vec((0..3_i64, 0..3_i64, any::<bool>()), 1..8)) {
        let mut case = Case::running();
        for (ready, updated, missing) in history {
            case.deployment(EDGE)["status"]["availableReplicas"] = json!(ready);
            case.deployment(EDGE)["status"]["updatedReplicas"] = json!(updated);
            let good = Case::new().seen.references;
            case.seen.references = good;
            if missing {
                case.lose(ObjectKind::MODEL, "small");
            }
            let conditions = case.look();
            let expected = match (ready, missing) {
                (1.., _) => "Running",
                (_, true) => "Failed",
                (_, false) => "Pending",
            };
            prop_assert_eq!(state(&conditions), expected);
            prop_assert_eq!(conditions.len(), 4);
            prop_assert_eq!(case.look(), conditions);
        }
        case.deployment(EDGE)["status"] = up(1);
        case.seen.references = Case::new().seen.references;
        let healed = brief(&case.look());
        prop_assert_eq!(healed.first().map(String::as_str), Some("Ready=True WorkersAvailable"));
    }
}
