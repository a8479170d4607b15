//! `tests/cluster/run`: builds a real Kubernetes, starts it, runs the scenarios on it.

mod tier;

use std::{
    env,
    ffi::OsString,
    fs,
    net::Ipv4Addr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skerry_cluster::{
    abilities::{self, Abilities},
    artifacts::{KUBERNETES, NEWEST, Workshop},
    control,
    control_plane::{ControlPlane, Site},
    enclosure::{self, FOLDER},
    machine, packages,
    process::output,
    scale::Scale,
};

use tier::Equipment;

/// Runs the scenarios of Skerry on a real Kubernetes.
#[derive(Parser)]
#[command(name = "tests/cluster/run")]
struct Arguments {
    /// Only scenarios whose names contain one of these.
    filter: Vec<String>,
    /// Only one tier.
    #[arg(long)]
    only: Option<Tier>,
    /// How many control planes work side by side.
    #[arg(long, default_value_t = 4)]
    planes: u16,
    /// Only one program of scenarios: operator, real, kubectl.
    #[arg(long)]
    test: Option<String>,
    /// Which Kubernetes. Of the newest there is the control plane alone, so the hosts are left out.
    #[arg(long, default_value = "1.34")]
    kubernetes: Version,
    #[command(flatten)]
    scale: Scale,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Version {
    #[value(name = "1.34")]
    WithNodes,
    #[value(name = "1.36")]
    Newest,
}

/// The test programs that run on control planes, one after the other.
const SCENARIOS: [&str; 3] = ["operator", "real", "kubectl"];

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// The scenarios, on control planes with stand-in nodes.
    Scenarios,
    /// The chart and the examples, on two hosts with real nodes.
    Hosts,
    /// The manager's bench.
    Scale,
    /// The sandbox beside an API server on its own: the same requests to both.
    Contract,
}

/// What is built outside, for use inside.
#[derive(Serialize, Deserialize)]
struct Built {
    kubernetes: PathBuf,
    /// What the chart lets the manager do, as Helm renders it for the scenarios' namespace.
    role: String,
    scenarios: Vec<PathBuf>,
    hosts: Option<Equipment>,
    contract: Option<PathBuf>,
    scale: Option<Scale>,
    /// What cannot run here, and why.
    skipped: Vec<String>,
}

/// Where a skipped tier is a failure.
const REQUIRE: &str = "SKERRY_REQUIRE_CLUSTER";

/// What is to be done inside the enclosure, as its first argument.
const WITHIN: &str = "within";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let done = match arguments.split_first() {
        Some((role, rest)) if enclosure::ROLES.iter().any(|known| role == known) => {
            enclosure::play(&role.to_string_lossy(), rest)
        }
        Some((role, rest)) if machine::ROLES.iter().any(|known| role == known) => {
            machine::play(&role.to_string_lossy(), rest)
        }
        Some((role, _)) if role == abilities::PROBE => abilities::probe(),
        Some((role, rest)) if role == tier::LINGER => enclosed(&[&[tier::LINGERING.into()], rest].concat(), true),
        Some((role, rest)) if role == tier::LINGERING => tier::linger(rest),
        Some((role, rest)) if role == WITHIN => within(rest),
        _ => outside(&arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn enclosed(arguments: &[OsString], with_cgroup: bool) -> anyhow::Result<ExitCode> {
    Ok(enclosure::code(enclosure::enclose(arguments, with_cgroup)?))
}

/// Says what cannot run here, last of all, and whether that is a failure.
fn end(good: bool, skipped: &[String]) -> ExitCode {
    for tier in skipped {
        println!("skipped: {tier}");
    }
    let required = env::var_os(REQUIRE).is_some_and(|value| value == "1");
    if !skipped.is_empty() && !required {
        println!("(with {REQUIRE}=1 that is a failure)");
    }
    if good && (skipped.is_empty() || !required) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Builds all that needs the world outside, then goes inside.
fn outside(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let Arguments {
        filter,
        only,
        planes: _,
        test,
        kubernetes,
        scale,
    } = Arguments::parse();
    let mut skipped = vec![];
    let abilities = Abilities::find();
    if let Abilities::Nothing(why) = &abilities {
        return Ok(end(true, &[format!("everything: {why}")]));
    }
    let workshop = Workshop::new(here().join("kubernetes"))?;
    let wanted = |tier| only.is_none_or(|only| only == tier);
    // A filter names scenarios, and so does a program.
    let named = !filter.is_empty() || test.is_some();
    let hosts = wanted(Tier::Hosts) && (!named || only.is_some()) && kubernetes == Version::WithNodes;
    let mut scenarios = SCENARIOS.to_vec();
    scenarios.retain(|name| wanted(Tier::Scenarios) && test.as_ref().is_none_or(|test| test == name));
    let contract = only.is_some_and(|only| only == Tier::Contract);
    let kept_from = match &abilities {
        Abilities::ControlPlanes(why) => Some(why.clone()),
        _ if hosts => packages::install().err().map(|error| format!("{error:#}")),
        _ => None,
    };
    let hosts = match kept_from.filter(|_| hosts) {
        Some(why) => {
            skipped.push(format!("{HOSTS}: {why}"));
            false
        }
        None => hosts,
    };
    let mut built = Built {
        kubernetes: match kubernetes {
            Version::WithNodes => workshop.kubernetes()?,
            Version::Newest => workshop.newest()?,
        },
        role: if scenarios.is_empty() {
            String::new()
        } else {
            role(&workshop)?
        },
        scenarios: test_programs(&scenarios)?,
        hosts: hosts.then(|| Equipment::gather(&workshop)).transpose()?,
        contract: test_programs(if contract { &["contract"] } else { &[] })?.pop(),
        scale: (only == Some(Tier::Scale)).then(|| scale.gather(cargo())).transpose()?,
        skipped,
    };
    if let Some(hosts) = &mut built.hosts {
        hosts.leave_nothing()?;
    }
    let mut inside: Vec<OsString> = vec![WITHIN.into(), serde_json::to_string(&built)?.into()];
    inside.extend_from_slice(arguments);
    enclosed(&inside, abilities == Abilities::Hosts)
}

/// What skipping the hosts is called.
const HOSTS: &str = "the two hosts (containers, the chart on real nodes, cuts and power failures)";

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The paths of test programs of `skerry-tests`, built if need be.
fn test_programs(names: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    if names.is_empty() {
        return Ok(vec![]);
    }
    let mut build = cargo();
    build.args([
        "test",
        "--locked",
        "--package",
        "skerry-tests",
        "--no-run",
        "--message-format=json",
    ]);
    let told = output(build.args(names.iter().flat_map(|name| ["--test", name])))?;
    let messages: Vec<Value> = told
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let program = |name: &&str| {
        let mut found = messages
            .iter()
            .filter(|message| message.pointer("/target/name").is_some_and(|target| target == name));
        found
            .find_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)))
            .with_context(|| format!("cargo names no program of the test {name}"))
    };
    names.iter().map(program).collect()
}

fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(skerry_dist::root());
    cargo
}

fn within(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let (built, rest) = arguments.split_first().context("nothing was built")?;
    let built: Built = serde_json::from_str(built.to_str().context("what was built is text")?)?;
    let arguments = Arguments::parse_from(std::iter::once(&OsString::from("run")).chain(rest));
    let mut good = true;
    if !built.scenarios.is_empty() {
        good &= run_scenarios(&built, &arguments)?;
    }
    if let Some(contract) = &built.contract {
        good &= run_contract(&built.kubernetes, contract, &arguments)?;
    }
    if let Some(scale) = &built.scale {
        scale.measure(&built.kubernetes)?;
    }
    let mut skipped = built.skipped;
    if let Some(hosts) = &built.hosts {
        match hosts.try_container() {
            Ok(()) => good &= hosts.tour()?,
            Err(error) => skipped.push(format!("{HOSTS}: {error:#}")),
        }
    }
    Ok(end(good, &skipped))
}

/// Runs the scenarios, as many at once as there are control planes.
fn run_scenarios(built: &Built, arguments: &Arguments) -> anyhow::Result<bool> {
    let begun = Instant::now();
    let planes = start_planes(&built.kubernetes, arguments.planes)?;
    println!(
        "{} control planes of Kubernetes {} ready in {} s",
        planes.len(),
        match arguments.kubernetes {
            Version::WithNodes => KUBERNETES,
            Version::Newest => NEWEST,
        },
        begun.elapsed().as_secs()
    );
    // The kubectl that belongs to them goes before the machine's.
    let programs = Path::new(FOLDER).join("bin");
    fs::create_dir(&programs)?;
    symlink(&built.kubernetes, programs.join("kubectl"))?;
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(std::iter::once(programs).chain(env::split_paths(&path)))?;
    let role = Path::new(FOLDER).join("role.yaml");
    fs::write(&role, &built.role)?;
    for plane in &planes {
        let plane = plane.lock().unwrap_or_else(PoisonError::into_inner);
        plane.kubectl(&["create", "namespace", NAMESPACE])?;
        plane.kubectl(&["apply", "-f", &role.display().to_string()])?;
    }
    let list = lend("scenarios", &planes)?;
    let mut good = true;
    for program in &built.scenarios {
        let begun = Instant::now();
        let status = Command::new(program)
            .args(&arguments.filter)
            // Those that live many lives have several planes at once, and the others wait for theirs.
            .arg(format!("--test-threads={}", 2 * arguments.planes))
            // Those that run nowhere else are ignored elsewhere.
            .arg("--include-ignored")
            .env("SKERRY_CONTROL_PLANES", &list)
            .env("PATH", &path)
            .current_dir(skerry_dist::root().join("tests"))
            .status()?;
        good &= status.success();
        println!("scenarios: {} s", begun.elapsed().as_secs());
        for plane in &planes {
            plane.lock().unwrap_or_else(PoisonError::into_inner).check()?;
        }
    }
    Ok(good)
}

/// The namespace of the scenarios, and the account that the chart binds the manager's role to.
const NAMESPACE: &str = "scenario";
const ACCOUNT: &str = "skerry-globalmanager";

/// The role of the manager and its binding, from the chart.
fn role(workshop: &Workshop) -> anyhow::Result<String> {
    let mut helm = Command::new(workshop.helm()?);
    helm.args(["template", "skerry", "--kube-version", KUBERNETES])
        .arg(skerry_dist::root().join("charts/skerry"));
    helm.args([
        "--namespace",
        NAMESPACE,
        "--show-only",
        "templates/globalmanager/rbac.yaml",
    ]);
    output(&mut helm)
}

/// The file that tells test programs of control planes and of their controls.
fn lend(name: &str, planes: &[Arc<Mutex<ControlPlane>>]) -> anyhow::Result<PathBuf> {
    let mut entries = Vec::new();
    for (index, plane) in planes.iter().enumerate() {
        let socket = Path::new(FOLDER).join(format!("{name}-{index}.control"));
        control::serve(plane.clone(), &socket)?;
        let plane = plane.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push(
            json!({"kubeconfig": plane.access().admin, "etcd": plane.etcd(), "control": socket,
            "manager": format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}")}),
        );
    }
    let list = Path::new(FOLDER).join(format!("{name}.json"));
    fs::write(&list, serde_json::to_vec(&entries)?)?;
    Ok(list)
}

/// Compares the sandbox with an API server beside which no controller writes.
fn run_contract(kubernetes: &Path, contract: &Path, arguments: &Arguments) -> anyhow::Result<bool> {
    let plane = ControlPlane::start_alone(Site {
        kubernetes: kubernetes.to_owned(),
        folder: Path::new(FOLDER).join("contract"),
        address: Ipv4Addr::LOCALHOST,
        port: 9_000,
        netns: None,
        known: None,
        hasty: false,
    })?;
    let plane = Arc::new(Mutex::new(plane));
    let status = Command::new(contract)
        .args(&arguments.filter)
        .env("SKERRY_CONTROL_PLANES", lend("contract", std::slice::from_ref(&plane))?)
        .status()?;
    plane.lock().unwrap_or_else(PoisonError::into_inner).check()?;
    Ok(status.success())
}

/// Control planes side by side, each with ports of its own.
fn start_planes(kubernetes: &Path, number: u16) -> anyhow::Result<Vec<Arc<Mutex<ControlPlane>>>> {
    let start = |index: u16| {
        ControlPlane::start(Site {
            kubernetes: kubernetes.to_owned(),
            folder: Path::new(FOLDER).join(format!("plane-{index}")),
            address: Ipv4Addr::LOCALHOST,
            port: 10_000 + 10 * index,
            netns: None,
            known: Some(skerry_dist::root().join("tests/tests/manifests/sedna/definitions.yaml")),
            hasty: true,
        })
    };
    thread::scope(|scope| {
        let starting: Vec<_> = (0..number).map(|index| scope.spawn(move || start(index))).collect();
        let ended = starting.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|ended| ended.unwrap_or_else(|_| bail!("starting a control plane panicked")))
            .map(|plane| Ok(Arc::new(Mutex::new(plane?))))
            .collect()
    })
}
