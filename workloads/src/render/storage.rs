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
            // Limits alone would be asked for too, as long as the pod lives: an edge node that runs the old pod has no
            // place for the new one then, and refuses a pod that names it, again and again.
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "50m", "memory": "64Mi"}},
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::source::Resolver;
    use crate::testing;
    use rstest::rstest;

    /// A source of the worker, with the Secret `secret` where one is named.
    fn source(env: &'static str, url: &str, secret: &str, fetched: bool) -> Source {
        let found = testing::found([testing::secret("keys"), testing::secret("others")]);
        let resolver = Resolver {
            found: &found,
            worker: "the worker",
        };
        let source = resolver
            .at(format!("what {env} names"), url, secret, env)
            .unwrap()
            .unwrap();
        Source { fetched, ..source }
    }

    fn injected(sources: &[Source], spec: Value) -> Value {
        let Value::Object(mut spec) = spec else {
            panic!("a spec is an object")
        };
        Storage::of(sources).inject(&mut spec, &Settings::default());
        Value::Object(spec)
    }

    fn env(sources: &[Source]) -> Value {
        Storage::of(sources).env.into_iter().map(EnvVar::into_json).collect()
    }

    #[rstest]
    #[case("/models/a/m.pb", true, "/home/data/models/a/m.pb")]
    #[case("/m.pb", true, "/home/data/m.pb")]
    #[case("s3://bucket/a/m.pb", true, "/downloads/bucket/a/m.pb")]
    #[case("http://host:80/m.zip?x=y", true, "/downloads/host:80/m.zip")]
    #[case("s3://bucket/a", false, "s3://bucket/a")]
    #[case("obs://bucket/a", true, "obs://bucket/a")]
    fn the_worker_is_told_where_it_finds_its_source(#[case] url: &str, #[case] fetched: bool, #[case] told: &str) {
        let source = source("MODEL_URL", url, "", fetched);
        assert_eq!(env(&[source])[0], json!({"name": "MODEL_URL", "value": told}));
    }

    /// Sedna mounted the directory twice, and the API server refused the pod.
    #[test]
    fn two_sources_in_one_directory_are_one_mount() {
        let sources = [
            source("MODEL_URL", "/data/m.pb", "", true),
            source("TRAIN_DATASET_URL", "/data/d.txt", "", true),
        ];
        let spec = injected(&sources, json!({"containers": [{"name": "a"}, {"name": "b"}]}));
        for container in spec["containers"].as_array().unwrap() {
            let mounts = container["volumeMounts"].as_array().unwrap();
            assert_eq!(mounts.len(), 1);
            assert_eq!(mounts[0]["mountPath"], "/home/data/data");
        }
        assert_eq!(spec["volumes"].as_array().unwrap().len(), 1);
        assert_eq!(
            spec["volumes"][0]["hostPath"],
            json!({"path": "/data", "type": "Directory"})
        );
    }

    /// Sedna gave both the name of one volume, and mounted the wrong directory.
    #[test]
    fn two_directories_that_read_alike_are_two_volumes() {
        let sources = [
            source("MODEL_URL", "/a/b/m", "", true),
            source("TRAIN_DATASET_URL", "/a-b/d", "", true),
        ];
        let spec = injected(&sources, json!({"containers": [{"name": "a"}]}));
        let volumes = spec["volumes"].as_array().unwrap();
        assert_eq!(volumes.len(), 2);
        assert_ne!(volumes[0]["name"], volumes[1]["name"]);
    }

    #[rstest]
    #[case("/")]
    #[case("/Models/with spaces_and.dots")]
    #[case("/----")]
    #[case("/a/very/long/path/that/goes/on/and/on/until/it/is/longer/than/a/label/may/be")]
    fn a_volumes_name_is_a_label(#[case] directory: &str) {
        let name = volume_name(directory);
        assert!(name.len() <= 63 && !name.starts_with('-'), "{name}");
        assert!(
            name.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "{name}"
        );
    }

    #[test]
    fn what_the_user_mounts_stays() {
        let theirs = json!({"name": "own", "mountPath": "/home/data/models/"});
        let spec = injected(
            &[source("MODEL_URL", "/models/m.pb", "", true)],
            json!({"containers": [{"name": "a", "volumeMounts": [theirs]}], "volumes": [{"name": "own"}]}),
        );
        assert_eq!(spec["containers"][0]["volumeMounts"], json!([theirs]));
        assert_eq!(spec["volumes"][0], json!({"name": "own"}));
    }

    #[test]
    fn what_is_remote_is_fetched_by_one_init_container_after_the_users_own() {
        let sources = [
            source("MODEL_URL", "s3://bucket/m.pb", "keys", true),
            source("TRAIN_DATASET_URL", "https://host/d/train.txt", "", true),
        ];
        let spec = injected(
            &sources,
            json!({"initContainers": [{"name": "own"}], "containers": [{"name": "a"}]}),
        );
        let init = spec["initContainers"].as_array().unwrap();
        assert_eq!(init[0], json!({"name": "own"}));
        assert_eq!(
            init[1]["args"],
            json!([
                "s3://bucket/m.pb",
                "/downloads/bucket/",
                "https://host/d/train.txt",
                "/downloads/host/d/"
            ])
        );
        let names: Vec<_> = init[1]["env"].as_array().unwrap().iter().filter_map(name).collect();
        assert_eq!(
            names,
            [
                "ACCESS_KEY_ID",
                "S3_ENDPOINT_URL",
                "SECRET_ACCESS_KEY",
                "INDIRECT_URL_MARK"
            ]
        );
        assert_eq!(
            env(&sources).as_array().unwrap().len(),
            2,
            "the worker needs no credentials"
        );
        assert_eq!(spec["containers"][0]["volumeMounts"][0]["readOnly"], true);
    }

    #[test]
    fn a_worker_that_reaches_object_storage_itself_gets_the_credentials_by_reference() {
        let env = env(&[source("AGG_DATA_PATH", "s3://bucket/agg", "keys", false)]);
        let key = env
            .as_array()
            .unwrap()
            .iter()
            .find(|var| name(var) == Some("SECRET_ACCESS_KEY"))
            .unwrap();
        assert_eq!(
            key["valueFrom"]["secretKeyRef"],
            json!({"name": "keys", "key": "SECRET_ACCESS_KEY"})
        );
        assert!(!env.to_string().contains("a2V5"));
    }

    #[test]
    fn a_second_secret_for_one_container_is_told_of() {
        let both = [
            source("MODEL_URL", "s3://bucket/m", "keys", true),
            source("TRAIN_DATASET_URL", "s3://bucket/d", "others", true),
        ];
        let findings = Storage::of(&both).findings;
        assert_eq!(findings.len(), 1);
        assert!(
            findings[0]
                .message
                .contains("what TRAIN_DATASET_URL names names Secret others")
        );
        let apart = [
            source("MODEL_URL", "s3://b/m", "keys", true),
            source("AGG_DATA_PATH", "s3://b/a", "others", false),
        ];
        assert_eq!(
            Storage::of(&apart).findings,
            [],
            "the initializer and the worker may use one each"
        );
    }

    #[test]
    fn a_pod_without_sources_stays_as_it_is() {
        let spec = json!({"containers": [{"name": "a"}]});
        assert_eq!(injected(&[], spec.clone()), spec);
    }
}
