//! Ports for whoever starts a process and has to tell it where to listen.

use std::{
    io::{Error, ErrorKind},
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    sync::{
        LazyLock,
        atomic::{AtomicU16, Ordering::Relaxed},
    },
};

/// Where they are looked for. By default no system gives these to a connection by itself, as it does from 32768 (Linux) or
/// 49152 (RFC 6335, macOS) on: what is free there is free still when the process comes to it. Node ports begin at 30000.
const RANGE: Range<u16> = 20_000..30_000;

/// A port of 127.0.0.1 that nobody listens on, another one each time.
///
/// # Errors
///
/// All of them are taken, or loopback does not work.
pub fn free_port() -> Result<u16, Error> {
    // Other processes look for theirs at the same time, so that each begins somewhere else.
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(rand::random()));
    let span = RANGE.end - RANGE.start;
    for _ in RANGE {
        let port = RANGE.start + NEXT.fetch_add(1, Relaxed) % span;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AddrInUse.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_port_is_another_one_that_no_connection_has() {
        let ports: BTreeSet<u16> = (0..50).map(|_| free_port().expect("ports are free")).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| RANGE.contains(port)), "{ports:?}");
    }
}
