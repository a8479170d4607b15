//! The tiers of control planes with stand-in nodes: test programs that are lent some.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    env,
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
    thread,
    time::Instant,
};

use anyhow::anyhow;
use skerry_cluster::{
    artifacts::{KUBERNETES, NEWEST, Workshop},
    enclosure::FOLDER,
    process::output,
    results::Sources,
    rights::Right,
    sections::Section,
    table,
};

use crate::{
    Arguments, Built, Version,
    slots::{self, NAMESPACE, Plane, SCENARIOS, Slot},
};

/// How many control planes there are while all hosts are up. Each one more makes all others slower: with seven a run took about
/// forty seconds longer, and a gigabyte of memory less was left.
const BESIDE_HOSTS: usize = 6;

/// Runs the scenarios, as many at once as there are control planes, with the longest program what takes less, and what is
/// `beside` them. What is beside them goes before them: it is one thing after the other. Where there are hosts, some of the
/// control planes are started when two of these are down, which is when whoever sends to `room` hangs up.
pub fn run_scenarios(
    built: &Built,
    arguments: &Arguments,
    room: Option<Receiver<Infallible>>,
    beside: impl FnOnce() -> anyhow::Result<bool> + Send,
) -> anyhow::Result<Scenarios> {
    let begun = Instant::now();
    let all: Vec<_> = (0..arguments.planes)
        .map(|number| Slot::of_scenarios(&built.kubernetes, number))
        .collect();
    let (at_first, later) = all.split_at(number_at_first(all.len(), room.is_some()));
    let locks = later.iter().map(Slot::lock).collect::<anyhow::Result<Vec<_>>>()?;
    let role = Path::new(FOLDER).join("role.yaml");
    fs::write(&role, &built.role)?;
    let mut planes = start(at_first, &role)?;
    println!(
        "{} control planes of Kubernetes {} ready in {} s",
        planes.len(),
        match arguments.kubernetes {
            Version::WithNodes => KUBERNETES,
            Version::Newest => NEWEST,
        },
        begun.elapsed().as_secs()
    );
    let lent = Lent {
        list: slots::list("planes", &all)?,
        number: all.len(),
        path: path_with(&built.kubernetes.kubectl)?,
        sources: &built.sources,
        late: Mutex::default(),
    };
    let over = AtomicBool::new(false);
    let start_later = || {
        // Nobody sends anything.
        let is_room = room.is_some_and(|room| room.recv().is_err());
        if !is_room || later.is_empty() || over.load(Ordering::Relaxed) {
            return Ok(vec![]);
        }
        let begun = Instant::now();
        let more = start(later, &role)?;
        locks.iter().try_for_each(File::unlock)?;
        let (number, seconds) = (more.len(), begun.elapsed().as_secs());
        println!("{number} more control planes ready in {seconds} s");
        Ok::<_, anyhow::Error>(more)
    };
    // The first program is by far the longest: the others run beside it, one after the other.
    let (longest, others) = built.scenarios.split_at(built.scenarios.len().min(1));
    let (good, more) = thread::scope(|scope| {
        let others = scope.spawn(|| lent.run(others, arguments));
        let beside = scope.spawn(beside);
        let start_later = scope.spawn(start_later);
        let longest = lent.run(longest, arguments);
        let (others, beside) = (others.join(), beside.join());
        over.store(true, Ordering::Relaxed);
        let more = start_later.join();
        let ended = |_| anyhow!("a thread of other programs ended");
        let (others, beside) = (others.map_err(ended)?, beside.map_err(ended)?);
        Ok::<_, anyhow::Error>((longest? & others? & beside?, more.map_err(ended)?))
    })?;
    let all_started = more.is_ok();
    match more {
        Ok(more) => planes.extend(more),
        // The scenarios went on without them.
        Err(error) => println!("error: starting more control planes: {error:#}"),
    }
    Ok(Scenarios {
        good: good && all_started,
        used: rights_used(&planes)?,
        late: lent.late.into_inner().unwrap_or_else(PoisonError::into_inner),
    })
}

/// Where programs are looked for: the kubectl that belongs to the control planes goes before the machine's.
fn path_with(kubectl: &Path) -> anyhow::Result<OsString> {
    let programs = Path::new(FOLDER).join("bin");
    fs::create_dir(&programs)?;
    symlink(kubectl, programs.join("kubectl"))?;
    let path = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths(
        std::iter::once(programs).chain(env::split_paths(&path)),
    )?)
}

/// The rights that the manager made use of on any of these, all of which still have to run.
fn rights_used(planes: &[Plane]) -> anyhow::Result<BTreeSet<Right>> {
    let mut used = BTreeSet::new();
    for plane in planes {
        let mut plane = plane.lock().unwrap_or_else(PoisonError::into_inner);
        plane.check()?;
        used.extend(plane.rights_used()?);
    }
    Ok(used)
}

/// How many of all control planes are started at first.
fn number_at_first(all: usize, with_hosts: bool) -> usize {
    if with_hosts { all.min(BESIDE_HOSTS) } else { all }
}

/// Starts control planes side by side, in which scenarios find what the chart makes of roles.
fn start(these: &[Slot], role: &Path) -> anyhow::Result<Vec<Plane>> {
    let planes = slots::start(these)?;
    for plane in &planes {
        let plane = plane.lock().unwrap_or_else(PoisonError::into_inner);
        plane.kubectl(&["create", "namespace", NAMESPACE])?;
        plane.kubectl(&["apply", "-f", &role.display().to_string()])?;
    }
    Ok(planes)
}

/// As many control planes as keep two cores busy once hosts are down, or as the memory suffices for. A scenario mostly waits:
/// six had one of the cores busy.
pub fn affordable() -> u16 {
    const MOST: u16 = 10;
    const KIB_EACH: u64 = 2 << 20;
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|told| told.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let room = kib.map_or(MOST, |kib| u16::try_from(kib / KIB_EACH).unwrap_or(MOST));
    room.clamp(1, MOST)
}

/// Control planes that are lent to programs.
struct Lent<'a> {
    /// How many there are, or will be.
    number: usize,
    /// The file that names them.
    list: PathBuf,
    /// Where programs are looked for.
    path: OsString,
    sources: &'a Sources,
    /// What held only when it was run once more: here others work beside it, and whoever waits may have waited too short.
    late: Mutex<Vec<String>>,
}

impl Lent<'_> {
    /// A test program that is lent them.
    fn command(&self, program: &Path) -> Command {
        let mut run = SCENARIOS.command(program);
        // Those that live many lives have several planes at once, and the others wait for theirs.
        run.arg(format!("--test-threads={}", 2 * self.number))
            // Those that run nowhere else are ignored elsewhere.
            .arg("--include-ignored")
            .env("SKERRY_CONTROL_PLANES", &self.list)
            .env("PATH", &self.path)
            .current_dir(skerry_dist::root().join("tests"));
        run
    }

    /// Runs programs one after the other; whether all held.
    fn run(&self, programs: &[(String, PathBuf)], arguments: &Arguments) -> anyhow::Result<bool> {
        let mut good = true;
        for (name, program) in programs {
            let begun = Instant::now();
            let section = Section::of(name)?;
            let of = |filter: Vec<&str>, without: &[&str]| {
                let mut run = self.command(program);
                run.args(filter).args(["--skip", table::CHECK]).args(
                    section
                        .sandbox_only
                        .iter()
                        .chain(without)
                        .flat_map(|name| ["--skip", name]),
                );
                run
            };
            // A test program runs in the order of names.
            let mut parts = if section.longest.is_empty() || !arguments.filter.is_empty() {
                vec![of(arguments.filter.iter().map(String::as_str).collect(), &[])]
            } else {
                vec![of(section.longest.to_vec(), &[]), of(vec![], section.longest)]
            };
            let again = |failed: &[String]| {
                let mut run = self.command(program);
                run.arg("--exact").args(failed);
                run
            };
            let (held, late) = arguments.run(name, self.sources).of_some_twice(&mut parts, again)?;
            good &= held;
            let late = late.into_iter().map(|scenario| format!("{name}: {scenario}"));
            self.late.lock().unwrap_or_else(PoisonError::into_inner).extend(late);
            println!("{name}: {} s", begun.elapsed().as_secs());
        }
        Ok(good)
    }
}

/// What ran on control planes.
pub struct Scenarios {
    /// Whether all held.
    pub good: bool,
    /// The rights that the manager made use of.
    pub used: BTreeSet<Right>,
    /// What held only when it was run once more.
    pub late: Vec<String>,
}

/// The roles of the manager and their bindings, from the chart.
pub fn role(workshop: &Workshop) -> anyhow::Result<String> {
    let mut helm = Command::new(workshop.helm()?);
    helm.args(["template", "skerry", "--kube-version", KUBERNETES])
        .arg(skerry_dist::root().join("charts/skerry"));
    helm.args([
        "--namespace",
        NAMESPACE,
        "--show-only",
        "templates/globalmanager/rbac.yaml",
        "--set",
        "globalManager.edgeTls.enabled=true",
        "--set",
        "rbac.ownerReferencesPermissionEnforcement=true",
    ]);
    output(&mut helm)
}

/// Compares the sandbox with an API server beside which no controller writes.
pub fn run_contract(built: &Built, contract: &Path, arguments: &Arguments) -> anyhow::Result<bool> {
    let there = Slot::of_contract(&built.kubernetes);
    let plane = there.start_alone()?;
    let mut run = Command::new(contract);
    run.args(&arguments.filter)
        .env("SKERRY_CONTROL_PLANES", slots::list("contract", &[there])?);
    // Whoever asks for this alone explores; a run of everything says the same of the same tree, and has less time.
    if arguments.only.is_none() {
        for (setting, value) in [(SEED, "1"), (CASES, "4")] {
            if env::var_os(setting).is_none() {
                run.env(setting, value);
            }
        }
    }
    let good = arguments.run("contract", &built.sources).of(&mut run)?;
    plane.lock().unwrap_or_else(PoisonError::into_inner).check()?;
    Ok(good)
}

/// Where proptest looks for the seed of what it generates, and for how many sequences of each kind.
const SEED: &str = "PROPTEST_RNG_SEED";
const CASES: &str = "PROPTEST_CASES";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_control_planes_wait_for_the_end_of_hosts_if_there_are_any() {
        assert_eq!(number_at_first(10, true), BESIDE_HOSTS);
        assert_eq!(number_at_first(10, false), 10);
        assert_eq!(number_at_first(2, true), 2);
    }
}
