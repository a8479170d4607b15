//! Services that Sedna ran.

use serde_json::{Value, json};
use skerry_crds::names::{MANAGER, annotation};

use super::{CLOUD, Case, EDGE, body, children, env};
use crate::{Make, Nodes, ObjectKind};

/// What Sedna made of the service: our mark is in none of it, and its workers have names of Sedna's.
fn sednas() -> Case {
    let mut case = Case::running();
    for deployment in [EDGE, CLOUD] {
        let object = case.deployment(deployment);
        object["spec"]["template"]["metadata"]["annotations"] = Value::Null;
        object["spec"]["template"]["spec"]["containers"][0]["env"] =
            json!([{"name": "WORKER_NAME", "value": "w-q9z4t"}]);
    }
    case
}

fn adopted() -> Case {
    let mut case = sednas();
    for deployment in [EDGE, CLOUD] {
        let marks = body(&case.plan(), deployment)["metadata"]["annotations"].clone();
        case.deployment(deployment)["metadata"]["annotations"] = marks;
    }
    case
}

#[test]
fn a_worker_that_sedna_made_gets_a_mark_and_nothing_else() {
    let mut case = sednas();
    let plan = case.plan();
    for deployment in [EDGE, CLOUD] {
        let body = body(&plan, deployment);
        assert_eq!(body.get("spec"), None);
        assert!(body["metadata"]["annotations"][annotation::ADOPTED_HASH].is_string());
        assert_eq!(body["metadata"]["uid"], case.deployment(deployment)["metadata"]["uid"]);
    }
    assert_eq!(plan.events.len(), 2);
    assert_eq!(plan.events[0].reason, "WorkerAdopted");
    assert_eq!(adopted().plan().events, [], "it is told once");
}

#[test]
fn it_is_replaced_when_one_of_its_inputs_is_another_than_at_adoption() {
    let mut case = adopted();
    case.ji.spec.edge_worker.hard_example_mining.name = "Random".to_owned();
    let plan = case.plan();
    assert_eq!(env(&plan, EDGE, "HEM_NAME").as_deref(), Some("Random"));
    assert_eq!(body(&plan, CLOUD).get("spec"), None);
    assert_eq!(plan.events[0].reason, "WorkerUpdated");
}

/// Ownership has moved and the manager died: whatever the inputs are now, there is no way back to Sedna's template.
#[test]
fn a_template_that_has_become_ours_is_rendered() {
    let mut case = adopted();
    case.deployment(EDGE)["metadata"]["managedFields"] =
        json!([{"manager": MANAGER, "fieldsV1": {"f:spec": {"f:template": {}}}}]);
    assert!(env(&case.plan(), EDGE, "HEM_NAME").is_some());
}

#[test]
fn a_missing_model_leaves_open_what_the_worker_was_made_from() {
    let mut case = sednas();
    case.lose(ObjectKind::MODEL, "small");
    let plan = case.plan();
    let edge = children(&plan).iter().find(|child| child.name == EDGE).unwrap();
    assert_eq!(edge.make, Make::Keep);
}

#[test]
fn a_worker_meets_its_partner_under_the_name_that_the_partner_knows() {
    let mut case = adopted();
    case.ji.spec.edge_worker.hard_example_mining.name = "Random".to_owned();
    assert_eq!(env(&case.plan(), EDGE, "JOB_NAME").as_deref(), Some("sedna"));
    // The user had set one, to see figures at all.
    case.deployment(CLOUD)["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "JOB_NAME", "value": "theirs"}]);
    assert_eq!(env(&case.plan(), EDGE, "JOB_NAME").as_deref(), Some("theirs"));
}

#[test]
fn the_node_is_told_the_name_that_sedna_gave_its_worker() {
    let Nodes::Exactly(nodes) = adopted().plan().nodes else {
        panic!("the node holds the service")
    };
    let told: Vec<_> = nodes.values().map(|part| &part.body["workers"]).collect();
    assert_eq!(told, [&json!(["w-q9z4t"])]);
}
