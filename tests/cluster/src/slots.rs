//! The places of the control planes that test programs are lent. All that a program has to know of one is known before that
//! is started, so programs can be told of those, too, that are yet to come.

use std::{
    fs::{self, File},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use skerry_cluster::{
    artifacts::Kubernetes,
    control,
    control_plane::ControlPlane,
    enclosure::FOLDER,
    site::{AMONG_OTHERS, Processors, Site},
};

/// The namespace of the scenarios.
pub const NAMESPACE: &str = "scenario";

/// A control plane that may be taken down and started again by its control.
pub type Plane = Arc<Mutex<ControlPlane>>;

/// Where a control plane is, or will be.
pub struct Place {
    site: Site,
    /// The socket of its control.
    control: PathBuf,
}

impl Place {
    fn at(site: Site) -> Self {
        let control = site.folder.with_extension("control");
        Self { site, control }
    }

    /// Of the control plane of scenarios with this number; each has ports of its own.
    pub fn of_scenarios(kubernetes: &Kubernetes, number: u16) -> Self {
        Self::at(Site {
            kubernetes: kubernetes.clone(),
            folder: Path::new(FOLDER).join(format!("plane-{number}")),
            address: Ipv4Addr::LOCALHOST,
            port: 10_000 + 10 * number,
            processors: Processors::All,
            netns: None,
            known: Some(skerry_dist::root().join("tests/tests/manifests/sedna/definitions.yaml")),
            hasty: true,
            memory: AMONG_OTHERS,
            without: OF_OTHER_KINDS,
            manager_in: Some(NAMESPACE),
            strict: true,
        })
    }

    /// Of the one that the sandbox is compared with.
    pub fn of_contract(kubernetes: &Kubernetes) -> Self {
        Self::at(Site {
            kubernetes: kubernetes.clone(),
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
        })
    }

    /// Starts it, and its control.
    pub fn start(&self) -> anyhow::Result<Plane> {
        self.controlled(ControlPlane::start(self.site.clone())?)
    }

    /// The same without controllers and scheduler.
    pub fn start_alone(&self) -> anyhow::Result<Plane> {
        self.controlled(ControlPlane::start_alone(self.site.clone())?)
    }

    fn controlled(&self, plane: ControlPlane) -> anyhow::Result<Plane> {
        let plane = Arc::new(Mutex::new(plane));
        control::serve(plane.clone(), &self.control)?;
        Ok(plane)
    }

    /// Keeps test programs from using what is here until this is unlocked: it is the lock by which they keep each other from it.
    pub fn lock(&self) -> anyhow::Result<File> {
        let path = self.control.with_extension("lock");
        let lock = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        lock.lock()?;
        Ok(lock)
    }

    fn entry(&self) -> Value {
        let access = self.site.access();
        json!({
            "kubeconfig": access.admin,
            "manager": access.manager,
            "etcd": access.etcd,
            "control": self.control,
        })
    }
}

/// The file of this name, which tells test programs of these.
pub fn list(name: &str, places: &[Place]) -> anyhow::Result<PathBuf> {
    let file = Path::new(FOLDER).join(format!("{name}.json"));
    let entries: Vec<_> = places.iter().map(Place::entry).collect();
    fs::write(&file, serde_json::to_vec(&entries)?)?;
    Ok(file)
}

/// Starts these side by side.
pub fn start(places: &[Place]) -> anyhow::Result<Vec<Plane>> {
    thread::scope(|scope| {
        let starting: Vec<_> = places.iter().map(|place| scope.spawn(|| place.start())).collect();
        let ended = starting.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|ended| ended.unwrap_or_else(|_| bail!("starting a control plane panicked")))
            .collect()
    })
}

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
