//! Number: of connections, and of names.

use std::time::Duration;

use serde_json::json;
use skerry_edge::limits;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::advance,
};

use super::{
    net::{World, key},
    wire::{Said, TEXT, UPGRADE, hello, report, whole},
};

#[tokio::test(start_paused = true)]
async fn of_connections_from_one_address_that_prove_nothing() {
    let world = World::plain();
    let mut silent: Vec<_> = (0..limits::UNPROVEN_PER_ADDRESS)
        .map(|_| world.dial_from([10, 6, 6, 6]))
        .collect();
    let mut more = world.dial_from([10, 6, 6, 6]);
    assert_eq!(more.0.read(&mut [0; 1]).await.unwrap(), 0, "it is closed at once");
    assert_eq!(world.hub.snapshot().turned_away, [("address", 1)].into());
    assert_eq!(world.hub.snapshot().unproven, limits::UNPROVEN_PER_ADDRESS);
    world.serves_others().await;
    // One that begins a session takes no place any more.
    silent[0].begin("edge-1").await;
    let mut again = world.dial_from([10, 6, 6, 6]);
    again.begin("edge-2").await;
}

#[tokio::test(start_paused = true)]
async fn of_connections_from_everywhere_that_prove_nothing() {
    let world = World::tls();
    let from = |i: usize| [10, 7, 0, u8::try_from(i / limits::UNPROVEN_PER_ADDRESS).unwrap()];
    let silent: Vec<_> = (0..limits::UNPROVEN).map(|i| world.dial_from(from(i))).collect();
    let mut more = world.dial_from([10, 8, 0, 0]);
    assert_eq!(more.0.read(&mut [0; 1]).await.unwrap(), 0, "it is closed at once");
    assert_eq!(world.hub.snapshot().turned_away, [("unproven", 1)].into());
    // For so long, and no longer.
    tokio::time::sleep(limits::HANDSHAKE).await;
    let mut node = world.dial_tls(world.certified("edge-1")).await.unwrap();
    node.begin("edge-1").await;
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn of_connections_of_one_node_without_a_session() {
    let world = World::tls();
    let config = world.certified("edge-1");
    let mut idle = Vec::new();
    for _ in 0..limits::CONNECTIONS_PER_NODE {
        idle.push(world.dial_tls(config.clone()).await.unwrap());
    }
    let mut more = world.dial_tls(config.clone()).await.unwrap();
    let answer = more.upgrade().await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    let mut sentence = String::new();
    more.0.read_to_string(&mut sentence).await.unwrap();
    assert!(sentence.contains("this node has 16 connections already"), "{sentence}");
    assert_eq!(world.hub.snapshot().turned_away, [("node", 1)].into());

    let mut other = world.dial_tls(world.certified("edge-2")).await.unwrap();
    other.begin("edge-2").await;
    // It is its own doing, and over when they are.
    tokio::time::sleep(limits::REQUEST).await;
    drop(idle);
    let mut node = world.dial_tls(config).await.unwrap();
    node.begin("edge-1").await;
}

#[tokio::test(start_paused = true)]
async fn of_sessions_of_one_node() {
    let world = World::tls();
    let config = world.certified("edge-1");
    let begin = async || {
        let mut wire = world.dial_tls(config.clone()).await.unwrap();
        wire.begin("edge-1").await;
        wire
    };
    let mut present = begin().await;
    // Each ends the one before, which is told, so that they do not add up.
    for _ in 0..3 * limits::CONNECTIONS_PER_NODE {
        let mut before = std::mem::replace(&mut present, begin().await);
        assert_eq!(before.frame().await, json!({"replaced": {}}));
        before.0.shutdown().await.unwrap();
        while before.next().await != Said::Gone {}
    }
    assert_eq!(world.hub.snapshot().sessions, 1);
    assert_eq!(world.hub.snapshot().turned_away, [].into());
}

/// What the manager has of anybody, as it shows it.
fn kept(world: &World) -> (usize, usize, (usize, usize)) {
    let snapshot = world.hub.snapshot();
    (snapshot.nodes, snapshot.sessions, world.hub.doors().present())
}

#[tokio::test(start_paused = true)]
async fn of_invented_nodes() {
    let world = World::plain();
    let mut refusals = 0;
    for i in 0..2_000 {
        let mut wire = world.dial();
        if i % 2 == 0 {
            wire.begin(&format!("invented-{i}")).await;
        } else {
            wire.upgrade().await;
            wire.text(&hello(&format!("Invented {i}"))).await.unwrap();
            assert!(wire.refused().await.unwrap().contains("is not a node name"));
            refusals += 1;
        }
    }
    world.sessions(0).await;
    while world.hub.doors().present() != (0, 0) {
        tokio::task::yield_now().await;
    }
    assert_eq!(kept(&world), (0, 0, (0, 0)));
    assert_eq!(world.hub.snapshot().refused, [("no_name", refusals)].into());
    world.serves_others().await;
}

#[tokio::test(start_paused = true)]
async fn of_100_000_invented_names_in_hellos() {
    const NAMES: u64 = 100_000;
    let world = World::plain();
    for i in 0..NAMES {
        let mut wire = world.dial();
        // Whatever is answered is not waited for.
        let name = if i % 2 == 0 {
            format!("invented-{i}")
        } else {
            format!("Invented {i}")
        };
        // So many a second are let in.
        advance(Duration::from_millis(1)).await;
        let first = [UPGRADE.as_bytes(), &whole(TEXT, hello(&name).as_bytes())].concat();
        wire.0.write_all(&first).await.unwrap();
        let mut some = [0; 16];
        wire.0.read_exact(&mut some).await.unwrap();
        if i % 1_000 == 0 {
            let (nodes, sessions, _) = kept(&world);
            assert!(nodes < 100 && sessions <= nodes, "{nodes} nodes");
        }
    }
    world.sessions(0).await;
    while world.hub.doors().present() != (0, 0) {
        tokio::task::yield_now().await;
    }
    assert_eq!(kept(&world), (0, 0, (0, 0)));
    assert_eq!(world.hub.snapshot().refused, [("no_name", NAMES / 2)].into());
    world.serves_others().await;
}

#[tokio::test(start_paused = true)]
async fn of_invented_nodes_by_one_with_a_certificate() {
    let world = World::tls();
    let config = world.certified("edge-1");
    for i in 0..100 {
        let mut wire = world.dial_tls(config.clone()).await.unwrap();
        wire.upgrade().await;
        wire.text(&hello(&format!("invented-{i}"))).await.unwrap();
        let refused = wire.refused().await.unwrap();
        let expected = format!("the certificate is that of node edge-1, the hello says invented-{i}");
        assert_eq!(refused, expected);
    }
    assert_eq!((world.hub.nodes().len(), world.hub.snapshot().sessions), (0, 0));
    assert_eq!(world.hub.snapshot().refused, [("other_name", 100)].into());
}

#[tokio::test(start_paused = true)]
async fn of_100_000_invented_names_in_reports() {
    const NAMES: u64 = 100_000;
    let world = World::plain();
    let wire = world.live("edge-1").await;
    let (mut reading, mut writing) = tokio::io::split(wire.0);
    let sending = async {
        for seq in 1..=NAMES {
            let text = report(seq, &format!("invented-{seq}"), &format!("uid-{seq}"));
            writing.write_all(&whole(TEXT, text.as_bytes())).await.unwrap();
        }
    };
    let answers = async {
        let mut buffer = vec![0; 1 << 16];
        while world.hub.snapshot().reports_denied.get("not_placed") != Some(&NAMES) {
            assert!(reading.read(&mut buffer).await.unwrap() > 0);
        }
    };
    tokio::join!(sending, answers);
    assert_eq!(kept(&world), (1, 1, (0, 1)), "the node's own session");
    assert_eq!(world.hub.nodes()[0].assigned, 0);
    assert!(world.engine.taken.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_invented_objects_that_a_node_claims_to_hold() {
    let world = World::plain();
    let mut wire = world.come("edge-1").await;
    let last = wire.claim(&hello("edge-1"), 100_001).await;
    assert_eq!(
        last["refused"]["hint"],
        json!("a node holds at most 100000 items"),
        "{last}"
    );
    wire.refused().await;
    world.sessions(0).await;
    assert_eq!(world.hub.snapshot().nodes, 0, "nothing is kept of it");

    // What may be true is kept as long as the node is there.
    for _ in 0..3 {
        let mut wire = world.come("edge-1").await;
        let last = wire.claim(&hello("edge-1"), 3_000).await;
        assert!(last["synced"].is_object(), "{last}");
        assert_eq!(world.hub.nodes()[0].strays, 3_000);
        drop(wire);
        world.sessions(0).await;
        assert_eq!(world.hub.snapshot().nodes, 0, "and no longer");
    }
    world.hub.owner_gone(&key("another"));
    world.serves_others().await;
}
