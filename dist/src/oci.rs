//! Writes an image as an OCI archive, byte for byte the same each time: entries in order, times at zero, one layer.
//!
//! <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::Arch;

/// A file of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is, without a leading slash.
    pub path: String,
    /// Whether it is a program.
    pub executable: bool,
    /// What is in it.
    pub content: Vec<u8>,
}

/// How an image runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `user:group`.
    pub user: String,
    /// TCP ports.
    pub ports: Vec<String>,
    /// The program, and its first arguments.
    pub entrypoint: Vec<String>,
}

/// The archive of an image of this name.
pub fn archive(reference: &str, arch: Arch, config: &Config, entries: &[Entry]) -> std::io::Result<Vec<u8>> {
    let mut blobs = Blobs::default();
    let layer = blobs.add("application/vnd.oci.image.layer.v1.tar", layer(entries)?);
    let ports: BTreeMap<_, _> = config
        .ports
        .iter()
        .map(|port| (format!("{port}/tcp"), json!({})))
        .collect();
    let how = json!({
        "architecture": arch.to_string(),
        "os": "linux",
        "config": {
            "User": config.user,
            "ExposedPorts": ports,
            "Entrypoint": config.entrypoint,
            "WorkingDir": "/",
        },
        // Uncompressed, so the layer's own digest.
        "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
        "history": [{"created_by": "skerry-dist"}],
    });
    let how = blobs.add("application/vnd.oci.image.config.v1+json", how.to_string().into_bytes());
    let manifest_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest =
        json!({"schemaVersion": 2, "mediaType": manifest_type, "config": how.json(), "layers": [layer.json()]});
    let manifest = blobs.add(manifest_type, manifest.to_string().into_bytes());
    let tag = reference.rsplit(':').next().unwrap_or_default();
    let manifest = json!({
        "mediaType": manifest_type,
        "digest": manifest.digest,
        "size": manifest.size,
        "platform": {"architecture": arch.to_string(), "os": "linux"},
        "annotations": {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": tag},
    });
    let index_type = "application/vnd.oci.image.index.v1+json";
    let index = json!({"schemaVersion": 2, "mediaType": index_type, "manifests": [manifest]});

    let mut files: Vec<_> = blobs.0.into_iter().collect();
    files.push(("index.json".to_owned(), index.to_string().into_bytes()));
    files.push(("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()));
    let files: Vec<_> = files
        .into_iter()
        .map(|(path, content)| Entry {
            path,
            executable: false,
            content,
        })
        .collect();
    tarred(&files)
}

/// What is told apart by its digest.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    /// Adds one.
    fn add(&mut self, media_type: &'static str, content: Vec<u8>) -> Descriptor {
        let digest = crate::hex(&Sha256::digest(&content));
        let descriptor = Descriptor {
            media_type,
            digest: format!("sha256:{digest}"),
            size: content.len(),
        };
        self.0.insert(format!("blobs/sha256/{digest}"), content);
        descriptor
    }
}

/// What names a blob.
struct Descriptor {
    media_type: &'static str,
    digest: String,
    size: usize,
}

impl Descriptor {
    fn json(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": self.digest, "size": self.size})
    }
}

fn layer(entries: &[Entry]) -> std::io::Result<Vec<u8>> {
    let mut entries = entries.to_vec();
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    tarred(&entries)
}

/// The entries, each after the directories that it is in.
fn tarred(entries: &[Entry]) -> std::io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(vec![]);
    let mut directories = BTreeSet::new();
    for Entry {
        path,
        executable,
        content,
    } in entries
    {
        for (at, _) in path.match_indices('/') {
            let (directory, _) = path.split_at(at + 1);
            if directories.insert(directory) {
                tar.append_data(&mut header(tar::EntryType::Directory, 0o755, 0), directory, &[][..])?;
            }
        }
        let mode = if *executable { 0o755 } else { 0o644 };
        let mut header = header(tar::EntryType::Regular, mode, content.len() as u64);
        tar.append_data(&mut header, path, content.as_slice())?;
    }
    tar.into_inner()
}

/// Of root, and of no time.
fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn entries() -> Vec<Entry> {
        let entry = |path: &str, executable, content: &str| Entry {
            path: path.to_owned(),
            executable,
            content: content.into(),
        };
        vec![entry("etc/passwd", false, "root"), entry("bin/program", true, "ELF")]
    }

    fn files(tar: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut files = BTreeMap::new();
        for file in tar::Archive::new(tar).entries().unwrap() {
            let mut file = file.unwrap();
            assert_eq!((file.header().mtime().unwrap(), file.header().uid().unwrap()), (0, 0));
            let mut content = vec![];
            file.read_to_end(&mut content).unwrap();
            let path = file.path().unwrap().display().to_string();
            files.insert(path, (file.header().mode().unwrap(), content));
        }
        files
    }

    #[test]
    fn an_archive_leads_from_its_name_to_its_files() {
        let config = Config {
            user: "65532:65532".to_owned(),
            ports: vec!["9000".to_owned()],
            entrypoint: vec!["/bin/program".to_owned()],
        };
        let archive = archive("docker.io/skerry/x:v1", Arch::Arm64, &config, &entries()).unwrap();
        let files_of_archive = files(&archive);
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().replace("sha256:", "");
            let (_, content) = &files_of_archive[&format!("blobs/sha256/{digest}")];
            assert_eq!(descriptor["size"], content.len());
            content.clone()
        };
        let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let index = parse(&files_of_archive["index.json"].1);
        let described = &index["manifests"][0];
        assert_eq!(
            described["annotations"]["io.containerd.image.name"],
            "docker.io/skerry/x:v1"
        );
        assert_eq!(described["annotations"]["org.opencontainers.image.ref.name"], "v1");
        let manifest = parse(&blob(described));
        let config = parse(&blob(&manifest["config"]));
        assert_eq!(config["architecture"], "arm64");
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["ExposedPorts"], json!({"9000/tcp": {}}));
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        let layer = files(&blob(&manifest["layers"][0]));
        let modes: Vec<_> = layer.iter().map(|(path, (mode, _))| (path.as_str(), *mode)).collect();
        let expected = [
            ("bin/", 0o755),
            ("bin/program", 0o755),
            ("etc/", 0o755),
            ("etc/passwd", 0o644),
        ];
        assert_eq!(modes, expected);
        assert_eq!(layer["bin/program"].1, b"ELF");
    }

    #[test]
    fn the_order_of_the_files_changes_no_byte() {
        let build = |entries: &[Entry]| archive("a/b:c", Arch::Amd64, &Config::default(), entries).unwrap();
        let mut turned = entries();
        turned.reverse();
        assert_eq!(build(&entries()), build(&turned));
    }
}
