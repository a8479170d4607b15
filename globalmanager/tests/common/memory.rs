//! What those hold who have proven nothing: measured of this process, so each test that does has a process of its own.

use std::fs;

use skerry_edge::limits;

/// What `docs/edge-limits.md` says.
pub(crate) const MOST: usize = 130 << 20;

/// Bytes of memory that this process has.
pub(crate) fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

pub(crate) fn from(connection: usize) -> [u8; 4] {
    [
        10,
        9,
        0,
        u8::try_from(connection / limits::UNPROVEN_PER_ADDRESS).unwrap(),
    ]
}
