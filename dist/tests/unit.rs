//! The systemd unit and the page about it, held against the local controller that they start.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests may fail as tests do"
)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::{Args as _, FromArgMatches as _};
use skerry_localcontroller::{Args, Config, Protocol, store};

const UNIT: &str = "dist/skerry-localcontroller.service";
const PAGE: &str = "docs/installing.md";
const PROGRAM: &str = "/usr/local/bin/skerry-localcontroller";

fn text(path: &str) -> String {
    fs::read_to_string(skerry_dist::root().join(path)).unwrap()
}

/// The values of a setting of the unit, in order.
fn settings(name: &str) -> Vec<String> {
    let of = |line: &str| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned());
    text(UNIT).lines().filter_map(of).collect()
}

/// The only one.
fn setting(name: &str) -> String {
    let [only] = settings(name)
        .try_into()
        .unwrap_or_else(|all| panic!("{name}: {all:?}"));
    only
}

/// The commands of the page's part about the unit, with what they are for left out.
fn commands() -> Vec<String> {
    let page = text(PAGE);
    let (_, part) = page.split_once("## A node without the chart's DaemonSet\n").unwrap();
    let part = part.split("\n## ").next().unwrap();
    let commands = part.lines().filter_map(|line| line.strip_prefix("# "));
    commands
        .map(|line| line.split("   #").next().unwrap().to_owned())
        .collect()
}

/// The page's command that begins so.
fn command(with: &str) -> String {
    let found = commands().into_iter().find(|command| command.starts_with(with));
    found.unwrap_or_else(|| panic!("{PAGE} has no command {with}"))
}

/// The variables with which the page and the unit start the local controller; what systemd would fill in is filled in.
fn environment() -> BTreeMap<String, String> {
    let file = command("install -d /etc/skerry");
    let from_file = file
        .split_once("echo ")
        .and_then(|(_, rest)| rest.split_once(" > "))
        .unwrap()
        .0;
    let from_unit = settings("Environment").join(" ");
    let pairs = from_unit.split(' ').chain([from_file]);
    pairs
        .map(|pair| {
            let (name, value) = pair
                .split_once('=')
                .unwrap_or_else(|| panic!("{pair:?} is no variable"));
            (name.to_owned(), value.replace("%H", "edge-7"))
        })
        .collect()
}

fn definition() -> clap::Command {
    Args::augment_args(clap::Command::new("skerry-localcontroller"))
}

/// The flag of a variable, which the local controller has to know.
fn flag(variable: &str) -> String {
    let definition = definition();
    let mut arguments = definition.get_arguments();
    let argument = arguments.find(|argument| argument.get_env().is_some_and(|env| env == variable));
    let argument = argument.unwrap_or_else(|| panic!("the local controller knows no variable {variable}"));
    format!("--{}", argument.get_long().expect("each setting has a flag"))
}

/// What the local controller makes of these variables.
fn started_with(environment: &BTreeMap<String, String>) -> Config {
    let flags = environment
        .iter()
        .map(|(name, value)| format!("{}={value}", flag(name)));
    let line: Vec<_> = std::iter::once(PROGRAM.to_owned()).chain(flags).collect();
    let matches = definition().try_get_matches_from(line).unwrap();
    Args::from_arg_matches(&matches).unwrap().resolve().unwrap()
}

#[test]
fn the_local_controller_knows_every_variable_and_flag_of_the_unit() {
    let config = started_with(&environment());
    assert_eq!(config.node_name, "edge-7");
    assert_eq!(config.gm_address, "203.0.113.10:30900");
    // It is the host itself.
    assert_eq!(config.rootfs, Path::new("/"));
    let started = setting("ExecStart");
    let mut words = started.split(' ');
    assert_eq!(words.next(), Some(PROGRAM));
    definition()
        .try_get_matches_from([PROGRAM].into_iter().chain(words))
        .unwrap();
    // Those that are named in passing.
    let (unit, page) = (text(UNIT), text(PAGE));
    let part = page.split_once("## A node without the chart's DaemonSet").unwrap().1;
    let named = |text: &str| {
        let words = text.split(|c: char| c.is_whitespace() || "`'\"(".contains(c));
        let settings = words.filter_map(|word| word.trim_start_matches("Environment=").split_once('='));
        let variables = settings.map(|(name, _)| name.to_owned());
        let variables = variables.filter(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
        variables.filter(|name| name.len() > 2).collect::<Vec<_>>()
    };
    let all = [named(&unit), named(part.split("\n## ").next().unwrap())].concat();
    for name in ["GM_ADDRESS", "NODENAME", "ROOTFS_MOUNT_DIR"] {
        assert!(all.iter().any(|found| found == name), "{name} is not among {all:?}");
    }
    all.iter().map(String::as_str).for_each(|name| drop(flag(name)));
}

#[test]
fn what_the_unit_names_is_where_the_page_puts_it() {
    // `install` keeps the name of what it puts into a folder.
    let program = command("install -m 0755");
    assert!(
        program.ends_with(" skerry-localcontroller /usr/local/bin/"),
        "{program}"
    );
    let unit = command("install -D");
    let installed = "/etc/systemd/system/skerry-localcontroller.service";
    assert!(unit.ends_with(&format!(" {UNIT} {installed}")), "{unit}");
    let variables = command("install -d /etc/skerry");
    assert!(
        variables.ends_with(&format!(" > {}", setting("EnvironmentFile"))),
        "{variables}"
    );
    assert!(command("useradd").ends_with(&format!(" {}", setting("User"))));
    assert!(command("systemctl").ends_with(" skerry-localcontroller"));
}

#[test]
fn the_unit_lets_the_local_controller_write_where_it_keeps_its_state() {
    // All else is read-only.
    assert_eq!(setting("ProtectSystem"), "strict");
    let writable = PathBuf::from("/var/lib").join(setting("StateDirectory"));
    let environment = environment();
    let joined: BTreeMap<_, _> = environment
        .into_iter()
        .chain([("GM_ADDRESS".to_owned(), "wss://gm:9443".to_owned())])
        .collect();
    let config = started_with(&joined);
    let store = config.rootfs.join(store::PATH);
    assert_eq!(store.parent(), Some(writable.as_path()));
    let Protocol::Skerry {
        identity: Some(identity),
    } = config.protocol
    else {
        panic!("a node over TLS has an identity");
    };
    assert!(identity.folder.starts_with(&writable), "{}", identity.folder.display());
}

#[test]
fn systemd_takes_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("skerry-localcontroller.service");
    // It looks whether the program is there, which is for another machine to say.
    fs::write(&file, text(UNIT).replace(PROGRAM, "/bin/true")).unwrap();
    let verify = || {
        let told = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&file)
            .output();
        told.map(|told| {
            (
                told.status.success(),
                String::from_utf8_lossy(&told.stderr).into_owned(),
            )
        })
    };
    let Ok((taken, told)) = verify() else {
        println!("skipped: no systemd-analyze on PATH, so this was not tested: whether systemd takes the unit");
        return;
    };
    // Of other units of the machine it tells, too.
    let about_ours = |told: &str| told.lines().any(|line| line.contains("skerry-localcontroller"));
    assert!(taken && !about_ours(&told), "{told}");
    fs::write(
        &file,
        text(UNIT)
            .replace(PROGRAM, "/bin/true")
            .replace("ProtectHome=read-only", "ProtectHome=perhaps"),
    )
    .unwrap();
    let (_, told) = verify().unwrap();
    assert!(about_ours(&told), "what is wrong is told: {told}");
}
