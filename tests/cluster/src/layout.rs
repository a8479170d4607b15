//! Which cores the control planes of a bench have, and which the bench.

use std::ops::Range;

use crate::processors::Processors;

/// Who has which processors.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// Each control plane.
    pub planes: Vec<Processors>,
    /// The bench, and all that it starts.
    pub bench: Processors,
}

impl Layout {
    /// Two control planes with half of the cores each, and a bench that is everywhere: for what is measured on both at once. A
    /// machine that is shared is a fifth slower for some minutes and faster for others; so both have the same of that, where they
    /// trade their halves meanwhile ([`crate::trading`]).
    pub fn side_by_side(cores: usize) -> Self {
        Self {
            planes: halves(cores).into(),
            bench: Processors::All,
        }
    }

    /// The halves that the control planes of such a bench have.
    pub fn halves(&self) -> Option<[&Range<usize>; 2]> {
        match self.planes.as_slice() {
            [Processors::These(first), Processors::These(other)] => Some([first, other]),
            _ => None,
        }
    }

    /// A control plane and a bench that have nothing of each other: for what an API server takes beside a manager and its nodes,
    /// which have machines of their own elsewhere.
    pub fn apart(cores: usize) -> Self {
        let [plane, bench] = halves(cores);
        Self {
            planes: vec![plane],
            bench,
        }
    }
}

/// So many cores in two halves; one cannot be halved.
fn halves(cores: usize) -> [Processors; 2] {
    match cores / 2 {
        0 => [Processors::All, Processors::All],
        half => [(0, half), (half, cores)].map(|(first, end)| Processors::These(first..end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_halved() {
        assert_eq!(halves(1), [Processors::All, Processors::All]);
        assert_eq!(halves(2), [Processors::These(0..1), Processors::These(1..2)]);
        assert_eq!(halves(5), [Processors::These(0..2), Processors::These(2..5)]);
    }

    #[test]
    fn what_is_compared_has_as_much_of_the_machine_at_the_same_time() {
        let layout = Layout::side_by_side(4);
        assert_eq!(layout.planes, [Processors::These(0..2), Processors::These(2..4)]);
        assert_eq!(layout.halves(), Some([&(0..2), &(2..4)]));
        assert_eq!(layout.bench, Processors::All);
    }

    #[test]
    fn what_asks_takes_nothing_of_what_is_asked() {
        let layout = Layout::apart(4);
        assert_eq!(layout.planes, [Processors::These(0..2)]);
        assert_eq!(layout.halves(), None);
        assert_eq!(layout.bench, Processors::These(2..4));
    }
}
