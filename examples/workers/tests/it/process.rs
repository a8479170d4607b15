//! The binary: what it makes, how it fails, how it stops.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use skerry_workers::model;

fn worker(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skerry-worker"));
    command.args(args).env_clear();
    command
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The large model of the examples is what the documented command makes of the documented files, each time.
#[test]
fn data_and_models_can_be_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let made = worker(&["data"]).env("DATA_DIR", folder.path()).output().unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    let file = |name| path(folder.path(), name);
    let again = worker(&[
        "train-central",
        "--train",
        &file("digits/train-1.csv"),
        "--train",
        &file("digits/train-2.csv"),
    ])
    .args(["--test", &file("digits/test.csv"), "--out", &file("again.json")])
    .output()
    .unwrap();
    assert!(again.status.success(), "{}", stderr(&again));
    let read = |name| std::fs::read(folder.path().join(name)).unwrap();
    assert!(read("models/digits-large.json") == read("again.json"));

    let test = skerry_workers::data::read(&folder.path().join("digits/test.csv")).unwrap();
    let accuracy = model::load(&folder.path().join("again.json")).unwrap().accuracy(&test);
    assert!(accuracy >= 0.96, "{accuracy}");
    assert!(
        stderr(&again).contains(&format!("accuracy {accuracy:.4} on 400 others")),
        "{}",
        stderr(&again)
    );
}

#[test]
fn a_cause_is_told_once() {
    let output = worker(&["cloud-inference"])
        .envs([("NAMESPACE", "n"), ("SERVICE_NAME", "s"), ("WORKER_NAME", "w")])
        .env("MODEL_URL", "/absent/model.json")
        .output()
        .unwrap();
    let told = stderr(&output);
    assert!(!output.status.success());
    assert_eq!(told.matches("/absent/model.json").count(), 1, "{told}");
    assert_eq!(told.matches("No such file").count(), 1, "{told}");
}

#[test]
fn a_bad_environment_is_one_sentence_and_a_failure() {
    let output = worker(&["train"])
        .env("AGG_IP", "a")
        .env("AGG_PORT", "x")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "skerry-worker: AGG_PORT is \"x\": a port number (0 to 65535) is wanted\n"
    );
    assert_eq!(worker(&["trian"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn a_service_stops_cleanly_and_a_job_that_is_stopped_does_not_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m.json");
    model::save(&model, &skerry_workers::network::Network::softmax().weights()).unwrap();
    for (args, started, code) in [(["cloud-inference"], "serving", 0), (["aggregate"], "waiting", 1)] {
        let mut child = worker(&args)
            .env("MODEL_URL", &model)
            .envs([
                ("BIG_MODEL_BIND_PORT", "0"),
                ("AGG_BIND_PORT", "0"),
                ("SERVICE_NAME", "digits"),
            ])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(started)));
        let killed = Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status()
            .unwrap();
        assert!(killed.success());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{args:?}");
    }
}
