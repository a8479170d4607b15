//! Which cores the control planes of a bench have, and which the bench.

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
    /// machine that is shared is a fifth slower for some minutes and faster for others; so both have the same of that.
    pub fn side_by_side(cores: usize) -> Self {
        Self {
            planes: halves(cores).into(),
            bench: Processors::All,
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
        half => [(0, half), (half, cores)].map(|(first, end)| Processors::These(format!("{first}-{}", end - 1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn these(cores: &str) -> Processors {
        Processors::These(cores.to_owned())
    }

    #[test]
    fn cores_are_halved() {
        assert_eq!(halves(1), [Processors::All, Processors::All]);
        assert_eq!(halves(2), [these("0-0"), these("1-1")]);
        assert_eq!(halves(5), [these("0-1"), these("2-4")]);
    }

    #[test]
    fn what_is_compared_has_as_much_of_the_machine_at_the_same_time() {
        let layout = Layout::side_by_side(4);
        assert_eq!(layout.planes, [these("0-1"), these("2-3")]);
        assert_eq!(layout.bench, Processors::All);
    }

    #[test]
    fn what_asks_takes_nothing_of_what_is_asked() {
        let layout = Layout::apart(4);
        assert_eq!(layout.planes, [these("0-1")]);
        assert_eq!(layout.bench, these("2-3"));
    }
}
