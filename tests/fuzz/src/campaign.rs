//! Runs one target on made inputs for a while, and notes each of them before it is read: whoever started this process finds
//! there what ended it, were it a panic, a signal or a lack of memory.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    time::{Duration, Instant},
};

use nix::sys::resource::{Resource, setrlimit};
use serde::{Deserialize, Serialize};

use crate::{Came, Target, corpus, mutate::Mutator};

/// What a process of a target may take: any input that fits a message is read in a small part of that.
const MEMORY: u64 = 2 * 1024 * 1024 * 1024;
/// The longest file that a target may write.
const FILE: u64 = 64 * 1024 * 1024;

/// What a campaign has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Inputs that were read.
    pub executions: u64,
    /// Of these, what was taken.
    pub taken: u64,
    /// The ways that inputs went, and how many went each.
    pub ways: BTreeMap<String, u64>,
    /// The time of all, in seconds.
    pub seconds: f64,
    /// The longest time of one, in seconds.
    pub slowest: f64,
}

/// Bounds this process, so that an input that costs too much ends it.
pub fn bound() -> nix::Result<()> {
    setrlimit(Resource::RLIMIT_AS, MEMORY, MEMORY)?;
    setrlimit(Resource::RLIMIT_FSIZE, FILE, FILE)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)
}

/// The committed inputs of a target, by the names of their files.
pub fn seeds(target: &Target) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut seeds = BTreeMap::new();
    for entry in std::fs::read_dir(corpus().join(target.name))? {
        let entry = entry?;
        seeds.insert(
            entry.file_name().to_string_lossy().into_owned(),
            std::fs::read(entry.path())?,
        );
    }
    Ok(seeds)
}

/// Runs a target for so long, each input noted in `note` before.
pub fn run(target: &Target, number: u64, time: Duration, note: &Path) -> io::Result<Summary> {
    let seeds: Vec<_> = seeds(target)?.into_values().collect();
    let mut mutator = Mutator::new(seeds.clone(), number);
    let (note, begun) = (File::create(note)?, Instant::now());
    let mut summary = Summary::default();
    let mut first = seeds.into_iter();
    while begun.elapsed() < time {
        let input = first.next().unwrap_or_else(|| mutator.make());
        note.write_all_at(&input, 0)?;
        note.set_len(input.len() as u64)?;
        let before = Instant::now();
        let came = (target.run)(&input);
        summary.slowest = summary.slowest.max(before.elapsed().as_secs_f64());
        summary.executions += 1;
        let taken = matches!(came, Came::Taken(_));
        summary.taken += u64::from(taken);
        let times = summary.ways.entry(came.way()).or_default();
        *times += 1;
        if *times == 1 {
            mutator.keep(input, taken);
        }
    }
    summary.seconds = begun.elapsed().as_secs_f64();
    Ok(summary)
}
