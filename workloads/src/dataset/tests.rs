//! Tests of the decisions about a Dataset.

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};
use skerry_crds::{conditions, sedna::v1alpha1::Dataset};

use crate::{
    Applied, Impact, Kind, Nodes, ObjectKind, Observed, Payload, Plan, Reference, Refusal, Report, Settings, testing,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn dataset(url: &str, secret: &str) -> Dataset {
    testing::resource(&[testing::dataset("samples", url, secret)]).0
}

fn plan(dataset: &Dataset, seen: &Observed) -> Plan {
    dataset.plan(seen, &Settings::default())
}

fn ready(dataset: &Dataset, plan: &Plan) -> String {
    let status = dataset.status(&Observed::default(), plan, &Applied::default(), NOW);
    let ready = conditions::find(&status.conditions, "Ready").unwrap().clone();
    format!("{} {}: {}", ready.status, ready.reason.unwrap(), ready.message.unwrap())
}

#[test]
fn the_node_that_it_names_gets_it() {
    let dataset = dataset("/data/train.txt", "");
    let Nodes::Exactly(nodes) = plan(&dataset, &Observed::default()).nodes else {
        panic!("the node is known")
    };
    assert_eq!(nodes.keys().collect::<Vec<_>>(), ["edge-1"]);
    assert_eq!(nodes["edge-1"].credential, None);
    assert_eq!(nodes["edge-1"].body["spec"]["url"], "/data/train.txt");
    assert_eq!(nodes["edge-1"].body["metadata"]["generation"], 1);
}

#[test]
fn credentials_go_by_reference_where_they_are_needed() {
    let dataset = dataset("s3://bucket/train.txt", "keys");
    let secret = Reference::new(ObjectKind::SECRET, "keys");
    let mut seen = Observed::default();
    assert!(dataset.references(&seen.references).contains(&secret));
    let without = plan(&dataset, &seen);
    assert_eq!(without.nodes, Nodes::Unchanged, "the node keeps what it has");
    assert_eq!(without.findings[0].impact, Impact::Blocked);
    assert_eq!(
        ready(&dataset, &without),
        "False SecretMissing: Secret keys does not exist; Dataset samples names it, and the node that counts the samples needs it"
    );

    seen.references = testing::found([testing::secret("keys")]);
    let Nodes::Exactly(nodes) = plan(&dataset, &seen).nodes else {
        panic!("nothing is missing")
    };
    assert_eq!(nodes["edge-1"].credential, Some(secret));
    assert!(!nodes["edge-1"].body.to_string().contains("aWQ="));
}

#[test]
fn a_paused_or_dying_dataset_is_left_as_it_is() {
    let mut paused = dataset("/data/train.txt", "");
    paused.metadata.annotations = Some([("skerry.io/paused".to_owned(), "true".to_owned())].into());
    assert_eq!(plan(&paused, &Observed::default()).nodes, Nodes::Unchanged);
    let mut dying = dataset("/data/train.txt", "");
    dying.metadata.deletion_timestamp = serde_json::from_value(json!("2024-05-01T10:00:00Z")).unwrap();
    assert_eq!(plan(&dying, &Observed::default()), Plan::default());
}

#[rstest]
#[case(json!({}), "False AwaitingCount: node edge-1 has not counted the samples yet")]
#[case(json!({"numberOfSamples": 0}), "True Counted: node edge-1 has counted the samples")]
#[case(
    json!({"numberOfSamples": 3, "countError": "no such file"}),
    "False CountFailed: node edge-1 cannot count the samples of Dataset samples: no such file"
)]
fn it_is_ready_once_counted(#[case] status: Value, #[case] expected: &str) {
    let mut dataset = dataset("/data/train.txt", "");
    dataset.status = testing::parse(status);
    assert_eq!(ready(&dataset, &plan(&dataset, &Observed::default())), expected);
}

#[test]
fn the_status_leaves_out_what_the_node_reports() {
    let mut dataset = dataset("/data/train.txt", "");
    dataset.status = testing::parse(json!({"numberOfSamples": 3, "updateTime": NOW, "countError": "x"}));
    let status = dataset.status(&Observed::default(), &Plan::default(), &Applied::default(), NOW);
    let fields = serde_json::to_value(status).unwrap();
    for reported in Dataset::REPORTED {
        assert_eq!(fields.get(reported), None);
    }
}

fn report(dataset: &Dataset, node: &str, payload: Payload) -> Result<Value, Refusal> {
    let report = Report {
        node: node.to_owned(),
        payload,
    };
    let changes = dataset.report(&report, "2024-05-01T10:00:00Z".parse().unwrap())?;
    assert_eq!(
        (changes.len(), changes[0].kind, changes[0].name.as_str()),
        (1, ObjectKind::DATASET, "samples")
    );
    Ok(Value::Object(changes.into_iter().next().unwrap().status))
}

#[test]
fn a_count_is_stamped_when_it_changes() {
    let mut dataset = dataset("/data/train.txt", "");
    let first = json!({"numberOfSamples": 3, "updateTime": "2024-05-01T10:00:00Z"});
    assert_eq!(report(&dataset, "edge-1", Payload::Samples(3)), Ok(first));
    let known = json!({"numberOfSamples": 3, "updateTime": "2024-01-01T00:00:00Z"});
    dataset.status = testing::parse(known.clone());
    assert_eq!(report(&dataset, "edge-1", Payload::Samples(3)), Ok(known));
    let failed = report(&dataset, "edge-1", Payload::SamplesFailed("no such file".to_owned())).unwrap();
    assert_eq!(
        failed,
        json!({"numberOfSamples": 3, "updateTime": "2024-01-01T00:00:00Z", "countError": "no such file"})
    );
    dataset.status = testing::parse(failed);
    let mended = json!({"numberOfSamples": 4, "updateTime": "2024-05-01T10:00:00Z"});
    assert_eq!(report(&dataset, "edge-1", Payload::Samples(4)), Ok(mended));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dataset = dataset("/data/train.txt", "");
    let refusal = |node, payload| report(&dataset, node, payload).unwrap_err().to_string();
    assert_eq!(
        refusal("edge-2", Payload::Samples(3)),
        "node edge-2 reports, but the resource is on node edge-1"
    );
    assert_eq!(
        refusal("edge-1", Payload::Worker(Box::default())),
        "a Dataset takes no report of this form: a worker's message"
    );
    assert!(refusal("edge-1", Payload::Samples(u64::MAX)).starts_with("numberOfSamples makes no sense"));
}
