//! Which command stands for which image. An image that is not named here cannot be pulled, as on a cluster without that
//! image.
//!
//! ```yaml
//! images:
//!   example/trainer:1:
//!     command: [python3, train.py]   # as the image's ENTRYPOINT; a program with a `/` is relative to this file
//!     args: [--rounds, "3"]          # as its CMD, optional
//!     env: {PYTHONUNBUFFERED: "1"}   # optional
//!     workingDir: ../workers         # relative to this file, optional
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// What runs in place of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Image {
    /// The program and its first arguments; a pod's `command` replaces it.
    pub command: Vec<String>,
    /// Further arguments; a pod's `args` (or `command`) replace them.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables that a pod's `env` may override.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where it runs, unless the pod says so.
    #[serde(default)]
    pub working_dir: Option<PathBuf>,
}

/// The images that a sandbox knows, by their normalised names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Images(BTreeMap<String, Image>);

/// Why a file of images was refused.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// The text is not what it should be.
    #[error(
        "{origin}: {error}; expected `images: {{\"name:tag\": {{command: [program, argument, ...], env: {{NAME: value}}}}}}`"
    )]
    Parse {
        /// The file, or what else the text came from.
        origin: String,
        /// What is wrong, with its line.
        error: String,
    },
    /// An image has no command.
    #[error("{origin}: images.\"{image}\".command is empty; it names the program to run and its arguments")]
    NoCommand {
        /// The file, or what else the text came from.
        origin: String,
        /// The image.
        image: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    images: BTreeMap<String, Image>,
}

impl Images {
    /// Reads a file of images.
    pub fn load(path: &Path) -> Result<Self, ImagesError> {
        let text = std::fs::read_to_string(path).map_err(|error| ImagesError::Read {
            path: path.to_owned(),
            error,
        })?;
        let base = path.parent().unwrap_or_else(|| Path::new("."));
        Self::parse(&text, &path.display().to_string(), base)
    }

    /// Reads images from YAML. `origin` is what errors call the text, `base` the folder to which paths are relative.
    pub fn parse(text: &str, origin: &str, base: &Path) -> Result<Self, ImagesError> {
        let origin = origin.to_owned();
        let file: File = serde_saphyr::from_str(text).map_err(|error| ImagesError::Parse {
            origin: origin.clone(),
            error: error.without_snippet().to_string(),
        })?;
        let mut images = Self::default();
        for (name, mut image) in file.images {
            match image.command.first_mut() {
                None => return Err(ImagesError::NoCommand { origin, image: name }),
                Some(program) if program.contains('/') => *program = base.join(&program).display().to_string(),
                Some(_) => {}
            }
            image.working_dir = image.working_dir.map(|folder| base.join(folder));
            images.add(&name, image);
        }
        Ok(images)
    }

    /// Adds an image, in place of one of the same name.
    pub fn add(&mut self, name: &str, image: Image) {
        self.0.insert(normal(name), image);
    }

    /// Adds all of `others`, in place of those of the same names.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// What runs in place of an image.
    pub fn get(&self, name: &str) -> Option<&Image> {
        self.0.get(&normal(name))
    }
}

/// An image's name without the registry that is the default, with the tag that is the default.
fn normal(name: &str) -> String {
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    let name = name.strip_prefix("library/").unwrap_or(name);
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.contains(':') || name.contains('@') {
        name.to_owned()
    } else {
        format!("{name}:latest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Images, String> {
        Images::parse(text, "images.yaml", Path::new("/etc/sandbox")).map_err(|error| error.to_string())
    }

    #[test]
    fn names_are_compared_as_registries_do() {
        let mut images = Images::default();
        images.add(
            "busybox",
            Image {
                command: vec!["true".into()],
                ..Image::default()
            },
        );
        images.add(
            "localhost:5000/a",
            Image {
                command: vec!["false".into()],
                ..Image::default()
            },
        );
        for known in [
            "busybox",
            "busybox:latest",
            "docker.io/library/busybox",
            "library/busybox:latest",
        ] {
            assert!(images.get(known).is_some(), "{known}");
        }
        assert!(images.get("localhost:5000/a:latest").is_some());
        assert!(images.get("busybox:1").is_none());
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let images = parse("images: {a: {command: [./run.sh, x], workingDir: work}, b: {command: [python3]}}").unwrap();
        let a = images.get("a").unwrap();
        assert_eq!(a.command, ["/etc/sandbox/./run.sh", "x"]);
        assert_eq!(a.working_dir.as_deref(), Some(Path::new("/etc/sandbox/work")));
        assert_eq!(images.get("b").unwrap().command, ["python3"]);
    }

    #[test]
    fn errors_name_the_file_and_the_field() {
        let error = parse("images: {a: {command: []}}").unwrap_err();
        assert!(
            error.starts_with("images.yaml: images.\"a\".command is empty"),
            "{error}"
        );
        let error = parse("images:\n  a:\n    comand: [x]\n").unwrap_err();
        assert!(error.contains("comand") && error.contains("images.yaml"), "{error}");
        let error = Images::load(Path::new("/does/not/exist.yaml")).unwrap_err().to_string();
        assert!(error.starts_with("/does/not/exist.yaml: "), "{error}");
    }
}
