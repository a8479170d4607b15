//! What runs have shown: kept in `target/cluster/`, a file for each program and each place where it ran.
//!
//! With each result stands of which sources it is. Where those have changed since, it says nothing any more.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::sections::{PLACES, SECTIONS, Section};

/// A scenario that was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The path of its test, or its sentence.
    pub name: String,
    /// Whether it held.
    pub ok: bool,
}

/// A result as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    shown: Shown,
    #[serde(default)]
    sources: String,
}

/// What is known of a scenario at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It held.
    Held,
    /// It did not.
    Failed,
    /// Its sources have changed since it was run.
    Stale,
}

/// By place and scenario.
pub type Results = BTreeMap<&'static str, BTreeMap<String, Outcome>>;

/// What scenarios are about, and what stands in for Kubernetes in some of them.
const PRODUCT: [&str; 8] = [
    "charts/skerry",
    "cli/src",
    "crds/src",
    "edge/src",
    "globalmanager/src",
    "localcontroller/src",
    "sandbox/src",
    "workloads/src",
];

/// How many scenarios may be run once more. More that fail at once have a reason that is not the machine's.
const MOST_TWICE: usize = 8;

/// A digest of the sources of each program, and of the product's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources(BTreeMap<String, String>);

impl Sources {
    /// Of all programs, as their sources are now. Taken before anything is built of them: what is changed meanwhile is then
    /// taken for older than it is, never for newer.
    pub fn now() -> anyhow::Result<Self> {
        let all = SECTIONS.iter().map(|section| {
            let digest = digest(&skerry_dist::root(), &[section.sources, &PRODUCT].concat())?;
            Ok((section.program.to_owned(), digest))
        });
        all.collect::<anyhow::Result<_>>().map(Self)
    }

    fn of(&self, program: &str) -> &str {
        self.0.get(program).map(String::as_str).unwrap_or_default()
    }
}

/// A digest of all files in these folders: their names and what is in them.
fn digest(root: &Path, folders: &[&str]) -> anyhow::Result<String> {
    let mut files = vec![];
    for folder in folders {
        gather(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut digest = Sha256::new();
    for file in &files {
        let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
        let content = fs::read(file).with_context(|| name.clone())?;
        digest.update(format!("{name} {}\n", content.len()));
        digest.update(content);
    }
    Ok(skerry_dist::hex(&digest.finalize()))
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            gather(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// What was run, and where.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The test program, or the tour.
    pub program: &'a str,
    /// The sandbox, or which Kubernetes.
    pub place: &'a str,
    /// Whether all of it ran. Otherwise what is known of the rest stays.
    pub whole: bool,
    /// What all programs were built of.
    pub sources: &'a Sources,
}

impl Run<'_> {
    /// Runs a test program, passes on what it says, and keeps the results; whether all held.
    pub fn of(&self, program: &mut Command) -> anyhow::Result<bool> {
        let Ran { shown, good, .. } = Ran::of(program)?;
        self.keep(shown)?;
        Ok(good)
    }

    /// As [`Run::of`], with a program in parts that run side by side, and what did not hold once more, by a command that is
    /// given the names; whether all held by then, and what of it only then.
    pub fn of_some_twice(
        &self,
        parts: &mut [Command],
        again: impl FnOnce(&[String]) -> Command,
    ) -> anyhow::Result<(bool, Vec<String>)> {
        let first = Ran::side_by_side(parts)?;
        let failed: Vec<_> = first.failed().map(str::to_owned).collect();
        if failed.is_empty() {
            self.keep(first.shown)?;
            return Ok((first.good, vec![]));
        }
        if failed.len() > MOST_TWICE {
            println!("{}: too many for once more: {}", self.program, failed.join(", "));
            self.keep(first.shown)?;
            return Ok((false, vec![]));
        }
        println!("{}: once more: {}", self.program, failed.join(", "));
        let second = Ran::of(&mut again(&failed))?;
        let all = first.with(second);
        let good = all.good;
        let late = failed
            .into_iter()
            .filter(|name| all.failed().all(|failed| failed != name));
        let late = late.collect();
        self.keep(all.shown)?;
        Ok((good, late))
    }

    /// Keeps its results. Of a whole run there have to be some.
    pub fn keep(&self, shown: Vec<Shown>) -> anyhow::Result<()> {
        let Self { program, place, .. } = self;
        ensure!(
            !(self.whole && shown.is_empty()),
            "{program} on {place} has told of no scenario at all"
        );
        let file = kept(program, place);
        let known = if self.whole { vec![] } else { read(&file)? };
        let all = self.added(known, shown);
        fs::create_dir_all(file.parent().context("results have a folder")?)?;
        fs::write(&file, serde_json::to_vec_pretty(&all)?).with_context(|| file.display().to_string())
    }

    /// What is known, with what this run has shown.
    fn added(&self, mut known: Vec<Kept>, shown: Vec<Shown>) -> Vec<Kept> {
        known.retain(|kept| shown.iter().all(|shown| shown.name != kept.shown.name));
        let sources = self.sources.of(self.program);
        known.extend(shown.into_iter().map(|shown| Kept {
            shown,
            sources: sources.to_owned(),
        }));
        known
    }
}

/// What came of a test program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ran {
    shown: Vec<Shown>,
    /// Whether it says that all is well.
    good: bool,
    /// Whether it came to its end: one that did not has not told of what it did not come to.
    ended: bool,
}

impl Ran {
    /// Runs it, and passes on what it says.
    fn of(program: &mut Command) -> anyhow::Result<Self> {
        let mut child = program.stdout(Stdio::piped()).spawn()?;
        let said = child.stdout.take().context("its output is piped")?;
        let (mut shown, mut ended) = (Vec::new(), false);
        for line in BufReader::new(said).lines() {
            let line = line?;
            println!("{line}");
            shown.extend(told(&line));
            ended |= line.starts_with("test result: ");
        }
        let good = child.wait()?.success();
        Ok(Self { shown, good, ended })
    }

    /// Runs parts of one program.
    fn side_by_side(parts: &mut [Command]) -> anyhow::Result<Self> {
        let ran = thread::scope(|scope| {
            let running: Vec<_> = parts.iter_mut().map(|part| scope.spawn(|| Self::of(part))).collect();
            let ended = running.into_iter().map(thread::ScopedJoinHandle::join);
            ended
                .map(|ended| ended.unwrap_or_else(|_| bail!("a thread of a test program ended")))
                .collect::<anyhow::Result<Vec<_>>>()
        })?;
        Ok(Self {
            good: ran.iter().all(|ran| ran.good),
            ended: ran.iter().all(|ran| ran.ended),
            shown: ran.into_iter().flat_map(|ran| ran.shown).collect(),
        })
    }

    fn failed(&self) -> impl Iterator<Item = &str> {
        let failed = self.shown.iter().filter(|shown| !shown.ok);
        failed.map(|shown| shown.name.as_str())
    }

    /// With what a second run of what failed has shown. What is not in that failed for good.
    fn with(mut self, second: Self) -> Self {
        for shown in second.shown {
            if let Some(first) = self.shown.iter_mut().find(|first| first.name == shown.name) {
                *first = shown;
            }
        }
        let good = self.ended && second.good && self.shown.iter().all(|shown| shown.ok);
        Self { good, ..self }
    }
}

/// What a line of a test program's output tells.
fn told(line: &str) -> Option<Shown> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let ok = match outcome.trim() {
        "ok" => true,
        "FAILED" => false,
        _ => return None,
    };
    let name = name.to_owned();
    Some(Shown { name, ok })
}

/// Kept results; none where none were kept.
fn read(file: &Path) -> anyhow::Result<Vec<Kept>> {
    if !file.exists() {
        return Ok(vec![]);
    }
    serde_json::from_slice(&fs::read(file)?).with_context(|| file.display().to_string())
}

fn kept(program: &str, place: &str) -> PathBuf {
    skerry_dist::root().join(format!("target/cluster/{program}-{place}.json"))
}

/// What is known of a program's scenarios, as its sources are now.
pub fn known(section: &Section, sources: &Sources) -> anyhow::Result<Results> {
    let now = sources.of(section.program);
    let mut results = Results::new();
    for place in PLACES {
        let kept = read(&kept(section.program, place))?.into_iter();
        results.insert(
            place,
            kept.map(|kept| (kept.shown.name.clone(), outcome(&kept, now)))
                .collect(),
        );
    }
    Ok(results)
}

fn outcome(kept: &Kept, now: &str) -> Outcome {
    if kept.sources != now {
        Outcome::Stale
    } else if kept.shown.ok {
        Outcome::Held
    } else {
        Outcome::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, ok: bool) -> Shown {
        let name = name.to_owned();
        Shown { name, ok }
    }

    fn sources(digest: &str) -> Sources {
        Sources([("drift".to_owned(), digest.to_owned())].into())
    }

    #[test]
    fn lines_of_a_test_program_tell_what_held() {
        assert_eq!(told("test drift::a_b ... ok"), Some(shown("drift::a_b", true)));
        assert_eq!(told("test drift::a_b ... FAILED"), Some(shown("drift::a_b", false)));
        assert_eq!(told("test result: ok. 3 passed"), None);
        assert_eq!(told("test drift::a_b ... ignored, no plane"), None);
    }

    #[test]
    fn what_held_once_more_holds_and_what_was_not_run_again_does_not() {
        let ran = |good, all: &[(&str, bool)]| {
            let shown = all.iter().map(|(name, ok)| shown(name, *ok)).collect();
            let ended = true;
            Ran { shown, good, ended }
        };
        let first = ran(false, &[("a", true), ("b", false), ("c", false)]);
        for (second, all) in [
            (
                ran(true, &[("b", true), ("c", true)]),
                ran(true, &[("a", true), ("b", true), ("c", true)]),
            ),
            (
                ran(false, &[("b", true), ("c", false)]),
                ran(false, &[("a", true), ("b", true), ("c", false)]),
            ),
            // It ended before it came to all of them, or after.
            (
                ran(true, &[("b", true)]),
                ran(false, &[("a", true), ("b", true), ("c", false)]),
            ),
            (
                ran(false, &[("b", true), ("c", true)]),
                ran(false, &[("a", true), ("b", true), ("c", true)]),
            ),
        ] {
            assert_eq!(first.clone().with(second), all);
        }
        let ended_early = Ran { ended: false, ..first };
        let second = ran(true, &[("b", true), ("c", true)]);
        assert!(!ended_early.with(second).good, "what it did not come to is not known");
    }

    #[test]
    fn a_result_is_of_the_sources_that_its_run_was_built_of() {
        let (old, new) = (sources("old"), sources("new"));
        let run = |sources| Run {
            program: "drift",
            place: "1.34",
            whole: false,
            sources,
        };
        let before = run(&old).added(vec![], vec![shown("a", true), shown("b", true), shown("c", true)]);
        let after = run(&new).added(before, vec![shown("b", true), shown("c", false)]);
        let now: Vec<_> = after
            .iter()
            .map(|kept| (kept.shown.name.as_str(), outcome(kept, "new")))
            .collect();
        assert_eq!(
            now,
            [("a", Outcome::Stale), ("b", Outcome::Held), ("c", Outcome::Failed)]
        );
        let unsigned: Vec<Kept> = serde_json::from_str(r#"[{"name": "a", "ok": true}]"#).unwrap();
        assert_eq!(outcome(&unsigned[0], "new"), Outcome::Stale);
    }

    #[test]
    fn a_whole_run_that_tells_of_nothing_is_none() {
        let sources = sources("now");
        let run = Run {
            program: "drift",
            place: "1.34",
            whole: true,
            sources: &sources,
        };
        let refused = run.keep(vec![]).unwrap_err().to_string();
        assert_eq!(refused, "drift on 1.34 has told of no scenario at all");
    }

    #[test]
    fn a_digest_is_of_names_and_contents() {
        let root = std::env::temp_dir().join(format!("skerry-sources-{}", std::process::id()));
        let file = |name: &str, text: &str| {
            let file = root.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let now = || digest(&root, &["a", "b"]).unwrap();
        file("a/deep/one.rs", "one");
        file("b/two.rs", "two");
        let first = now();
        assert_eq!(now(), first);
        file("b/two.rs", "2");
        let second = now();
        assert_ne!(second, first);
        fs::rename(root.join("b/two.rs"), root.join("b/three.rs")).unwrap();
        assert!(![first, second].contains(&now()));
        fs::remove_dir_all(&root).unwrap();
        assert!(digest(&root, &["a"]).is_err());
    }

    #[test]
    fn every_program_has_sources() {
        let Sources(all) = Sources::now().unwrap();
        let digests: std::collections::BTreeSet<_> = all.values().collect();
        assert_eq!((all.len(), digests.len()), (SECTIONS.len(), SECTIONS.len()));
    }
}
