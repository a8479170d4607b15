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
#[path = "attacks/wire.rs"]
#[allow(dead_code, reason = "no test uses all of it")]
mod wire;

use std::{process::Command, sync::Arc};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use memory::{MOST, from, resident};
use net::World;
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};
use skerry_crds::names::identity::AUTHORITY;
use skerry_edge::{
    identity::{JOIN, MANAGER, Revocations},
    limits,
};
use skerry_globalmanager::{
    identity::{Identity, Terms},
    metrics::Metrics,
};
use skerry_sandbox::ApiServer;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    time::{Duration, timeout},
};
use tokio_rustls::TlsConnector;
use wire::Wire;

/// A manager that serves nodes over TLS, those that are to join, too.
async fn serving() -> World {
    let (world, net, stop) = World::new();
    let server = ApiServer::new();
    let field = |name: &str, text: &str| (name.to_owned(), ByteString(text.as_bytes().to_vec()));
    let fields = [
        field("tls.crt", world.authority.pem()),
        field("tls.key", &world.authority.key_pem()),
    ];
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(AUTHORITY.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(fields.into()),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::namespaced(server.client(), "default");
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let identity = Identity {
        client: server.client(),
        watches: server.client(),
        namespace: "default".to_owned(),
        cluster: "cluster".to_owned(),
        terms: Terms::default(),
        metrics: Metrics::new(),
    };
    world.hub.revoke(Revocations::default());
    let hub = world.hub.clone();
    tokio::spawn(async move { identity.serve_on(hub, net, stop).await.unwrap() });
    world
}

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
        wire.0.read(&mut [0; wire::PIPE]).await.unwrap() > 0,
        "the manager answers"
    );
    press(wire, &record(23, 16 << 10)[..16 << 10]).await;
}

/// All of TLS without a certificate, then this, and then a record that does not end.
async fn asking(wire: Wire<DuplexStream>, config: Arc<ClientConfig>, asks: &[u8]) -> Wire<DuplexStream> {
    let name = ServerName::try_from(MANAGER).unwrap();
    let mut tls = TlsConnector::from(config).connect(name, wire.0).await.unwrap();
    tls.write_all(asks).await.unwrap();
    tls.flush().await.unwrap();
    // What this end holds of TLS is not counted.
    let mut wire = Wire(tls.into_inner().0);
    press(&mut wire, &record(23, 16 << 10)[..16 << 10]).await;
    wire
}

/// The head of an upgrade that has as many bytes as are read of one, and does not end.
fn endless_head() -> Vec<u8> {
    let mut head = wire::UPGRADE.strip_suffix("\r\n").unwrap().as_bytes().to_vec();
    head.extend(b"x: ");
    head.resize(HEAD_BYTES - 1, b'x');
    head
}

/// A request to join that lacks its last byte.
fn endless_body() -> Vec<u8> {
    let mut request = format!(
        "POST {JOIN} HTTP/1.1\r\nhost: manager\r\ncontent-type: application/json\r\ncontent-length: {}\r\nx: ",
        limits::MAX_REQUEST
    )
    .into_bytes();
    request.resize(HEAD_BYTES - 4, b'x');
    request.extend(b"\r\n\r\n");
    request.resize(HEAD_BYTES + limits::MAX_REQUEST - 1, b' ');
    request
}

/// What the manager's server reads of a request's head.
const HEAD_BYTES: usize = 8192;

/// How far whoever stops on the way has come; what memory they hold is measured in a process for each, since what one has
/// freed is there for the next.
const STAGES: [&str; 4] = ["hello", "handshake", "head", "body"];
const STAGE: &str = "SKERRY_STAGE";

#[test]
fn whoever_stops_on_the_way_to_a_session_holds_little_memory() {
    for stage in STAGES {
        let this = std::env::current_exe().unwrap();
        let run = Command::new(this)
            .args([
                "--exact",
                "those_who_stop_there_hold_little_memory",
                "--ignored",
                "--nocapture",
            ])
            .env(STAGE, stage)
            .output()
            .unwrap();
        let printed = [run.stdout, run.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        assert!(
            run.status.success() && printed.contains("1 passed"),
            "{stage}: {printed}"
        );
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "run by the other test, which says at which stage"]
async fn those_who_stop_there_hold_little_memory() {
    let stage = std::env::var(STAGE).expect("the other test says at which stage");
    let world = serving().await;
    let stranger = world.stranger();
    world.dial_tls(stranger.clone()).await.unwrap();
    let (before, mut held) = (resident(), Vec::new());
    for connection in 0..limits::UNPROVEN {
        let mut wire = world.dial_from(from(connection));
        held.push(match stage.as_str() {
            "hello" => {
                press(&mut wire, &record(22, 16 << 10)[..16 << 10]).await;
                wire
            }
            "handshake" => {
                half(&mut wire, stranger.clone()).await;
                wire
            }
            "head" => asking(wire, stranger.clone(), &endless_head()).await,
            "body" => asking(wire, stranger.clone(), &endless_body()).await,
            stage => panic!("there is no stage {stage}"),
        });
    }
    assert_eq!(world.hub.snapshot().unproven, limits::UNPROVEN);
    let growth = resident().saturating_sub(before);
    println!("{} KiB each", growth / limits::UNPROVEN / 1024);
    assert!(growth < MOST, "{} connections hold {} MiB", held.len(), growth >> 20);
    assert!(growth > limits::UNPROVEN * 4096, "{growth} bytes: nothing was measured");
    // For so long, and no longer.
    tokio::time::sleep(limits::HANDSHAKE.max(limits::REQUEST)).await;
    while world.hub.snapshot().unproven > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut node = world.dial_tls(world.certified("edge-1")).await.unwrap();
    node.begin("edge-1").await;
}
