//! Volumes and mounts as folders and links: each container has a folder that stands for its `/`, in which each mount
//! path is a link to the volume's folder.
//!
//! A `hostPath` is a path in the node's own folder, which stands for the node's `/`: nodes do not see each other's
//! files, and nothing outside the state folder is touched. Read-only mounts are not enforced. A Secret or `ConfigMap` that
//! changes does not change the files of pods that run.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, HostPathVolumeSource, KeyToPath, Pod, Volume};

use super::env::{ConfigError, Sources};

/// Where a pod's files are.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    /// The pod's own folder.
    pub(super) pod: PathBuf,
    /// The folder that stands for the node's `/`.
    pub(super) host: PathBuf,
}

impl Folders {
    /// The folder that stands for a container's `/`.
    pub(super) fn root(&self, container: &str) -> PathBuf {
        self.pod.join("containers").join(container)
    }

    fn volume(&self, name: &str) -> PathBuf {
        self.pod.join("volumes").join(name)
    }
}

/// Makes a pod's volumes and its containers' folders.
pub(super) fn prepare(pod: &Pod, sources: &Sources, folders: &Folders) -> Result<(), ConfigError> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let mut targets = BTreeMap::new();
    for volume in spec.volumes.iter().flatten() {
        targets.insert(volume.name.clone(), make_volume(volume, sources, folders)?);
    }
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        mount(container, &targets, &folders.root(&container.name))?;
    }
    Ok(())
}

/// A container's mount paths.
pub(super) fn mount_paths(container: &Container) -> Vec<PathBuf> {
    container
        .volume_mounts
        .iter()
        .flatten()
        .map(|mount| PathBuf::from(&mount.mount_path))
        .collect()
}

/// Makes one volume; the folder or file that it is.
fn make_volume(volume: &Volume, sources: &Sources, folders: &Folders) -> Result<PathBuf, ConfigError> {
    let folder = folders.volume(&volume.name);
    if let Some(host) = &volume.host_path {
        return host_path(host, &folders.host);
    }
    let files = if volume.empty_dir.is_some() {
        BTreeMap::new()
    } else if let Some(source) = &volume.secret {
        let name = source.secret_name.clone().unwrap_or_default();
        let data = sources.secrets.get(&name).map(|secret| {
            secret
                .data
                .iter()
                .flatten()
                .map(|(key, value)| (key.clone(), value.0.clone()))
                .collect()
        });
        content("secret", &name, data, source.optional, source.items.as_deref())?
    } else if let Some(source) = &volume.config_map {
        let data = sources.config_maps.get(&source.name).map(|map| {
            let text = map
                .data
                .iter()
                .flatten()
                .map(|(key, value)| (key.clone(), value.clone().into_bytes()));
            let binary = map
                .binary_data
                .iter()
                .flatten()
                .map(|(key, value)| (key.clone(), value.0.clone()));
            text.chain(binary).collect()
        });
        content(
            "configmap",
            &source.name,
            data,
            source.optional,
            source.items.as_deref(),
        )?
    } else {
        return Err(ConfigError::Volume(format!(
            "volume \"{}\": the sandbox knows emptyDir, hostPath, secret and configMap",
            volume.name
        )));
    };
    write(&folder, &files).map_err(|error| failed(&folder, &error))?;
    Ok(folder)
}

/// The files of a Secret or `ConfigMap`, by path.
fn content(
    kind: &'static str,
    name: &str,
    data: Option<BTreeMap<String, Vec<u8>>>,
    optional: Option<bool>,
    items: Option<&[KeyToPath]>,
) -> Result<BTreeMap<String, Vec<u8>>, ConfigError> {
    let Some(mut data) = data else {
        let missing = ConfigError::Missing {
            kind,
            name: name.to_owned(),
        };
        return if optional == Some(true) {
            Ok(BTreeMap::new())
        } else {
            Err(missing)
        };
    };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(data);
    };
    let mut files = BTreeMap::new();
    for item in items {
        match data.remove(&item.key) {
            Some(value) => drop(files.insert(item.path.clone(), value)),
            None if optional == Some(true) => {}
            None => {
                return Err(ConfigError::Volume(format!(
                    "references non-existent {kind} key: {}",
                    item.key
                )));
            }
        }
    }
    Ok(files)
}

fn write(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (path, bytes) in files {
        let file = folder.join(relative(Path::new(path)));
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&file, bytes)?;
        // Secrets are among them.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// The place of a `hostPath`, which must be of the type that the volume asks for, or is made where it says so.
fn host_path(source: &HostPathVolumeSource, host: &Path) -> Result<PathBuf, ConfigError> {
    let place = host.join(relative(Path::new(&source.path)));
    let wrong = |what: &str| {
        let path = &source.path;
        ConfigError::Volume(format!(
            "hostPath type check failed: {path} is not {what} (on this node it is {})",
            place.display()
        ))
    };
    match source.type_.as_deref().unwrap_or_default() {
        "Directory" if !place.is_dir() => return Err(wrong("a directory")),
        "File" if !place.is_file() => return Err(wrong("a file")),
        "FileOrCreate" if !place.exists() => {
            if let Some(parent) = place.parent() {
                std::fs::create_dir_all(parent).map_err(|error| failed(parent, &error))?;
            }
            std::fs::write(&place, b"").map_err(|error| failed(&place, &error))?;
        }
        // Like container runtimes, which make a folder where nothing was.
        "DirectoryOrCreate" | "" if !place.exists() => {
            std::fs::create_dir_all(&place).map_err(|error| failed(&place, &error))?;
        }
        _ => {}
    }
    Ok(place)
}

/// Links each mount path in a container's folder to its volume. Outer paths come first, or they would hide inner ones.
fn mount(container: &Container, volumes: &BTreeMap<String, PathBuf>, root: &Path) -> Result<(), ConfigError> {
    std::fs::create_dir_all(root).map_err(|error| failed(root, &error))?;
    let mut mounts: Vec<_> = container.volume_mounts.iter().flatten().collect();
    mounts.sort_by_key(|mount| Path::new(&mount.mount_path).components().count());
    for mount in mounts {
        let unknown = || ConfigError::Volume(format!("volume \"{}\" not found", mount.name));
        let mut target = volumes.get(&mount.name).ok_or_else(unknown)?.clone();
        if let Some(path) = mount.sub_path.as_deref().filter(|path| !path.is_empty()) {
            target.push(relative(Path::new(path)));
            if !target.exists() {
                std::fs::create_dir_all(&target).map_err(|error| failed(&target, &error))?;
            }
        }
        let link = root.join(relative(Path::new(&mount.mount_path)));
        place_link(&target, &link).map_err(|error| failed(&link, &error))?;
    }
    Ok(())
}

fn place_link(target: &Path, link: &Path) -> io::Result<()> {
    if link.read_link().is_ok_and(|known| known == target) {
        return Ok(());
    }
    if let Some(parent) = link.parent() {
        std::fs::create_dir_all(parent)?;
    }
    symlink(std::path::absolute(target)?, link)
}

/// A path without `/` at its start and without `..`, so that it stays within the folder that it is joined to.
pub(super) fn relative(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

fn failed(path: &Path, error: &io::Error) -> ConfigError {
    ConfigError::Volume(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use serde_json::{Value, json};

    use super::*;

    struct Node {
        _state: tempfile::TempDir,
        folders: Folders,
    }

    fn node() -> Node {
        let state = tempfile::tempdir().unwrap();
        let folders = Folders {
            pod: state.path().join("pod"),
            host: state.path().join("host"),
        };
        Node { _state: state, folders }
    }

    fn prepare_all(node: &Node, volumes: &Value, mounts: &Value) -> Result<PathBuf, String> {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "volumes": volumes, "containers": [{"name": "c", "volumeMounts": mounts}]}}))
        .unwrap();
        let secret: Secret = serde_json::from_value(json!({"data": {"key": "c2VjcmV0", "other": ""}})).unwrap();
        let map: ConfigMap = serde_json::from_value(json!({"data": {"a.txt": "text"}})).unwrap();
        let sources = Sources {
            secrets: [("s".to_owned(), secret)].into(),
            config_maps: [("m".to_owned(), map)].into(),
        };
        prepare(&pod, &sources, &node.folders).map_err(|error| error.to_string())?;
        Ok(node.folders.root("c"))
    }

    #[test]
    fn every_kind_of_volume_is_found_at_its_mount_path() {
        let node = node();
        let volumes = json!([
            {"name": "tmp", "emptyDir": {}},
            {"name": "secret", "secret": {"secretName": "s", "items": [{"key": "key", "path": "sub/renamed"}]}},
            {"name": "map", "configMap": {"name": "m"}},
            {"name": "data", "hostPath": {"path": "/data", "type": "DirectoryOrCreate"}},
            {"name": "none", "secret": {"secretName": "absent", "optional": true}},
        ]);
        let mounts = json!([
            {"name": "tmp", "mountPath": "/downloads"},
            {"name": "secret", "mountPath": "/etc/secret"},
            {"name": "map", "mountPath": "/etc/map"},
            {"name": "data", "mountPath": "/home/data/data"},
            {"name": "data", "mountPath": "/sub", "subPath": "inner"},
            {"name": "none", "mountPath": "/none"},
        ]);
        let root = prepare_all(&node, &volumes, &mounts).unwrap();
        std::fs::write(root.join("downloads/x"), "x").unwrap();
        assert_eq!(
            std::fs::read_to_string(root.join("etc/secret/sub/renamed")).unwrap(),
            "secret"
        );
        assert!(!root.join("etc/secret/other").exists());
        assert_eq!(std::fs::read_to_string(root.join("etc/map/a.txt")).unwrap(), "text");
        std::fs::write(root.join("home/data/data/y"), "y").unwrap();
        assert_eq!(std::fs::read_to_string(node.folders.host.join("data/y")).unwrap(), "y");
        assert!(node.folders.host.join("data/inner").is_dir() && root.join("sub").is_dir());
        prepare_all(&node, &volumes, &mounts).unwrap();
        assert!(root.join("downloads/x").exists(), "made again, nothing is lost");
    }

    #[test]
    fn what_cannot_be_mounted_is_named() {
        let node = node();
        let missing = json!([{"name": "v", "secret": {"secretName": "absent"}}]);
        assert_eq!(
            prepare_all(&node, &missing, &json!([])).unwrap_err(),
            "secret \"absent\" not found"
        );
        let folder = json!([{"name": "v", "hostPath": {"path": "/absent", "type": "Directory"}}]);
        let error = prepare_all(&node, &folder, &json!([])).unwrap_err();
        assert!(
            error.starts_with("hostPath type check failed: /absent is not a directory"),
            "{error}"
        );
        let unknown = json!([{"name": "v", "nfs": {"path": "/", "server": "x"}}]);
        assert!(
            prepare_all(&node, &unknown, &json!([]))
                .unwrap_err()
                .contains("the sandbox knows emptyDir")
        );
        let error = prepare_all(&node, &json!([]), &json!([{"name": "v", "mountPath": "/x"}])).unwrap_err();
        assert_eq!(error, "volume \"v\" not found");
    }

    #[test]
    fn no_path_leads_out_of_its_folder() {
        assert_eq!(relative(Path::new("/../../etc/./passwd")), Path::new("etc/passwd"));
    }
}
