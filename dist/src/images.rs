//! Reads from the Dockerfile what is in which image, and assembles them: one description, two builders.
//!
//! Of the Dockerfile's language it knows what those stages need, and refuses the rest by its line.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use thiserror::Error;

use crate::{
    Arch,
    oci::{self, Config, Entry},
};

/// The stage that is not ours to run.
const BUILD: &str = "build";
/// Where it leaves what the images consist of.
const OUT: &str = "/out/";

/// The images, and the tag of each. Workers' pods name the storage initializer by the version of its arguments, and the
/// examples the newest worker; the others have the version of the chart's `appVersion`.
const TAGS: [(&str, &str); 4] = [
    ("globalmanager", env!("CARGO_PKG_VERSION")),
    ("localcontroller", env!("CARGO_PKG_VERSION")),
    ("storage-initializer", "v1"),
    ("worker", "latest"),
];

/// Why the Dockerfile cannot be followed.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("dist/Dockerfile, line {line}: {what}")]
pub struct DockerfileError {
    /// The line, from 1.
    line: usize,
    /// What is wrong with it.
    what: String,
}

/// One image, as its stage describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The stage's name.
    pub name: String,
    /// Its tag.
    pub tag: &'static str,
    /// What is copied: from below `/out/`, to a path in the image.
    pub copies: Vec<(String, String)>,
    /// How it runs.
    pub config: Config,
}

/// All images that the Dockerfile describes.
pub fn describe(dockerfile: &str) -> Result<Vec<Image>, DockerfileError> {
    let mut stages: Vec<Image> = vec![];
    let mut ours = false;
    for (at, line) in dockerfile.lines().enumerate() {
        let refuse = |what: String| DockerfileError { line: at + 1, what };
        let line = line.trim();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "FROM" {
            let stage = stage(rest, &stages).map_err(refuse)?;
            ours = stage.is_some();
            stages.extend(stage);
        } else if ours && !line.is_empty() && !line.starts_with('#') {
            let Some(stage) = stages.last_mut() else { continue };
            instruct(stage, word, rest).map_err(refuse)?;
        }
    }
    let tagged = |mut image: Image| {
        image.tag = TAGS.into_iter().find(|(name, _)| *name == image.name)?.1;
        Some(image)
    };
    Ok(stages.into_iter().filter_map(tagged).collect())
}

/// A new stage; `None` for the one that builds.
fn stage(rest: &str, before: &[Image]) -> Result<Option<Image>, String> {
    let words: Vec<_> = rest.split(' ').collect();
    let (from, name) = match words.as_slice() {
        [.., "AS", name] if *name == BUILD => return Ok(None),
        [from, "AS", name] => (*from, (*name).to_owned()),
        _ => return Err("a stage begins with FROM scratch (or a stage above) AS its name".to_owned()),
    };
    if from == "scratch" {
        return Ok(Some(Image {
            name,
            ..Image::default()
        }));
    }
    let above = before.iter().find(|stage| stage.name == from);
    let above = above.ok_or_else(|| format!("{from} is neither scratch nor a stage above"))?;
    Ok(Some(Image { name, ..above.clone() }))
}

fn instruct(stage: &mut Image, word: &str, rest: &str) -> Result<(), String> {
    match word {
        "COPY" => {
            let words: Vec<_> = rest.split(' ').collect();
            let ["--from=build", from, to] = words.as_slice() else {
                return Err("COPY --from=build /out/… /… is all that is known of COPY".to_owned());
            };
            let from = from
                .strip_prefix(OUT)
                .ok_or_else(|| format!("{from} is not below {OUT}"))?;
            stage.copies.push((from.to_owned(), (*to).to_owned()));
        }
        "USER" => rest.clone_into(&mut stage.config.user),
        "EXPOSE" => stage.config.ports.extend(rest.split(' ').map(str::to_owned)),
        "ENTRYPOINT" => {
            stage.config.entrypoint = serde_json::from_str(rest).map_err(|error| format!("ENTRYPOINT: {error}"))?;
        }
        _ => return Err(format!("{word} is not known; add it to dist/src/images.rs")),
    }
    Ok(())
}

impl Image {
    /// What pods name it by, with the registry that an image without one is taken to be of.
    pub fn reference(&self) -> String {
        format!("docker.io/skerry/{}:{}", self.name, self.tag)
    }

    /// Writes `<name>.tar` into `to`, of what is in `content`.
    pub fn assemble(&self, content: &Path, arch: Arch, to: &Path) -> anyhow::Result<PathBuf> {
        let mut entries = vec![];
        for (from, at) in &self.copies {
            collect(&content.join(from), at.trim_start_matches('/'), &mut entries)?;
        }
        fs::create_dir_all(to)?;
        let path = to.join(format!("{}.tar", self.name));
        let archive = oci::archive(&self.reference(), arch, &self.config, &entries)?;
        fs::write(&path, archive).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

fn collect(from: &Path, at: &str, entries: &mut Vec<Entry>) -> anyhow::Result<()> {
    let metadata = fs::metadata(from).with_context(|| from.display().to_string())?;
    if !metadata.is_dir() {
        let executable = at.starts_with("bin/");
        entries.push(Entry {
            path: at.to_owned(),
            executable,
            content: fs::read(from)?,
        });
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().context("a name that is not UTF-8")?;
        collect(&entry.path(), &format!("{at}/{name}"), entries)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dockerfile_describes_four_images_that_run_as_nobody_in_particular() {
        let dockerfile = fs::read_to_string(crate::root().join("dist/Dockerfile")).unwrap();
        let images = describe(&dockerfile).unwrap();
        let names: Vec<_> = images.iter().map(|image| image.name.as_str()).collect();
        assert_eq!(names, TAGS.map(|(name, _)| name));
        for image in &images {
            assert_eq!(image.config.user, "65532:65532");
            let program = image.config.entrypoint.first().unwrap();
            let copied: Vec<_> = image.copies.iter().map(|(_, to)| to.as_str()).collect();
            assert_eq!(copied, ["/etc", program]);
        }
        assert_eq!(images[0].config.ports, ["9000", "9090"]);
    }

    #[test]
    fn what_is_not_known_is_refused_by_its_line() {
        let refused = |text: &str| describe(text).unwrap_err().to_string();
        let error = refused("FROM rust AS build\nRUN x\nFROM scratch AS worker\nRUN y\n");
        assert!(error.contains("line 4") && error.contains("RUN"), "{error}");
        let error = refused("FROM debian AS worker\n");
        assert!(error.contains("debian"), "{error}");
        let error = refused("FROM scratch AS worker\nCOPY . .\n");
        assert!(error.contains("--from=build"), "{error}");
    }
}
