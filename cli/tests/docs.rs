//! The documentation does what it says: every command in a `console` block is run, or named here with what runs it
//! instead, what a `sh` block would start reads it, and every link between pages leads somewhere.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod common;
#[path = "docs/hosts.rs"]
mod hosts;

use std::{
    collections::BTreeSet,
    fmt, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use common::{SKERRY, Sandbox};
use nix::sys::signal::Signal;
use tempfile::TempDir;

/// The repository's root.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Commands that are not run here, and what shows that they work.
const ELSEWHERE: [(&str, &str); 11] = [
    ("cargo run -- demo", "a step of .ci/run"),
    ("cargo test", "what runs this"),
    (
        "cargo run --bin skerry-fuzz -- --seconds 60 --jobs 2",
        "a step of .ci/run",
    ),
    (
        "cargo run --release -- bench control-plane --kubeconfig \"$KUBECONFIG\" --services 1000 --jobs 200",
        "the tests of the bench, with less of everything",
    ),
    (
        "cargo run --release -- bench edge",
        "the tests of the bench, with less of everything",
    ),
    (
        "SKERRY_OBJECTS=20000 cargo test -p skerry --test delivery the_store_ends -- --nocapture",
        "the second step of .ci/run, with 1,000 objects",
    ),
    (
        "SKERRY_OLDER=$(.ci/older) cargo test --test delivery -- --ignored between_two_versions",
        "a step of .ci/run",
    ),
    (
        "cargo bench -p skerry-edge",
        "clippy in .ci/run, which builds benches: what it measures has tests of its own",
    ),
    (
        "cargo run -p skerry-crds --bin crdgen -- charts/skerry/files/crds",
        "the step of .ci/run that looks for stale generated files",
    ),
    (
        "cargo run -p skerry-dist -- values",
        "the test that docs/chart-values.md is what it would be",
    ),
    (
        "cargo test -p skerry-workers --test it -- --nocapture page",
        "the second step of .ci/run, which tests all packages",
    ),
];

/// Pages whose commands are for hosts with Helm and an image store, which no sandbox has: `tests/cluster/run --only hosts`
/// runs each of them, and fails where it has left one out.
const OF_A_CLUSTER: [&str; 3] = [
    "docs/edge-nodes.md",
    "docs/installing.md",
    "docs/migrating-from-sedna.md",
];

/// How a command is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum How {
    /// By the built binary alone.
    Binary,
    /// Against a sandbox.
    Cluster,
    /// It starts the sandbox against which its page's further commands are run, with these arguments.
    Sandbox(Vec<String>),
    /// By something else: an entry of [`ELSEWHERE`].
    Elsewhere,
}

/// A command of a page.
struct Documented {
    page: PathBuf,
    command: String,
}

impl fmt::Display for Documented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: $ {}", self.page.display(), self.command)
    }
}

impl Documented {
    /// The command, with the built binary for the one that cargo would build.
    fn line(&self) -> String {
        let ours = ["cargo run --release -- ", "cargo run -- "];
        let rest = ours.iter().find_map(|prefix| self.command.strip_prefix(prefix));
        rest.map_or_else(|| self.command.clone(), |rest| format!("skerry {rest}"))
    }

    fn how(&self) -> Option<How> {
        if ELSEWHERE.iter().any(|(command, _)| *command == self.command) {
            return Some(How::Elsewhere);
        }
        let line = self.line();
        let words: Vec<_> = line.split_whitespace().collect();
        match words.as_slice() {
            ["skerry", "sandbox", args @ ..] => Some(How::Sandbox(args.iter().map(ToString::to_string).collect())),
            ["skerry" | "kubectl", ..] if words.contains(&"kubectl") => Some(How::Cluster),
            ["skerry", "crds" | "plan" | "--help" | "--version", ..] => Some(How::Binary),
            _ => None,
        }
    }

    /// Runs it at the repository's root, as a reader would; what watches is ended once it has shown something.
    fn run(&self, home: &Path, kubeconfig: Option<&Path>) {
        let path = std::env::var("PATH").unwrap_or_default();
        let binaries = Path::new(SKERRY).parent().unwrap().display();
        println!("{self}");
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("exec {}", self.line())])
            .current_dir(REPOSITORY)
            .env("PATH", format!("{binaries}:{path}"))
            .env("HOME", home)
            .env("KUBECONFIG", kubeconfig.unwrap_or(Path::new("/dev/null")));
        if self.line().split(' ').any(|word| matches!(word, "-w" | "--watch")) {
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            let mut shown = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(
                shown.next().is_some_and(|line| line.is_ok()),
                "{self}: it showed nothing"
            );
            child.kill().unwrap();
            child.wait().unwrap();
            return;
        }
        let output = command.output().unwrap();
        let (said, complained) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{self}\n{said}{complained}");
    }
}

#[test]
fn every_command_is_known() {
    let all = all_commands();
    assert!(!all.is_empty());
    let unknown: Vec<_> = all.iter().filter(|documented| documented.how().is_none()).collect();
    let unknown: Vec<_> = unknown.iter().map(ToString::to_string).collect();
    assert!(
        unknown.is_empty(),
        "neither run by this test nor in its table of what is shown elsewhere:\n{}",
        unknown.join("\n")
    );
    for (command, because) in ELSEWHERE {
        let used = all.iter().any(|documented| documented.command == command);
        assert!(used, "no page has `{command}` any more (it was shown by {because})");
    }
}

#[test]
fn commands_that_need_no_cluster_work() {
    let home = TempDir::new().unwrap();
    let all = all_commands();
    let alone: Vec<_> = all
        .iter()
        .filter(|documented| documented.how() == Some(How::Binary))
        .collect();
    assert!(!alone.is_empty());
    for documented in alone {
        documented.run(home.path(), None);
    }
}

#[test]
fn commands_that_need_a_cluster_work() {
    if !skerry_tests::tools::kubectl_is_there() {
        return;
    }
    let mut run = 0;
    for page in pages() {
        let home = TempDir::new().unwrap();
        let mut sandbox: Option<Sandbox> = None;
        for documented in commands(&page) {
            match documented.how() {
                Some(How::Sandbox(args)) => {
                    if let Some(earlier) = sandbox.take() {
                        assert!(earlier.end(Signal::SIGTERM).success(), "{documented}");
                    }
                    let args: Vec<_> = args.iter().map(String::as_str).collect();
                    sandbox = Some(Sandbox::start(home.path(), &args));
                }
                Some(How::Cluster) => {
                    let sandbox = sandbox.get_or_insert_with(|| Sandbox::start(home.path(), &[]));
                    documented.run(home.path(), Some(&sandbox.kubeconfig));
                    run += 1;
                }
                Some(How::Binary | How::Elsewhere) | None => {}
            }
        }
        if let Some(sandbox) = sandbox {
            assert!(sandbox.end(Signal::SIGTERM).success(), "{}", page.display());
        }
    }
    assert!(run > 0);
}

#[test]
fn what_is_started_on_hosts_is_read_by_what_is_started() {
    let mut read = 0;
    for page in all_pages() {
        for (block, line) in blocks(&page).into_iter().filter(|(block, _)| block == "sh") {
            let refused = hosts::refused(&line);
            assert_eq!(refused, None, "{}, {block}: {line}", page.display());
            read += 1;
        }
    }
    assert!(read > 0);
    for wrong in [
        "skerry-globalmanager --edge-tls-adress 0.0.0.0:9443",
        "skerry-globalmanager --sedna-agents-address 0.0.0.0:9001",
        "skerry-localcontroller --node-name edge-7",
        "GM_ADDRES=gm.sedna:9000 skerry-localcontroller",
        "GM_ADDRESS=gm.sedna:9000 MANAGER_PROTOCOL=sedna skerry-localcontroller --node-name edge-7",
        "rm -rf /",
    ] {
        assert!(hosts::refused(wrong).is_some(), "{wrong}");
    }
}

#[test]
fn links_lead_somewhere() {
    let mut broken = BTreeSet::new();
    let mut followed = 0;
    for page in all_pages() {
        for link in links(&read(&page)) {
            let (file, section) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let found = Path::new(REPOSITORY).join(&target).exists();
            if !found || !section.is_empty() && !sections(&read(&target)).contains(section) {
                broken.insert(format!("{}: {link}", page.display()));
            }
            followed += 1;
        }
    }
    assert_eq!(broken, BTreeSet::new());
    assert!(followed > 10, "{followed} links found");
}

/// The pages whose commands are run, relative to the repository's root.
fn pages() -> Vec<PathBuf> {
    let elsewhere = |page: &PathBuf| OF_A_CLUSTER.iter().any(|named| Path::new(named) == page);
    all_pages().into_iter().filter(|page| !elsewhere(page)).collect()
}

/// All pages of the documentation, relative to the repository's root.
fn all_pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(Path::new(REPOSITORY).join("docs")).unwrap();
    let docs = docs.map(|entry| Path::new("docs").join(entry.unwrap().file_name()));
    let mut docs: Vec<_> = docs
        .filter(|page| page.extension().is_some_and(|extension| extension == "md"))
        .collect();
    docs.sort();
    [
        "README.md",
        "CONTRIBUTING.md",
        "examples/README.md",
        "examples/data/README.md",
    ]
    .into_iter()
    .map(PathBuf::from)
    .chain(docs)
    .collect()
}

fn read(page: &Path) -> String {
    fs::read_to_string(Path::new(REPOSITORY).join(page)).unwrap()
}

fn all_commands() -> Vec<Documented> {
    pages().iter().flat_map(|page| commands(page)).collect()
}

/// What follows `$ ` in the page's `console` blocks.
fn commands(page: &Path) -> Vec<Documented> {
    let lines = blocks(page).into_iter().filter(|(block, _)| block == "console");
    let commands = lines.filter_map(|(_, line)| {
        Some(Documented {
            page: page.to_owned(),
            command: line.strip_prefix("$ ")?.to_owned(),
        })
    });
    commands.collect()
}

/// The lines in the page's blocks, each with what its block is called; those that end in `\` joined with the next.
fn blocks(page: &Path) -> Vec<(String, String)> {
    let text = read(page).replace("\\\n", " ");
    let (mut block, mut lines) = (None, Vec::new());
    for line in text.lines().map(str::trim_start) {
        if let Some(name) = line.strip_prefix("```") {
            block = if block.is_none() { Some(name.trim_end()) } else { None };
        } else if let Some(block) = block {
            let line: Vec<_> = line.split_whitespace().collect();
            lines.push((block.to_owned(), line.join(" ")));
        }
    }
    lines
}

/// Where the page's links lead, those out of the repository apart.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets
        .map(|(target, _)| target.to_owned())
        .filter(|target| !target.contains("://"))
        .collect()
}

/// The page's headings as anchors, as GitHub makes them.
fn sections(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}
