//! The manifests name what there is: subcommands, nodes, and files that `skerry-worker data` or a worker writes.

use std::collections::BTreeSet;

use clap::{CommandFactory as _, Parser};
use serde_json::Value;

const ROOT: &str = "/var/lib/skerry/examples";

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    _command: skerry_workers::Command,
}

fn manifests(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// Every value of this key, at any depth.
fn values<'a>(value: &'a Value, key: &str) -> Vec<&'a Value> {
    let own = value.get(key).into_iter();
    let members: Vec<&Value> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    own.chain(members.into_iter().flat_map(|member| values(member, key)))
        .collect()
}

fn texts<'a>(documents: &'a [Value], key: &str) -> BTreeSet<&'a str> {
    documents
        .iter()
        .flat_map(|document| values(document, key))
        .filter_map(Value::as_str)
        .collect()
}

#[test]
fn the_manifests_name_what_there_is() {
    let all: Vec<Value> = [
        "federated-learning/digits.yaml",
        "joint-inference/digits.yaml",
        "data/nodes.yaml",
    ]
    .into_iter()
    .flat_map(manifests)
    .collect();
    let known: BTreeSet<String> = Cli::command()
        .get_subcommands()
        .map(|command| command.get_name().into())
        .collect();
    let asked: Vec<&str> = all
        .iter()
        .flat_map(|d| values(d, "args"))
        .map(|args| args[0].as_str().unwrap())
        .collect();
    assert_eq!(asked.len(), 8);
    assert!(
        asked.iter().all(|command| known.contains(*command)),
        "{asked:?}, {known:?}"
    );
    assert_eq!(texts(&all, "nodeName"), BTreeSet::from(["cloud-1", "edge-1", "edge-2"]));
    assert_eq!(texts(&all, "image"), BTreeSet::from(["skerry/worker:latest"]));
    assert!(texts(&all, "path").contains(ROOT));

    let urls: BTreeSet<String> = texts(&all, "url")
        .into_iter()
        .map(|url| url.replace(ROOT, ""))
        .collect();
    let expected = [
        "/digits/train-1.csv",
        "/digits/train-2.csv",
        "/models/digits-federated.json",
        "/models/digits-large.json",
    ];
    assert_eq!(urls, expected.map(str::to_owned).into());
}

#[test]
fn each_trainer_is_where_its_samples_are() {
    let documents = manifests("federated-learning/digits.yaml");
    let find = |kind: &str, name: &str| {
        documents
            .iter()
            .find(|d| d["kind"] == kind && d["metadata"]["name"] == name)
            .unwrap_or(&Value::Null)
    };
    for trainer in find("FederatedLearningJob", "learn-digits")["spec"]["trainingWorkers"]
        .as_array()
        .unwrap()
    {
        let dataset = find("Dataset", trainer["dataset"]["name"].as_str().unwrap());
        assert!(dataset["spec"]["nodeName"].is_string());
        assert_eq!(dataset["spec"]["nodeName"], trainer["template"]["spec"]["nodeName"]);
    }
}
