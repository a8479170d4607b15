//! `tests/cluster/run`: builds a real Kubernetes, starts it, runs the scenarios on it.

use std::{
    env,
    ffi::OsString,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
    time::Instant,
};

use anyhow::{Context, bail};
use clap::Parser;
use serde_json::{Value, json};
use skerry_cluster::{
    artifacts::Workshop,
    control_plane::{ControlPlane, Site},
    enclosure::{self, FOLDER},
    process::output,
};

/// Runs the scenarios of Skerry on a real Kubernetes.
#[derive(Parser)]
#[command(name = "tests/cluster/run")]
struct Arguments {
    /// Only scenarios whose names contain this.
    filter: Option<String>,
    /// How many control planes work side by side.
    #[arg(long, default_value_t = 4)]
    planes: u16,
}

/// What is to be done inside the enclosure, as its first argument.
const WITHIN: &str = "within";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let done = match arguments.split_first() {
        Some((role, rest)) if enclosure::ROLES.iter().any(|known| role == known) => {
            enclosure::play(&role.to_string_lossy(), rest)
        }
        Some((role, rest)) if role == WITHIN => within(rest),
        _ => outside(&arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Builds all that needs the world outside, then goes inside.
fn outside(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    Arguments::parse();
    let workshop = Workshop::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("kubernetes"))?;
    let kubernetes = workshop.kubernetes()?;
    let scenarios = test_program("operator")?;
    let mut inside: Vec<OsString> = vec![WITHIN.into(), kubernetes.into(), scenarios.into()];
    inside.extend_from_slice(arguments);
    Ok(enclosure::code(enclosure::enclose(&inside)?))
}

/// The path of a test program of `skerry-tests`, built if need be.
fn test_program(name: &str) -> anyhow::Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let told = output(
        Command::new(cargo)
            .args(["test", "--locked", "--package", "skerry-tests", "--test", name])
            .args(["--no-run", "--message-format=json"]),
    )?;
    let messages = told.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter(|message| message.pointer("/target/name").is_some_and(|target| target == name))
        .find_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)))
        .with_context(|| format!("cargo names no program of the test {name}"))
}

fn within(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let [kubernetes, scenarios, rest @ ..] = arguments else {
        bail!("two programs are needed");
    };
    let arguments = Arguments::parse_from(std::iter::once(&OsString::from("run")).chain(rest));
    let begun = Instant::now();
    let mut planes = start_planes(Path::new(kubernetes), arguments.planes)?;
    println!(
        "{} control planes ready in {} s",
        planes.len(),
        begun.elapsed().as_secs()
    );
    let list = Path::new(FOLDER).join("planes.json");
    let entries: Vec<_> = planes
        .iter()
        .map(|plane| json!({"kubeconfig": plane.access().admin, "etcd": plane.etcd()}))
        .collect();
    fs::write(&list, serde_json::to_vec(&entries)?)?;
    let begun = Instant::now();
    let status = Command::new(scenarios)
        .args(&arguments.filter)
        .arg(format!("--test-threads={}", arguments.planes))
        .env("SKERRY_CONTROL_PLANES", &list)
        .status()?;
    println!("scenarios: {} s", begun.elapsed().as_secs());
    for plane in &mut planes {
        plane.check()?;
    }
    Ok(enclosure::code(status))
}

/// Control planes side by side, each with ports of its own.
fn start_planes(kubernetes: &Path, number: u16) -> anyhow::Result<Vec<ControlPlane>> {
    let start = |index: u16| {
        ControlPlane::start(Site {
            kubernetes: kubernetes.to_owned(),
            folder: Path::new(FOLDER).join(format!("plane-{index}")),
            address: Ipv4Addr::LOCALHOST,
            port: 10_000 + 10 * index,
            netns: None,
            hasty: true,
        })
    };
    thread::scope(|scope| {
        let starting: Vec<_> = (0..number).map(|index| scope.spawn(move || start(index))).collect();
        let ended = starting.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|ended| ended.unwrap_or_else(|_| bail!("starting a control plane panicked")))
            .collect()
    })
}
