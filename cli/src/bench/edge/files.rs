//! Open files: each connection is one, in the process of nodes and in the manager, and both have the limits of the bench.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::failure::Failure;

/// What a process opens beside its connections to nodes, and more.
const OTHERS: u64 = 200;

/// Allows this process, and those that it starts, as many open files as it may have; whether one
/// of them can have so many connections.
pub(super) fn raise(connections: u32) -> Result<(), Failure> {
    let unreadable = |error: nix::Error| Failure::new(format!("the limit of open files: {error}"), "see `ulimit -n`");
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(unreadable)?;
    let wanted = u64::from(connections) + OTHERS;
    if hard < wanted {
        return Err(Failure::new(
            format!("{connections} connections need {wanted} open files in a process, and {hard} is the limit"),
            "raise it (`ulimit -Hn`), or measure with fewer: --connections, --storm, --services, --nodes",
        ));
    }
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(unreadable)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_low_is_told_before_anything_is_measured() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        // Where there is no limit to speak of, none can be too low.
        if let Ok(too_many) = u32::try_from(hard) {
            assert!(raise(too_many).is_err());
        }
        assert!(raise(1).is_ok());
    }
}
