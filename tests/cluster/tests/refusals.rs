//! A machine that refuses something: what cannot run there is found out by trying, and named in the last lines of a run.
//!
//! Refused is for real, by the kernel or by a program that is another one here. It takes root to be refused as root.

#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;
use skerry_cluster::{abilities, process::install_script};

const REQUIRE: &str = "SKERRY_REQUIRE_CLUSTER";

/// What stands for a program that would do as it is told.
const WILLING: &str = "exit 0";

/// A folder with programs that go before those of the machine.
fn programs(of: &str, scripts: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(of);
    fs::create_dir_all(&folder).unwrap();
    for (name, script) in scripts {
        install_script(&format!("#!/bin/sh\n{script}\n"), &folder.join(name)).unwrap();
    }
    folder
}

/// Runs `tests/cluster/run` by the words before it, if any: its last line but the one about what is required, and whether
/// it ended well.
fn run(before: &[&str], arguments: &[&str], path: &str, required: bool) -> (String, bool) {
    let program = env!("CARGO_BIN_EXE_skerry-cluster");
    let words = [before, &[program][..], arguments].concat();
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .env("PATH", path)
        .env(REQUIRE, if required { "1" } else { "0" });
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<_> = said.lines().collect();
    if !required {
        assert_eq!(
            lines.pop(),
            Some("(with SKERRY_REQUIRE_CLUSTER=1 that is a failure)"),
            "{output:?}"
        );
    }
    (lines.pop().unwrap_or_default().to_owned(), output.status.success())
}

/// Fails unless the run says last that `what` was skipped, and why; and fails itself where it is required.
fn is_refused(before: &[&str], arguments: &[&str], path: &str, what: &str, why: &str) {
    for required in [false, true] {
        let (last, good) = run(before, arguments, path, required);
        assert!(
            last.starts_with(&format!("skipped: {what}")) && last.contains(why),
            "{last}"
        );
        assert_eq!(good, !required, "{last}");
    }
}

/// Whether root can take something from a run here; says so where it cannot.
fn can_refuse() -> bool {
    let why = abilities::unrefused();
    if let Some(why) = &why {
        eprintln!("skipped: {why}");
    }
    why.is_none()
}

/// The programs of the machine behind these.
fn before_the_machines(folder: &Path) -> String {
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

#[test]
fn without_go_nothing_runs() {
    let none = programs("without-go", &[]);
    is_refused(
        &[],
        &["--only", "hosts"],
        none.to_str().unwrap(),
        "everything",
        "Kubernetes is built with Go",
    );
}

#[test]
fn without_namespaces_nothing_runs() {
    if !can_refuse() {
        return;
    }
    let path = before_the_machines(&programs("without-namespaces", &[("go", WILLING)]));
    let before = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];
    is_refused(
        &before,
        &["--only", "hosts"],
        &path,
        "everything",
        "there are no namespaces to be had",
    );
}

#[test]
fn without_cgroups_there_are_no_hosts() {
    if !can_refuse() {
        return;
    }
    let path = before_the_machines(&programs("without-cgroups", &[("go", WILLING)]));
    let before = [concat!(env!("CARGO_MANIFEST_DIR"), "/without-cgroups")];
    is_refused(
        &before,
        &["--only", "hosts"],
        &path,
        "the two hosts",
        "there are no cgroups to be had",
    );
}

#[test]
fn where_no_container_runs_there_are_no_hosts() {
    if !can_refuse() {
        return;
    }
    let folder = programs(
        "without-containers",
        &[
            ("containerd", "exec sleep infinity"),
            ("ctr", WILLING),
            (
                "runc",
                "case $1 in\nspec) echo '{\"process\": {}}' > config.json ;;\n\
                 run) echo 'operation not permitted' >&2; exit 1 ;;\nesac",
            ),
        ],
    );
    // As it is when all is built, and a run goes on inside.
    let pause = folder.join("runc");
    let kubernetes = json!({ "components": "", "kubectl": "" });
    let built = json!({
        "sources": {}, "kubernetes": kubernetes, "role": "", "scenarios": [], "contract": null, "bench": null, "skipped": [],
        "hosts": {
            "kubernetes": kubernetes, "coredns": "", "pause": pause, "helm": "", "service_monitors": "", "skerry": "",
            "images": [],
        },
    });
    let inside = "mount -t tmpfs tmpfs /run; exec \"$@\"";
    let before = [
        "unshare",
        "--mount",
        "--net",
        "--propagation",
        "private",
        "sh",
        "-ec",
        inside,
        "-",
    ];
    let arguments = ["within", &built.to_string(), "--only", "hosts"];
    let path = before_the_machines(&folder);
    is_refused(&before, &arguments, &path, "the two hosts", "no container runs");
    is_refused(&before, &arguments, &path, "the two hosts", "operation not permitted");
}
