//! What a process costs, as the kernel counts it.

use procfs::{CurrentSI as _, KernelStats, process::Process as Entry};

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
        Self::of_id(process.pid()?)
    }

    /// Of a process by its id.
    pub(super) fn of_id(process: i32) -> Option<Self> {
        let entry = Entry::new(process).ok()?;
        Some(Self { entry })
    }

    /// Of this process.
    pub(super) fn own() -> Result<Self, Failure> {
        let entry = Entry::myself().map_err(|error| unreadable(&error))?;
        Ok(Self { entry })
    }

    /// Its id.
    pub(super) fn pid(&self) -> i32 {
        self.entry.pid()
    }

    /// Processor time so far, in seconds.
    pub(super) fn processor_seconds(&self) -> Result<f64, Failure> {
        let stat = self.entry.stat().map_err(|error| unreadable(&error))?;
        Ok(seconds(stat.utime + stat.stime))
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

/// Processor time of whatever ran on this machine so far, in seconds.
pub(super) fn machine_seconds() -> Result<f64, Failure> {
    let used = KernelStats::current().map_err(|error| unreadable(&error))?.total;
    let interrupts = used.irq.unwrap_or_default() + used.softirq.unwrap_or_default();
    Ok(seconds(used.user + used.nice + used.system + interrupts))
}

#[expect(clippy::cast_precision_loss, reason = "ticks of a machine fit")]
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / procfs::ticks_per_second() as f64
}

fn unreadable(error: &procfs::ProcError) -> Failure {
    Failure::new(
        format!("a process cannot be looked at: {error}"),
        "its log may say why it ended; see whether /proc is mounted",
    )
}
