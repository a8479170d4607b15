//! Runs `helm`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// The oldest Kubernetes that the chart is for.
const KUBERNETES: &str = "1.33.0";

/// Where the chart is.
pub fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/skerry")
}

/// Whether there is a `helm`; says so where there is none.
pub fn is_there() -> bool {
    let there = Command::new("helm").arg("version").output().is_ok();
    if !there {
        assert!(std::env::var_os("SKERRY_REQUIRE_HELM").is_none(), "helm is not on PATH");
        eprintln!("skipped: helm is not on PATH");
    }
    there
}

/// What `helm template` prints with these `--set`s, or why it refuses.
pub fn template(sets: &[&str]) -> Result<String, String> {
    run(Command::new("helm").args(sets.iter().flat_map(|set| ["--set-json", set])))
}

/// The same with a file of values, named from the root of the repository.
pub fn template_with(values: &str) -> Result<String, String> {
    run(Command::new("helm")
        .arg("--values")
        .arg(chart().join("../..").join(values)))
}

fn run(command: &mut Command) -> Result<String, String> {
    command.args(["template", "skerry"]).arg(chart());
    command.args(["--namespace", "sedna", "--kube-version", KUBERNETES]);
    let output = command.output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

/// The objects that these `--set`s render.
pub fn objects(sets: &[&str]) -> Vec<Value> {
    read(&template(sets).unwrap())
}

/// The same with a file of values, named from the root of the repository.
pub fn objects_with(values: &str) -> Vec<Value> {
    read(&template_with(values).unwrap())
}

fn read(rendered: &str) -> Vec<Value> {
    let all: Vec<Option<Value>> = serde_saphyr::from_multiple(rendered).unwrap();
    all.into_iter().flatten().collect()
}

/// The one object of this kind and name.
pub fn one<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects
        .iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    let one = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
    assert!(found.next().is_none(), "two of {kind} {name}");
    one
}
