//! Which processors something has, beside what else there is.

use std::{ops::Range, path::Path, process::Command};

/// Which processors something has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processors {
    /// All, as whoever starts it.
    All,
    /// All, and nobody is interrupted because another has something to do: where dozens of programs wake each other, that took a
    /// seventh of their time. And a program of Go is on one processor at a time: each that wakes another thread of its own for
    /// what is due next only makes the others wait for one more.
    TakingTurns,
    /// All, and a third of what others have who want the same at once.
    Yielding,
    /// These alone.
    These(Range<usize>),
}

impl Processors {
    /// A command that has these, and all that it starts.
    pub fn command(&self, program: &Path) -> Command {
        let through = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        };
        let mut command = match self {
            Self::All => return Command::new(program),
            Self::TakingTurns => {
                let mut command = through("chrt", &["--batch", "0"]);
                command.env("GOMAXPROCS", "1");
                command
            }
            Self::Yielding => through("nice", &["--adjustment=5"]),
            Self::These(cores) => through("taskset", &["--cpu-list", &list(cores)]),
        };
        command.arg(program);
        command
    }
}

/// These processors, as `taskset` names them.
pub fn list(cores: &Range<usize>) -> String {
    format!("{}-{}", cores.start, cores.end.saturating_sub(1))
}
