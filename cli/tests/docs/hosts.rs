//! What a page has in an `sh` block is started on a host of its own, which no test here has. So what would be started reads it:
//! a program's words its own parser and checks, and a chart's values Helm, which renders them.

use std::{ffi::OsStr, path::Path, process::Command};

use clap::Parser;
use skerry_globalmanager::config;
use skerry_localcontroller::Args;

/// As the programs themselves have it.
#[derive(Parser)]
struct Manager {
    #[command(flatten)]
    flags: config::Flags,
}

#[derive(Parser)]
struct Node {
    #[command(flatten)]
    args: Args,
}

/// Why a line could not be run as it stands.
pub(crate) fn refused(line: &str) -> Option<String> {
    let is_variable = |word: &&str| word.split_once('=').is_some_and(|(name, _)| !name.starts_with('-'));
    let words: Vec<_> = line.split_whitespace().collect();
    let first = words.iter().position(|word| !is_variable(word)).unwrap_or(words.len());
    let (variables, words) = words.split_at(first);
    match words {
        ["skerry-globalmanager", words @ ..] => match read::<Manager>(variables, words) {
            Ok(Manager { flags }) => config::Config::load(flags).err().map(|error| error.to_string()),
            Err(error) => Some(error),
        },
        ["skerry-localcontroller", words @ ..] => match read::<Node>(variables, words) {
            Ok(Node { mut args }) => {
                // Whatever that host is called.
                args.node_name.get_or_insert_with(|| "edge-7".to_owned());
                args.resolve().err().map(|error| error.to_string())
            }
            Err(error) => Some(error),
        },
        ["helm", "install" | "upgrade", words @ ..] => not_rendered(words),
        _ => Some("it is nothing that is known here".to_owned()),
    }
}

/// What a program reads of its words, a variable of its environment as the flag that says the same.
fn read<P: Parser>(variables: &[&str], words: &[&str]) -> Result<P, String> {
    let command = P::command();
    let flag = |variable: &&str| {
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        let mut known = command.get_arguments();
        let argument = known.find(|argument| argument.get_env() == Some(OsStr::new(name)));
        let long = argument.and_then(clap::Arg::get_long);
        long.map(|long| format!("--{long}={value}"))
            .ok_or_else(|| format!("{name} is no variable of it"))
    };
    let flags = variables.iter().map(flag).collect::<Result<Vec<_>, _>>()?;
    let words = words.iter().map(ToString::to_string);
    let all = std::iter::once("program".to_owned()).chain(flags).chain(words);
    P::try_parse_from(all).map_err(|error| error.to_string())
}

/// Why Helm does not render a chart with these words, without what is said of the release that is there.
fn not_rendered(words: &[&str]) -> Option<String> {
    if !skerry_tests::tools::is_there("helm") {
        assert!(std::env::var_os("SKERRY_REQUIRE_HELM").is_none(), "helm is not on PATH");
        return None;
    }
    let of_a_release = ["--reset-then-reuse-values", "--wait"];
    let words = words.iter().filter(|word| !of_a_release.contains(word));
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let rendered = Command::new("helm")
        .args(["template", "--kube-version", "1.33.0"])
        .args(words)
        .current_dir(repository)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&rendered.stderr).into_owned();
    (!rendered.status.success()).then_some(error)
}
