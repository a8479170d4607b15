//! What may differ between the sandbox and Kubernetes, and why. At most [`LIMIT`] entries: whatever else differs is a
//! defect of the sandbox. An entry that nothing needs any more fails the run.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::compare::Difference;

/// How many entries there may be.
const LIMIT: usize = 20;

/// A kind of difference that is on purpose.
struct Entry {
    what: &'static str,
    reason: &'static str,
    matches: fn(&Difference) -> bool,
}

/// All entries.
const TABLE: &[Entry] = &[];

/// The table, and how often each entry was needed.
pub struct Allowances {
    used: Vec<AtomicUsize>,
}

impl Allowances {
    /// None was needed yet.
    pub fn new() -> Self {
        assert!(
            TABLE.len() <= LIMIT,
            "{} differences are allowed, of at most {LIMIT}",
            TABLE.len()
        );
        Self {
            used: TABLE.iter().map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// Whether a difference is allowed.
    pub fn allow(&self, difference: &Difference) -> bool {
        let found = TABLE.iter().position(|entry| (entry.matches)(difference));
        if let Some(used) = found.and_then(|index| self.used.get(index)) {
            used.fetch_add(1, Ordering::Relaxed);
        }
        found.is_some()
    }

    /// Tells what was needed; false if something was not.
    pub fn all_are_needed(&self) -> bool {
        let mut good = true;
        println!("allowed differences: {} of at most {LIMIT}", TABLE.len());
        for (entry, used) in TABLE.iter().zip(&self.used) {
            let used = used.load(Ordering::Relaxed);
            println!("  {used:5} {}: {}", entry.what, entry.reason);
            if used == 0 {
                println!("        nothing needs this entry any more: remove it");
                good = false;
            }
        }
        good
    }
}
