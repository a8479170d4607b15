//! The tiers of control planes with stand-in nodes: test programs that are lent some.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs,
    net::Ipv4Addr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{anyhow, bail};
use serde_json::json;
use skerry_cluster::{
    artifacts::{KUBERNETES, Kubernetes, NEWEST, Workshop},
    control,
    control_plane::ControlPlane,
    enclosure::FOLDER,
    process::output,
    results::Sources,
    rights::Right,
    sections::Section,
    site::{AMONG_OTHERS, Processors, Site},
    table,
};

use crate::{Arguments, Built, Version};

/// Runs the scenarios, as many at once as there are control planes, with the longest program what takes less, and what is
/// `beside` them. What is beside them goes before them: it is one thing after the other.
pub fn run_scenarios(
    built: &Built,
    arguments: &Arguments,
    beside: impl FnOnce() -> anyhow::Result<bool> + Send,
) -> anyhow::Result<Scenarios> {
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
    symlink(&built.kubernetes.kubectl, programs.join("kubectl"))?;
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(std::iter::once(programs).chain(env::split_paths(&path)))?;
    let role = Path::new(FOLDER).join("role.yaml");
    fs::write(&role, &built.role)?;
    for plane in &planes {
        let plane = plane.lock().unwrap_or_else(PoisonError::into_inner);
        plane.kubectl(&["create", "namespace", NAMESPACE])?;
        plane.kubectl(&["apply", "-f", &role.display().to_string()])?;
    }
    let lent = Lent {
        list: lend("planes", &planes)?,
        planes: &planes,
        path,
        sources: &built.sources,
        late: Mutex::default(),
    };
    // The first program is by far the longest: the others run beside it, one after the other.
    let (first, others) = built.scenarios.split_at(built.scenarios.len().min(1));
    let good = thread::scope(|scope| {
        let others = scope.spawn(|| lent.run(others, arguments));
        let beside = scope.spawn(beside);
        let first = lent.run(first, arguments);
        let ended = |_| anyhow!("a thread of other programs ended");
        let (others, beside) = (others.join().map_err(ended)?, beside.join().map_err(ended)?);
        Ok::<_, anyhow::Error>(first? & others? & beside?)
    })?;
    let mut used = BTreeSet::new();
    for plane in &planes {
        let mut plane = plane.lock().unwrap_or_else(PoisonError::into_inner);
        plane.check()?;
        used.extend(plane.rights_used()?);
    }
    let late = lent.late.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Scenarios { good, used, late })
}

/// As many control planes as two cores keep busy, or as the memory suffices for, beside two clusters with hosts. A scenario mostly
/// waits, and with six of them a core had nothing to do once the hosts were down; with ten, each had so little memory
/// ([`AMONG_OTHERS`]) that it took twice the processor time.
pub fn affordable() -> u16 {
    const MOST: u16 = 8;
    const KIB_EACH: u64 = 2 << 20;
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|told| told.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let room = kib.map_or(MOST, |kib| u16::try_from(kib / KIB_EACH).unwrap_or(MOST));
    room.clamp(1, MOST)
}

/// Control planes that are lent to programs.
struct Lent<'a> {
    planes: &'a [Arc<Mutex<ControlPlane>>],
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
        let mut run = Command::new(program);
        // Those that live many lives have several planes at once, and the others wait for theirs.
        run.arg(format!("--test-threads={}", 2 * self.planes.len()))
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

/// The namespace of the scenarios.
const NAMESPACE: &str = "scenario";

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

/// The file that tells test programs of control planes and of their controls.
fn lend(name: &str, planes: &[Arc<Mutex<ControlPlane>>]) -> anyhow::Result<PathBuf> {
    let mut entries = Vec::new();
    for (index, plane) in planes.iter().enumerate() {
        let socket = Path::new(FOLDER).join(format!("{name}-{index}.control"));
        control::serve(plane.clone(), &socket)?;
        let plane = plane.lock().unwrap_or_else(PoisonError::into_inner);
        let access = plane.access();
        entries.push(json!({
            "kubeconfig": access.admin, "manager": access.manager, "etcd": plane.etcd(), "control": socket,
        }));
    }
    let list = Path::new(FOLDER).join(format!("{name}.json"));
    fs::write(&list, serde_json::to_vec(&entries)?)?;
    Ok(list)
}

/// Compares the sandbox with an API server beside which no controller writes.
pub fn run_contract(built: &Built, contract: &Path, arguments: &Arguments) -> anyhow::Result<bool> {
    let plane = ControlPlane::start_alone(Site {
        kubernetes: built.kubernetes.clone(),
        folder: Path::new(FOLDER).join("contract"),
        address: Ipv4Addr::LOCALHOST,
        port: 10_900,
        processors: Processors::All,
        netns: None,
        known: None,
        hasty: false,
        memory: AMONG_OTHERS,
        without: &[],
        manager_in: None,
        strict: false,
    })?;
    let plane = Arc::new(Mutex::new(plane));
    let mut run = Command::new(contract);
    run.args(&arguments.filter)
        .env("SKERRY_CONTROL_PLANES", lend("contract", std::slice::from_ref(&plane))?);
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

/// Controllers of kinds of which neither a scenario nor the manager has anything. Each watches, on every control plane.
const OF_OTHER_KINDS: &[&str] = &[
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "cronjob-controller",
    "daemonset-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "ephemeral-volume-controller",
    "job-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "replicationcontroller-controller",
    "resourceclaim-controller",
    "resourcequota-controller",
    "service-cidr-controller",
    "statefulset-controller",
    "ttl-after-finished-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
];

/// Control planes side by side, each with ports of its own.
pub fn start_planes(kubernetes: &Kubernetes, number: u16) -> anyhow::Result<Vec<Arc<Mutex<ControlPlane>>>> {
    let start = |index: u16| {
        ControlPlane::start(Site {
            kubernetes: kubernetes.clone(),
            folder: Path::new(FOLDER).join(format!("plane-{index}")),
            address: Ipv4Addr::LOCALHOST,
            port: 10_000 + 10 * index,
            processors: Processors::All,
            netns: None,
            known: Some(skerry_dist::root().join("tests/tests/manifests/sedna/definitions.yaml")),
            hasty: true,
            memory: AMONG_OTHERS,
            without: OF_OTHER_KINDS,
            manager_in: Some(NAMESPACE),
            strict: true,
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
