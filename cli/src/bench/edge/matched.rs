//! What became of edits: which were acknowledged and after how long, and what nodes hold in the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::orders::{Held, Stored};

/// An edit that the API server took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    /// The resource.
    pub(super) name: String,
    /// The generation that the edit made.
    pub(super) generation: i64,
    /// When it was sent.
    pub(super) sent: Duration,
    /// When the API server had answered: its event was out by then.
    pub(super) answered: Duration,
}

/// How edits reached the nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reached {
    /// Edits that no node has acknowledged, itself or a newer one in its place.
    pub(super) never: usize,
    /// From the first edit that was sent to the last acknowledgement, in seconds.
    pub(super) seconds: f64,
    /// For each edit the seconds from the API server's answer to the acknowledgement, sorted.
    pub(super) from_answer: Vec<f64>,
    /// The same, from when it was sent.
    pub(super) from_sent: Vec<f64>,
}

/// Finds the acknowledgement of each edit: the first of its generation or a newer one, since only the newest is sent.
pub(super) fn reached(edits: &[Edit], stored: &BTreeMap<String, Vec<Stored>>) -> Reached {
    let mut reached = Reached::default();
    let first = edits.iter().map(|edit| edit.sent).min().unwrap_or_default();
    let mut last = first;
    for edit in edits {
        let mut versions = stored.get(&edit.name).into_iter().flatten();
        let Some(stored) = versions.find(|stored| stored.generation >= edit.generation) else {
            reached.never += 1;
            continue;
        };
        last = last.max(stored.at);
        let wait = |since: Duration| stored.at.saturating_sub(since).as_secs_f64();
        reached.from_answer.push(wait(edit.answered));
        reached.from_sent.push(wait(edit.sent));
    }
    reached.seconds = last.saturating_sub(first).as_secs_f64();
    reached.from_answer.sort_by(f64::total_cmp);
    reached.from_sent.sort_by(f64::total_cmp);
    reached
}

/// How what nodes hold differs from what was declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// Objects that their node does not hold.
    pub(super) lost: usize,
    /// Objects that their node holds as they were before: of another generation, or of a resource that is gone.
    pub(super) stale: usize,
    /// Objects that a node holds and should not.
    pub(super) extra: usize,
}

/// Compares what nodes should hold with what they hold.
pub(super) fn difference(wanted: &[Held], held: &[Held]) -> Difference {
    fn place(held: &Held) -> (&str, &str) {
        (&held.node, &held.name)
    }
    let holds: BTreeMap<_, _> = held.iter().map(|held| (place(held), held)).collect();
    let mut difference = Difference::default();
    for wanted in wanted {
        match holds.get(&place(wanted)) {
            None => difference.lost += 1,
            Some(held) if *held != wanted => difference.stale += 1,
            Some(_) => {}
        }
    }
    let places: BTreeSet<_> = wanted.iter().map(place).collect();
    difference.extra = holds.keys().filter(|place| !places.contains(*place)).count();
    difference
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(generation: i64, sent: u64) -> Edit {
        Edit {
            name: "d".to_owned(),
            generation,
            sent: Duration::from_secs(sent),
            answered: Duration::from_secs(sent + 1),
        }
    }

    fn stored(versions: &[(i64, u64)]) -> BTreeMap<String, Vec<Stored>> {
        let stored = versions.iter().map(|(generation, at)| Stored {
            generation: *generation,
            at: Duration::from_secs(*at),
        });
        [("d".to_owned(), stored.collect())].into()
    }

    #[test]
    fn an_edit_is_acknowledged_with_its_generation_or_a_newer_one_in_its_place() {
        let edits = [edit(2, 10), edit(3, 11), edit(4, 12)];
        let reached = reached(&edits, &stored(&[(2, 13), (4, 15)]));
        assert_eq!(reached.never, 0);
        assert_eq!(reached.from_sent, [3.0, 3.0, 4.0]);
        assert_eq!(reached.from_answer, [2.0, 2.0, 3.0]);
        assert!((reached.seconds - 5.0).abs() < f64::EPSILON);
    }

    #[test]
    fn an_edit_that_no_node_has_stored_is_counted() {
        let edits = [edit(2, 10), edit(3, 11)];
        assert_eq!(reached(&edits, &stored(&[(2, 12)])).never, 1);
        assert_eq!(reached(&edits, &BTreeMap::new()).never, 2);
    }

    #[test]
    fn what_is_missing_old_or_too_much_is_told_apart() {
        let held = |node: &str, name: &str, uid: &str, generation| Held {
            node: node.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            generation,
        };
        let wanted = [
            held("n", "right", "u", 2),
            held("n", "old", "u", 2),
            held("n", "made-again", "v", 1),
            held("n", "lost", "u", 1),
            held("n", "elsewhere", "u", 1),
        ];
        let there = [
            held("n", "right", "u", 2),
            held("n", "old", "u", 1),
            held("n", "made-again", "u", 1),
            held("m", "elsewhere", "u", 1),
        ];
        let found = Difference {
            lost: 2,
            stale: 2,
            extra: 1,
        };
        assert_eq!(difference(&wanted, &there), found);
        assert_eq!(difference(&wanted, &wanted), Difference::default());
    }
}
