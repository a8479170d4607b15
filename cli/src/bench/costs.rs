//! What a process costs, as the kernel counts it.

use procfs::process::Process as Entry;

use crate::{failure::Failure, process::Process};

/// The costs of one process.
pub(super) struct Costs {
    entry: Entry,
}

/// Resident memory in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Now.
    pub(super) resident: f64,
    /// At most, so far.
    pub(super) peak: f64,
}

impl Costs {
    /// Of a process that runs; nothing where it has ended.
    pub(super) fn of(process: &Process) -> Option<Self> {
        let entry = Entry::new(process.pid()?).ok()?;
        Some(Self { entry })
    }

    /// Its id.
    pub(super) fn pid(&self) -> i32 {
        self.entry.pid()
    }

    /// Processor time so far, in seconds.
    pub(super) fn processor_seconds(&self) -> Result<f64, Failure> {
        let stat = self.entry.stat().map_err(|error| unreadable(&error))?;
        #[expect(clippy::cast_precision_loss, reason = "ticks of a process fit")]
        let ticks = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        Ok(ticks(stat.utime + stat.stime))
    }

    /// Resident memory.
    pub(super) fn memory(&self) -> Result<Memory, Failure> {
        let status = self.entry.status().map_err(|error| unreadable(&error))?;
        #[expect(clippy::cast_precision_loss, reason = "sizes of a process fit")]
        let bytes = |kibibytes: Option<u64>| kibibytes.unwrap_or_default() as f64 * 1024.0;
        Ok(Memory {
            resident: bytes(status.vmrss),
            peak: bytes(status.vmhwm),
        })
    }
}

fn unreadable(error: &procfs::ProcError) -> Failure {
    Failure::new(
        format!("a process cannot be looked at: {error}"),
        "its log may say why it ended; see whether /proc is mounted",
    )
}
