//! `tests/cluster/run`: builds a real Kubernetes, starts it, runs the scenarios on it.

mod beside;
mod plan;
mod planes;
mod slots;
mod tier;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::mpsc,
    thread,
};

use anyhow::{Context, anyhow};
use clap::Parser;
use serde::{Deserialize, Serialize};
use skerry_cluster::{
    abilities::{self, Abilities},
    artifacts::{Kubernetes, Workshop},
    benches::{Bench, Sizes},
    enclosure, machine, packages,
    processors::Processors,
    programs::built,
    results::{Run, Sources},
    rights::{self, Right},
    sections::{HOSTS, SANDBOX, SECTIONS, Section},
    table,
};

use plan::{Asked, Measured, Skipped, Tier, Tiers, Version, plan};
use planes::{role, run_contract, run_scenarios};
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
    /// How many control planes work side by side: by default one for each 2 GiB of memory that is free, ten at most. Where there
    /// are hosts, six of them are there from the beginning, and the others when two of the four hosts are down.
    #[arg(long, default_value_t = planes::affordable())]
    planes: u16,
    /// Only one program of scenarios: operator, real, kubectl, admission.
    #[arg(long, value_parser = plan::SCENARIOS)]
    test: Option<String>,
    /// Which Kubernetes. Of the newest there is the control plane alone, so the hosts are left out.
    #[arg(long, default_value = "1.34")]
    kubernetes: Version,
    /// Write `docs/scenarios.md` from the results of the last whole runs, and run nothing but what the sandbox can.
    #[arg(long, exclusive = true)]
    table: bool,
    /// Say where the Helm is that is used here, built if need be, and run nothing.
    #[arg(long, exclusive = true)]
    helm: bool,
    /// Install what is missing of Debian and of Rust, build Kubernetes and what is needed beside it, where that is not kept from
    /// before, and run nothing.
    #[arg(long, exclusive = true)]
    prepare: bool,
    #[command(flatten)]
    sizes: Sizes,
}

impl Arguments {
    /// What of them says which tiers run.
    fn asked(&self) -> Asked<'_> {
        Asked {
            filtered: !self.filter.is_empty(),
            only: self.only,
            test: self.test.as_deref(),
            kubernetes: self.kubernetes,
        }
    }

    /// A run of a program as these arguments ask.
    fn run<'a>(&self, program: &'a str, sources: &'a Sources) -> Run<'a> {
        Run {
            program,
            place: self.kubernetes.name(),
            whole: self.filter.is_empty(),
            sources,
        }
    }
}

/// What is built outside, for use inside.
#[derive(Serialize, Deserialize)]
struct Built {
    /// Of what the test programs are built.
    sources: Sources,
    kubernetes: Kubernetes,
    /// What the chart lets the manager do, as Helm renders it for the scenarios' namespace.
    role: String,
    /// By name.
    scenarios: Vec<(String, PathBuf)>,
    hosts: Option<Equipment>,
    contract: Option<PathBuf>,
    bench: Option<Bench>,
    /// What does not run, and why.
    skipped: Vec<Skipped>,
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
        Some((role, rest)) if role == tier::LINGER => tier::linger_enclosed(rest),
        Some((role, rest)) if role == tier::LINGERING => tier::linger(rest),
        Some((role, rest)) if beside::ROLES.iter().any(|known| role == known) => {
            beside::play(&role.to_string_lossy(), rest)
        }
        Some((role, rest)) if role == WITHIN => within(rest),
        _ => outside(&arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn enclosed(arguments: &[OsString], processors: &Processors, with_cgroup: bool) -> anyhow::Result<ExitCode> {
    Ok(enclosure::code(enclosure::enclose(arguments, processors, with_cgroup)?))
}

/// Says what did not run, last of all, and whether that is a failure.
fn end(good: bool, skipped: &[Skipped]) -> ExitCode {
    for skipped in skipped {
        println!("{skipped}");
    }
    let required = env::var_os(REQUIRE).is_some_and(|value| value == "1");
    let lacks = skipped.iter().any(|skipped| skipped.by_the_machine);
    if lacks && !required {
        println!("(with {REQUIRE}=1 that is a failure)");
    }
    if good && !(lacks && required) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Builds all that needs the world outside, then goes inside.
fn outside(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let asked = Arguments::parse();
    let workshop = Workshop::new(here().into())?;
    if asked.table {
        return write_table();
    }
    if asked.helm {
        println!("{}", workshop.helm()?.display());
        return Ok(ExitCode::SUCCESS);
    }
    if asked.prepare {
        // Where that cannot be had, a run leaves out what needs it, and says so.
        if let Err(error) = packages::install() {
            eprintln!("{error:#}");
        }
        workshop.prepare()?;
        return Ok(ExitCode::SUCCESS);
    }
    let abilities = Abilities::find();
    let (mut tiers, mut skipped) = plan(&abilities, &asked.asked());
    if tiers.hosts
        && let Err(error) = packages::install()
    {
        skipped.push(Skipped::hosts(&format!("{error:#}")));
        tiers.hosts = false;
    }
    if tiers == Tiers::default() {
        // A run of nothing shows nothing, unless it was the machine's to refuse.
        let refused = skipped.iter().any(|skipped| skipped.by_the_machine);
        return Ok(end(refused, &skipped));
    }
    let built = Built {
        sources: Sources::now()?,
        kubernetes: match asked.kubernetes {
            Version::WithNodes => workshop.kubernetes()?,
            Version::Newest => workshop.newest()?,
        },
        role: if tiers.scenarios.is_empty() {
            String::new()
        } else {
            role(&workshop)?
        },
        scenarios: test_programs(&tiers.scenarios)?,
        hosts: tiers.hosts.then(|| Equipment::gather(&workshop)).transpose()?,
        contract: test_programs(if tiers.contract { &["contract"] } else { &[] })?
            .pop()
            .map(|(_, program)| program),
        bench: match tiers.bench {
            Some(Measured::Scale) => Some(asked.sizes.manager()?),
            Some(Measured::Edge) => Some(asked.sizes.edge()?),
            Some(Measured::Shortened) => Some(Bench::shortened()?),
            None => None,
        },
        skipped,
    };
    let processors = processors_for(tiers.bench);
    let kill_runs = |hosts| beside::kill_runs(hosts, &processors);
    let killer = built.hosts.as_ref().map(kill_runs).transpose()?;
    let mut inside: Vec<OsString> = vec![WITHIN.into(), serde_json::to_string(&built)?.into()];
    inside.extend_from_slice(arguments);
    let ended = enclosed(&inside, &processors, abilities == Abilities::Hosts);
    // It has told by now, unless the run ended before the tour did.
    if let Some(mut killer) = killer {
        killer.kill()?;
        killer.wait()?;
    }
    ended
}

/// What the processors are to a run with this bench: what is measured has them as it would have anywhere.
fn processors_for(bench: Option<Measured>) -> Processors {
    match bench {
        Some(Measured::Scale | Measured::Edge) => Processors::All,
        Some(Measured::Shortened) | None => Processors::TakingTurns,
    }
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Test programs of `skerry-tests`, built if need be: their names and paths.
fn test_programs(names: &[&str]) -> anyhow::Result<Vec<(String, PathBuf)>> {
    if names.is_empty() {
        return Ok(vec![]);
    }
    let mut build = skerry_dist::cargo();
    // The whole workspace, for the sake of its features: `cargo test` has built the same.
    build.args(["test", "--workspace", "--no-run"]);
    let programs = built(build.args(names.iter().flat_map(|name| ["--test", name])), names)?;
    Ok(names.iter().map(|name| (*name).to_owned()).zip(programs).collect())
}

/// Runs what the sandbox can, and writes the page of all scenarios.
fn write_table() -> anyhow::Result<ExitCode> {
    let sources = Sources::now()?;
    let programs = SECTIONS.iter().map(|section| section.program);
    let programs: Vec<_> = programs.filter(|program| *program != HOSTS).collect();
    let programs: BTreeMap<_, _> = test_programs(&programs)?.into_iter().collect();
    let names = |section: &Section| match programs.get(section.program) {
        Some(program) => table::listed(program),
        None => Ok(tier::scenarios()),
    };
    table::suffices(names, &sources)?;
    for section in SECTIONS.iter().filter(|section| section.runs_on_the_sandbox()) {
        let mut run = Command::new(programs.get(section.program).context("it was built")?);
        run.args(["--skip", table::CHECK])
            .current_dir(skerry_dist::root().join("tests"))
            .env_remove("SKERRY_CONTROL_PLANES")
            .env("SKERRY_REQUIRE_KUBECTL", "1");
        let kept = Run {
            program: section.program,
            place: SANDBOX,
            whole: true,
            sources: &sources,
        };
        kept.of(&mut run)?;
    }
    table::write(names, &sources)?;
    Ok(ExitCode::SUCCESS)
}

fn within(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let (built, rest) = arguments.split_first().context("nothing was built")?;
    let built: Built = serde_json::from_str(built.to_str().context("what was built is text")?)?;
    let arguments = Arguments::parse_from(std::iter::once(&OsString::from("run")).chain(rest));
    let mut skipped = built.skipped.clone();
    let hosts = built.hosts.as_ref().filter(|hosts| match hosts.try_container() {
        Ok(()) => true,
        Err(error) => {
            skipped.push(Skipped::hosts(&format!("{error:#}")));
            false
        }
    });
    let (good, late) = run_tiers(&built, &arguments, hosts).unwrap_or_else(|error| {
        println!("error: {error:#}");
        (false, vec![])
    });
    for scenario in late {
        println!("held only when it was run once more: {scenario}");
    }
    Ok(end(good, &skipped))
}

/// Runs all that is wanted; whether it held, and what of it only when it was run once more.
fn run_tiers(built: &Built, arguments: &Arguments, hosts: Option<&Equipment>) -> anyhow::Result<(bool, Vec<String>)> {
    // On the hosts much is waited for: a link that is cut for two minutes, say.
    let (scenarios, tour) = thread::scope(|scope| {
        let (crowd, room) = mpsc::channel();
        let tour = scope.spawn(move || hosts.map(|hosts| hosts.tour(&built.sources, crowd)).transpose());
        let wanted = !built.scenarios.is_empty();
        let beside = || comparisons(built, arguments);
        let room = hosts.map(|_| room);
        let scenarios = wanted
            .then(|| run_scenarios(built, arguments, room, beside))
            .transpose();
        let tour = tour.join().map_err(|_| anyhow!("the thread of the tour ended"))?;
        Ok::<_, anyhow::Error>((scenarios?, tour?))
    })?;
    let (mut good, mut used) = tour.unwrap_or((true, BTreeSet::new()));
    let mut late = vec![];
    if let Some(scenarios) = scenarios {
        good &= scenarios.good;
        used.extend(scenarios.used);
        late = scenarios.late;
    }
    if hosts.is_some() && arguments.asked().is_everything() {
        good &= all_are_used(&built.role, &used)?;
    }
    if built.scenarios.is_empty() {
        good &= comparisons(built, arguments)?;
    }
    if arguments.asked().is_everything() {
        let programs = built.scenarios.iter().map(|(name, _)| name.as_str());
        let programs = programs
            .chain(hosts.map(|_| HOSTS))
            .chain(built.contract.as_ref().map(|_| "contract"));
        for program in programs {
            good &= page_agrees(program, arguments.kubernetes, &built.sources)?;
        }
    }
    Ok((good, late))
}

/// The contract and a bench, as far as they are wanted: each has control planes of its own. Whether both held.
fn comparisons(built: &Built, arguments: &Arguments) -> anyhow::Result<bool> {
    let held = match &built.contract {
        Some(contract) => run_contract(built, contract, arguments)?,
        None => true,
    };
    let kept = match &built.bench {
        Some(bench) => bench.measure(&built.kubernetes)?,
        None => true,
    };
    Ok(held && kept)
}

/// Whether the page of scenarios says of a program what was shown just now; says so where it does not.
fn page_agrees(program: &str, kubernetes: Version, sources: &Sources) -> anyhow::Result<bool> {
    let contradictions = table::contradictions(program, kubernetes.name(), sources)?;
    for contradiction in &contradictions {
        println!("error: {contradiction}");
    }
    Ok(contradictions.is_empty())
}

/// Whether the manager has a use for all that the chart lets it do; says so where it has none.
fn all_are_used(role: &str, used: &BTreeSet<Right>) -> anyhow::Result<bool> {
    let given = rights::given(role)?;
    let (unrecorded, unused): (Vec<_>, Vec<_>) = given.difference(used).partition(|right| right.is_unrecorded());
    for right in &unused {
        println!("error: the chart lets the manager {right}, of which no scenario made use");
    }
    let not = unrecorded.len() + unused.len();
    println!(
        "rights: {} of {} are used, {} more have no record",
        given.len() - not,
        given.len(),
        unrecorded.len()
    );
    Ok(unused.is_empty())
}
