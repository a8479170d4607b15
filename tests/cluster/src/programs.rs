//! Programs that cargo builds.

use std::{path::PathBuf, process::Command};

use anyhow::Context;
use serde_json::Value;

use crate::process::output;

/// Has `build` build, and tells where the programs of these names are.
pub fn built(build: &mut Command, names: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let told = output(build.args(["--locked", "--message-format=json"]))?;
    programs(&told, names)
}

/// The command line, as `cargo test` builds it for its tests.
pub fn command_line() -> anyhow::Result<PathBuf> {
    let mut build = skerry_dist::cargo();
    build.args(["test", "--workspace", "--no-run", "--test", "joining"]);
    let programs = built(&mut build, &["skerry"])?;
    programs.into_iter().next().context("the command line was built")
}

/// The programs in cargo's messages.
fn programs(told: &str, names: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let messages = told.lines().filter_map(|line| serde_json::from_str(line).ok());
    let messages: Vec<Value> = messages.collect();
    let program = |name: &&str| {
        let mut found = messages
            .iter()
            .filter(|message| message.pointer("/target/name").is_some_and(|target| target == name));
        // A library of the same name is none.
        found
            .find_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)))
            .with_context(|| format!("cargo names no program {name}"))
    };
    names.iter().map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_from_its_library_and_from_others() {
        let told = r#"{"reason":"compiler-artifact","target":{"name":"skerry"},"executable":null}
not JSON
{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/target/other"}
{"reason":"compiler-artifact","target":{"name":"skerry"},"executable":"/target/skerry"}"#;
        assert_eq!(
            programs(told, &["skerry", "other"]).unwrap(),
            [PathBuf::from("/target/skerry"), PathBuf::from("/target/other")]
        );
        let error = programs(told, &["third"]).unwrap_err();
        assert_eq!(error.to_string(), "cargo names no program third");
    }
}
