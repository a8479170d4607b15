//! The slots of the control planes that test programs are lent. All that a program has to know of one is known before that is
//! started, so programs can be told of those, too, that are yet to come.

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
    processors::Processors,
    site::{AMONG_OTHERS, Patience, Site},
};

/// What the processors are to scenarios and their control planes. Those of the hosts go before: they are one thing after the
/// other, and more control planes are started when they are done.
pub const SCENARIOS: Processors = Processors::Yielding;

/// The namespace of the scenarios.
pub const NAMESPACE: &str = "scenario";

/// A control plane that may be taken down and started again by its control.
pub type Plane = Arc<Mutex<ControlPlane>>;

/// Where a control plane is, or will be.
pub struct Slot {
    site: Site,
    /// The socket of its control.
    control: PathBuf,
    /// By this file test programs keep each other from it.
    lock: PathBuf,
}

impl Slot {
    fn at(site: Site) -> Self {
        let beside = |what| site.folder.with_extension(what);
        let (control, lock) = (beside("control"), beside("lock"));
        Self { site, control, lock }
    }

    /// Of the control plane of scenarios with this number; each has ports of its own.
    pub fn of_scenarios(kubernetes: &Kubernetes, number: u16) -> Self {
        Self::at(Site {
            kubernetes: kubernetes.clone(),
            folder: Path::new(FOLDER).join(format!("plane-{number}")),
            address: Ipv4Addr::LOCALHOST,
            port: 10_000 + 10 * number,
            processors: SCENARIOS,
            netns: None,
            known: Some(skerry_dist::root().join("tests/tests/manifests/sedna/definitions.yaml")),
            patience: Patience::Hardly,
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
            patience: Patience::Usual,
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

    /// Keeps test programs from it until this is unlocked.
    pub fn lock(&self) -> anyhow::Result<File> {
        let said = || format!("locking {}", self.lock.display());
        let lock = File::create(&self.lock).with_context(said)?;
        lock.try_lock().with_context(said)?;
        Ok(lock)
    }

    fn entry(&self) -> Value {
        let access = self.site.access();
        json!({
            "kubeconfig": access.admin,
            "manager": access.manager,
            "etcd": access.etcd,
            "control": self.control,
            "lock": self.lock,
        })
    }
}

/// The file of this name, which tells test programs of these.
pub fn list(name: &str, slots: &[Slot]) -> anyhow::Result<PathBuf> {
    let file = Path::new(FOLDER).join(format!("{name}.json"));
    let entries: Vec<_> = slots.iter().map(Slot::entry).collect();
    fs::write(&file, serde_json::to_vec(&entries)?)?;
    Ok(file)
}

/// Starts these side by side, all or none.
pub fn start(slots: &[Slot]) -> anyhow::Result<Vec<Plane>> {
    let planes: Vec<_> = thread::scope(|scope| {
        let start = |slot: &Slot| ControlPlane::start(slot.site.clone());
        let starting: Vec<_> = slots.iter().map(|slot| scope.spawn(move || start(slot))).collect();
        let ended = starting.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|ended| ended.unwrap_or_else(|_| bail!("starting a control plane panicked")))
            .collect::<anyhow::Result<_>>()
    })?;
    let controlled = slots.iter().zip(planes).map(|(slot, plane)| slot.controlled(plane));
    controlled.collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_slots_share_a_folder_a_port_or_a_lock() {
        let kubernetes = Kubernetes {
            components: "kubernetes".into(),
            kubectl: "kubectl".into(),
        };
        let slots = [
            Slot::of_scenarios(&kubernetes, 0),
            Slot::of_scenarios(&kubernetes, 9),
            Slot::of_contract(&kubernetes),
        ];
        let entries = slots.each_ref().map(Slot::entry);
        for field in ["kubeconfig", "etcd", "control", "lock"] {
            let [one, other, contract] = entries.each_ref().map(|entry| entry[field].as_str().unwrap());
            assert!(
                one != other && other != contract && one != contract,
                "{field}: {entries:?}"
            );
        }
        let manager = entries[0]["manager"].as_str().unwrap();
        assert!(manager.ends_with("/plane-0/system-serviceaccount-scenario-skerry-globalmanager.kubeconfig"));
        assert!(entries[2]["manager"].is_null());
    }
}
