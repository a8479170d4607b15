//! How a command fails: one sentence, a hint, exit code 1. Wrong usage ends with exit code 2; most of it is clap's.

use std::{fmt::Display, io::Write as _, process::ExitCode};

/// What went wrong, and what helps.
#[derive(Debug)]
pub(crate) struct Failure {
    sentence: String,
    hint: String,
    code: u8,
}

impl Failure {
    pub(crate) fn new(sentence: impl Display, hint: impl Display) -> Self {
        Self {
            sentence: sentence.to_string(),
            hint: hint.to_string(),
            code: 1,
        }
    }

    /// What cannot be, and is.
    pub(crate) fn defect(sentence: impl Display) -> Self {
        Self::new(sentence, "this is a defect: please report it")
    }

    /// Wrong usage that only shows when arguments are seen together.
    pub(crate) fn usage(sentence: impl Display, hint: impl Display) -> Self {
        Self {
            code: 2,
            ..Self::new(sentence, hint)
        }
    }

    /// Says it on stderr.
    pub(crate) fn exit(&self) -> ExitCode {
        let mut stderr = std::io::stderr().lock();
        // Where stderr is closed there is nobody left to tell.
        let _ = writeln!(stderr, "error: {}", self.sentence);
        let _ = writeln!(stderr, " hint: {}", self.hint);
        ExitCode::from(self.code)
    }
}

/// Writes to stdout; a reader that went away (`skerry crds | head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(
            format!("stdout cannot be written: {error}"),
            "see whether the disk is full",
        )),
        _ => Ok(()),
    }
}
