//! What is committed goes through its target once, as do some inputs that are made of it; and nothing is left out anywhere.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::{collections::BTreeSet, fs};

use skerry_fuzz::{Came, TARGETS, campaign::seeds, corpus, mutate::Mutator};

/// The longest seed: reviewers can look at it.
const LONGEST: usize = 8 * 1024;

#[test]
fn each_target_has_seeds_and_takes_some_of_them() {
    for target in TARGETS {
        let seeds = seeds(target).expect(target.name);
        for (name, seed) in &seeds {
            assert!(seed.len() <= LONGEST, "{}/{name} has {} bytes", target.name, seed.len());
        }
        let came: Vec<_> = seeds.values().map(|seed| (target.run)(seed)).collect();
        let taken = came.iter().any(|came| matches!(came, Came::Taken(_)));
        assert!(taken, "no seed gets past the door of {}: {came:?}", target.name);
    }
}

#[test]
fn each_target_reads_what_is_made_of_its_seeds() {
    for target in TARGETS {
        let mut mutator = Mutator::new(seeds(target).unwrap().into_values().collect(), 1);
        for _ in 0..100 {
            (target.run)(&mutator.make());
        }
    }
}

#[test]
fn there_is_no_corpus_without_a_target_and_no_target_that_cargo_fuzz_does_not_know() {
    let names: BTreeSet<_> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let folders = fs::read_dir(corpus()).unwrap();
    let folders: BTreeSet<_> = folders
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(folders, names);
    let manifest = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/libfuzzer/Cargo.toml")).unwrap();
    let known = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    let known: BTreeSet<_> = known
        .filter(|name| *name != "skerry-libfuzzer")
        .map(str::to_owned)
        .collect();
    assert_eq!(known, names);
}
