//! Tests of the decisions about a Model.

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};
use skerry_crds::{conditions, sedna::v1alpha1::Model};

use crate::{Applied, Children, Kind, Nodes, Observed, Payload, Plan, Report, Settings, testing};

fn model(url: &str, secret: &str) -> Model {
    testing::resource(&[testing::model("m", url, secret)]).0
}

fn said(model: &Model, seen: &Observed, type_: &str) -> String {
    let plan = model.plan(seen, &Settings::default());
    let status = model.status(seen, &plan, &Applied::default(), Timestamp::UNIX_EPOCH);
    let condition = conditions::find(&status.conditions, type_).unwrap();
    format!("{} {}", condition.status, condition.reason.as_ref().unwrap())
}

fn with(secrets: impl IntoIterator<Item = Value>) -> Observed {
    Observed {
        references: testing::found(secrets),
        ..Observed::default()
    }
}

#[rstest]
#[case("/models/m.pb", "", with([]), "True Usable", "False AsDeclared")]
#[case("models/m.pb", "", with([]), "False AddressInvalid", "True AddressInvalid")]
#[case("s3://b/m", "keys", with([]), "False SecretMissing", "True SecretMissing")]
#[case("s3://b/m", "keys", with([testing::secret("keys")]), "True Usable", "False AsDeclared")]
#[case("s3://b/m", "keys", with([json!({"kind": "Secret", "metadata": {"name": "keys"}})]),
    "False SecretIncomplete", "True SecretIncomplete")]
#[case("/models/m.pb", "keys", with([]), "True Usable", "True SecretMissing")]
fn it_is_ready_when_workers_can_use_it(
    #[case] url: &str,
    #[case] secret: &str,
    #[case] seen: Observed,
    #[case] ready: &str,
    #[case] degraded: &str,
) {
    let model = model(url, secret);
    assert_eq!(said(&model, &seen, "Ready"), ready);
    assert_eq!(said(&model, &seen, "Degraded"), degraded);
}

#[test]
fn it_has_no_children_and_no_part_on_nodes() {
    let plan = model("/models/m.pb", "").plan(&Observed::default(), &Settings::default());
    assert_eq!(plan.children, Children::Exactly(vec![]));
    assert_eq!(plan.nodes, Nodes::Exactly([].into()));
}

#[test]
fn the_status_leaves_out_what_jobs_report() {
    let mut model = model("/models/m.pb", "");
    model.status =
        testing::parse(json!({"metrics": [{"key": "accuracy", "value": "0.9"}], "updateTime": Timestamp::UNIX_EPOCH}));
    let status = model.status(
        &Observed::default(),
        &Plan::default(),
        &Applied::default(),
        Timestamp::UNIX_EPOCH,
    );
    let fields = serde_json::to_value(status).unwrap();
    for reported in Model::REPORTED {
        assert_eq!(fields.get(reported), None);
    }
}

#[test]
fn nodes_report_on_its_job_not_on_it() {
    let report = Report {
        node: "edge-1".to_owned(),
        payload: Payload::Samples(1),
    };
    assert!(
        model("/models/m.pb", "")
            .report(&report, Timestamp::UNIX_EPOCH)
            .is_err()
    );
}
