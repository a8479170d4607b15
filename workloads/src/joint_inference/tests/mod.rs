//! Tests of the decisions about a service.

mod adoption;
mod plans;
mod reports;
mod statuses;

use insta::assert_yaml_snapshot;
use rstest::rstest;
use serde_json::{Value, json};
use skerry_crds::{
    conditions::{self, Condition},
    sedna::v1alpha1::JointInferenceService,
};

use crate::{
    Applied, Child, Children, Kind, Live, Lookup, Make, ObjectKind, Observed, Plan, Reference, Settings, offline,
    testing,
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
