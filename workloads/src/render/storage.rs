//! How models and data sets reach a worker's file system: host directories mounted, remote ones fetched by the storage
//! initializer before the worker starts. Names, paths and arguments are Sedna's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use skerry_crds::names::{env, path};

use super::{
    env::EnvVar,
    json::{edit_list, name},
};
use crate::{
    Finding, Impact, Settings,
    inputs::{
        credential::Credential,
        hash,
        location::{Location, downloaded, mounted, parent},
        source::Source,
    },
};

/// The init container that fetches.
const INITIALIZER: &str = "storage-initializer";
/// The volume that it fetches into.
const DOWNLOADS_VOLUME: &str = "sedna-storage-initializer";
/// What a source begins with that lists sources (`INDIRECT_URL_MARK`).
const INDIRECT_MARK: &str = "@";

/// What a worker's pod needs to see its sources.
#[derive(Debug, Default)]
pub(crate) struct Storage {
    /// For every container of the worker.
    pub(crate) env: Vec<EnvVar>,
    /// What does not work as declared.
    pub(crate) findings: Vec<Finding>,
    /// Host directories to mount.
    directories: BTreeSet<String>,
    /// Pairs of address and directory for the storage initializer.
    fetches: Vec<String>,
    /// The storage initializer's environment.
    fetch_env: Vec<EnvVar>,
}

impl Storage {
    /// What `sources` need.
    pub(crate) fn of(sources: &[Source]) -> Self {
        let mut storage = Self::default();
        let mut fetching = OneCredential::default();
        let mut working = OneCredential::default();
        for source in sources {
            let seen_at = match &source.location {
                Location::Host(path) => {
                    storage.directories.insert(parent(path).to_owned());
                    mounted(path)
                }
                Location::Remote { place, .. } if source.fetched => {
                    let target = downloaded(place);
                    storage
                        .fetches
                        .extend([source.url.clone(), format!("{}/", parent(&target))]);
                    fetching.take(source, &mut storage.findings);
                    target
                }
                Location::Remote { .. } | Location::Other => {
                    working.take(source, &mut storage.findings);
                    source.url.clone()
                }
            };
            storage.env.push(EnvVar::value(source.env, seen_at));
        }
        if !storage.directories.is_empty() {
            storage.env.push(EnvVar::value(env::DATA_PATH_PREFIX, path::DATA));
        }
        storage.env.extend(working.env());
        storage.fetch_env = fetching.env();
        storage
    }

    /// Puts volumes, mounts and the storage initializer into a pod's spec.
    pub(crate) fn inject(&self, spec: &mut Map<String, Value>, settings: &Settings) {
        let mut volumes = BTreeMap::new();
        let mut mounts = Vec::new();
        if !self.fetches.is_empty() {
            volumes.insert(
                DOWNLOADS_VOLUME.to_owned(),
                json!({"name": DOWNLOADS_VOLUME, "emptyDir": {}}),
            );
            mounts.push(json!({"name": DOWNLOADS_VOLUME, "mountPath": path::DOWNLOADS, "readOnly": true}));
            edit_list(spec, "initContainers", |containers| {
                containers.retain(|container| name(container) != Some(INITIALIZER));
                containers.push(self.initializer(settings));
            });
        }
        for directory in &self.directories {
            let volume = volume_name(directory);
            mounts.push(json!({"name": volume, "mountPath": mounted(directory)}));
            let source = json!({"name": volume, "hostPath": {"path": directory, "type": "Directory"}});
            volumes.insert(volume, source);
        }
        edit_list(spec, "volumes", |theirs| {
            theirs.retain(|volume| !name(volume).is_some_and(|name| volumes.contains_key(name)));
            theirs.extend(volumes.into_values());
        });
        edit_list(spec, "containers", |containers| {
            for container in containers.iter_mut().filter_map(Value::as_object_mut) {
                edit_list(container, "volumeMounts", |theirs| add_mounts(theirs, &mounts));
            }
        });
    }

    fn initializer(&self, settings: &Settings) -> Value {
        let mut env = self.fetch_env.clone();
        env.push(EnvVar::value(env::INDIRECT_URL_MARK, INDIRECT_MARK));
        json!({
            "name": INITIALIZER,
            "image": settings.storage_initializer_image,
            "imagePullPolicy": "IfNotPresent",
            "args": self.fetches,
            "env": env.into_iter().map(EnvVar::into_json).collect::<Vec<_>>(),
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [{"name": DOWNLOADS_VOLUME, "mountPath": path::DOWNLOADS}],
        })
    }
}

/// A container knows one object storage: the variables have one name each.
#[derive(Default)]
struct OneCredential(Option<Credential>);

impl OneCredential {
    /// The first one counts, as it does in Sedna; another one is told of.
    fn take(&mut self, source: &Source, findings: &mut Vec<Finding>) {
        let Some(credential) = &source.credential else { return };
        match &self.0 {
            None => self.0 = Some(credential.clone()),
            Some(first) if first.secret == credential.secret => {}
            Some(first) => findings.push(Finding {
                impact: Impact::Degraded,
                reason: "CredentialConflict",
                message: format!(
                    "{} names Secret {}, but its worker already uses Secret {}: a worker knows one object storage; \
                     name the same Secret",
                    source.title, credential.secret, first.secret
                ),
            }),
        }
    }

    fn env(&self) -> Vec<EnvVar> {
        self.0.iter().flat_map(Credential::env).collect()
    }
}

/// Adds `ours` but where the user has mounted something of their own.
fn add_mounts(theirs: &mut Vec<Value>, ours: &[Value]) {
    let path = |mount: &Value| {
        mount
            .get("mountPath")
            .and_then(Value::as_str)
            .map(|path| path.trim_end_matches('/').to_owned())
    };
    let taken: BTreeSet<_> = theirs.iter().filter_map(path).collect();
    theirs.extend(
        ours.iter()
            .filter(|mount| !path(mount).is_some_and(|path| taken.contains(&path)))
            .cloned(),
    );
}

/// A volume's name that reads like the directory and belongs to it alone: two directories may read alike.
fn volume_name(directory: &str) -> String {
    let readable: String = directory
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    let readable: Vec<_> = readable.split('-').filter(|part| !part.is_empty()).collect();
    let readable: String = readable.join("-").chars().take(50).collect();
    let readable = if readable.is_empty() {
        "root"
    } else {
        readable.trim_end_matches('-')
    };
    format!("{readable}-{}", hash::short(&[directory]))
}
