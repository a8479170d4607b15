//! The memory that handshakes hold that do not go on: measured of this process, so it has a process of its own.

#![cfg(target_os = "linux")]
// A set-up that fails is the test's verdict.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod common;
#[path = "common/memory.rs"]
mod memory;
#[path = "attacks/net.rs"]
#[allow(dead_code, reason = "no test uses all of it")]
mod net;

use std::sync::Arc;

use memory::{MOST, from, resident};
use net::{Wire, World};
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};
use skerry_edge::{identity::MANAGER, limits};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    time::{Duration, timeout},
};

/// Sends as much as is taken without anything in return.
async fn press(wire: &mut Wire<DuplexStream>, bytes: &[u8]) {
    let _ = timeout(Duration::from_millis(1), wire.0.write_all(bytes)).await;
}

/// The largest record there is.
fn record(kind: u8, payload: usize) -> Vec<u8> {
    let mut record = vec![kind, 3, 3];
    record.extend(u16::try_from(payload).unwrap().to_be_bytes());
    record.resize(5 + payload, 0);
    record
}

/// Half a handshake, and then a record that does not end.
async fn half(wire: &mut Wire<DuplexStream>, config: Arc<ClientConfig>) {
    let mut client = ClientConnection::new(config, ServerName::try_from(MANAGER).unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    wire.0.write_all(&hello).await.unwrap();
    assert!(
        wire.0.read(&mut [0; net::PIPE]).await.unwrap() > 0,
        "the manager answers"
    );
    let record = record(23, 16 << 10);
    press(wire, &record[..record.len() - 1]).await;
}

#[tokio::test(start_paused = true)]
async fn half_handshakes_hold_little_memory() {
    let world = World::tls();
    let (before, mut held) = (resident(), Vec::new());
    for connection in 0..limits::UNPROVEN {
        let mut wire = world.dial_from(from(connection));
        if connection % 2 == 0 {
            let hello = record(22, 16 << 10);
            press(&mut wire, &hello[..hello.len() - 1]).await;
        } else {
            half(&mut wire, world.stranger()).await;
        }
        held.push(wire);
    }
    assert_eq!(world.hub.snapshot().unproven, limits::UNPROVEN);
    let growth = resident().saturating_sub(before);
    assert!(
        growth < MOST,
        "{} half handshakes hold {} MiB",
        held.len(),
        growth >> 20
    );
    assert!(growth > limits::UNPROVEN * 4096, "{growth} bytes: nothing was measured");
    // For so long, and no longer.
    tokio::time::sleep(limits::HANDSHAKE).await;
    while world.hub.snapshot().unproven > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut node = world.dial_tls(world.certified("edge-1")).await.unwrap();
    node.begin("edge-1").await;
}
