//! What is measured side by side trades its halves of the cores, again and again. Of the cores of a shared machine one is slower
//! than another for minutes: so whoever is compared has the same of each.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow};
use nix::{
    errno::Errno,
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

/// Does `work`. Meanwhile whatever this process has started on one of these halves of the cores, itself or through others, is on
/// the other half every other time.
pub fn while_trading<T>(
    halves: [&Range<usize>; 2],
    every: Duration,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut traders = Traders::new(halves)?;
    thread::scope(|scope| {
        let (working, worked) = mpsc::channel::<()>();
        let trading = scope.spawn(move || {
            while worked.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                traders.trade()?;
            }
            anyhow::Ok(())
        });
        let done = work();
        drop(working);
        let traded = trading
            .join()
            .map_err(|_| anyhow!("trading halves of the cores ended"))?;
        let done = done?;
        traded.context("trading halves of the cores")?;
        Ok(done)
    })
}

/// One half of the cores, as whoever was started on it knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    First,
    Other,
}

struct Traders {
    first: CpuSet,
    other: CpuSet,
    /// Which half a process was started on.
    started_on: BTreeMap<Pid, Half>,
    traded: bool,
}

impl Traders {
    fn new([first, other]: [&Range<usize>; 2]) -> anyhow::Result<Self> {
        Ok(Self {
            first: set(first)?,
            other: set(other)?,
            started_on: BTreeMap::new(),
            traded: false,
        })
    }

    /// Each is where it was not before. What has begun since the last time joins those that were started where it was.
    fn trade(&mut self) -> anyhow::Result<()> {
        let mut there = Vec::new();
        started_by(Pid::this(), &mut there);
        self.started_on.retain(|process, _| there.contains(process));
        for process in there {
            if !self.started_on.contains_key(&process)
                && let Some(half) = self.half_of(process)?
            {
                self.started_on.insert(process, half);
            }
        }
        self.traded = !self.traded;
        for (process, started_on) in &self.started_on {
            let cores = if (*started_on == Half::First) == self.traded {
                &self.other
            } else {
                &self.first
            };
            // A thread that another begins meanwhile is where that was, and follows the next time.
            for thread in threads(*process) {
                still_there(sched_setaffinity(thread, cores))?;
            }
        }
        Ok(())
    }

    fn half_of(&self, process: Pid) -> anyhow::Result<Option<Half>> {
        let cores = still_there(sched_getaffinity(process))?;
        Ok(cores.and_then(|cores| match cores {
            cores if cores == self.first => Some(Half::First),
            cores if cores == self.other => Some(Half::Other),
            _ => None,
        }))
    }
}

fn set(cores: &Range<usize>) -> anyhow::Result<CpuSet> {
    let mut set = CpuSet::new();
    for core in cores.clone() {
        set.set(core).with_context(|| format!("core {core}"))?;
    }
    Ok(set)
}

/// Nothing of what has ended meanwhile.
fn still_there<T>(asked: nix::Result<T>) -> nix::Result<Option<T>> {
    match asked {
        Err(Errno::ESRCH) => Ok(None),
        asked => asked.map(Some),
    }
}

/// All processes that this one has started, and these.
fn started_by(process: Pid, found: &mut Vec<Pid>) {
    for thread in threads(process) {
        let of_thread = fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).unwrap_or_default();
        for child in of_thread.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            found.push(Pid::from_raw(child));
            started_by(Pid::from_raw(child), found);
        }
    }
}

/// The threads of a process, none if it has ended.
fn threads(process: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let names = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    names.map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Child};

    use super::*;
    use crate::{
        process::until,
        processors::{Processors, list},
    };

    const PATIENCE: Duration = Duration::from_secs(30);

    fn wait_on(cores: &Range<usize>) -> Child {
        let mut waiting = Processors::These(cores.clone()).command(Path::new("sleep"));
        waiting.arg("60").spawn().unwrap()
    }

    fn cores_of(process: &Child) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        list.unwrap().trim().to_owned()
    }

    /// Waits until these two are on these cores.
    fn wait_until(processes: [&Child; 2], cores: [&str; 2]) -> anyhow::Result<()> {
        until(PATIENCE, || Ok((processes.map(cores_of) == cores).then_some(())))
    }

    #[test]
    fn whoever_was_started_on_a_half_is_on_either_in_turn_and_nobody_else_is() {
        let cores = thread::available_parallelism().unwrap().get();
        if cores < 2 {
            // There are no halves.
            return;
        }
        let (first, other) = (0..1, 1..2);
        let [mut a, mut b] = [&first, &other].map(wait_on);
        let mut elsewhere = wait_on(&(0..2));
        wait_until([&a, &b], ["0", "1"]).unwrap();
        until(PATIENCE, || Ok((cores_of(&elsewhere) == list(&(0..2))).then_some(()))).unwrap();
        let mut late = None;
        while_trading([&first, &other], Duration::from_millis(250), || {
            wait_until([&a, &b], ["1", "0"])?;
            // What is started while they are traded goes with those that were started where it was.
            let late = late.insert(wait_on(&first));
            wait_until([&a, late], ["0", "0"])?;
            wait_until([&a, late], ["1", "1"])
        })
        .unwrap();
        assert_eq!(cores_of(&elsewhere), list(&(0..2)));
        for process in [&mut a, &mut b, &mut elsewhere].into_iter().chain(&mut late) {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    #[test]
    fn what_fails_meanwhile_is_told() {
        let halves = [&(0..1), &(1..2)];
        let failed = while_trading::<()>(halves, PATIENCE, || Err(anyhow!("no figure")));
        assert_eq!(failed.unwrap_err().to_string(), "no figure");
    }
}
