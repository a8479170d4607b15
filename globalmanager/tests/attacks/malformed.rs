//! What is no message: it ends the session with a sentence that says what is wrong, and harms nobody.

use rstest::rstest;

use super::{
    net::World,
    wire::{BINARY, TEXT, hello, report, whole},
};

/// What is no message, and what is said of it.
fn malformed() -> Vec<(Vec<u8>, &'static str)> {
    let deep = |open: &str, depth: usize| open.repeat(depth);
    let text = |text: &str| whole(TEXT, text.as_bytes());
    let payload = |payload: &str| {
        let report = report(1, "d", "uid-d");
        text(&report.replace(r#"{"dataset-samples":{"count":1}}"#, payload))
    };
    vec![
        (text(""), "EOF while parsing"),
        (text("null"), "not a message of this protocol"),
        (text("true"), "not a message of this protocol"),
        (text("[]"), "not a message of this protocol"),
        (text("{}"), "not a message of this protocol"),
        (text(r#""hello""#), "not a message of this protocol"),
        (text(r#"{"ack":null}"#), "invalid type: null"),
        (text(r#"{"report":null}"#), "invalid type: null"),
        (text(r#"{"ack":{"version":null}}"#), "invalid type: null"),
        (text(r#"{"ack":{"version":-1}}"#), "invalid value"),
        (text(r#"{"ack":{"version":1e400}}"#), "number out of range"),
        (
            text(r#"{"ack":{"version":18446744073709551616}}"#),
            "invalid type: floating point",
        ),
        // Bombs: deep, wide, in what is known and in what is not.
        (text(&deep("[", 200_000)), "nests deeper than 64 levels"),
        (text(&deep(r#"{"a":"#, 40_000)), "nests deeper than 64 levels"),
        (
            text(&format!(r#"{{"teleport":{}1{}}}"#, deep("[", 80), deep("]", 80))),
            "nests deeper than 64 levels",
        ),
        (
            payload(&format!(
                r#"{{"event":{{"message":{}1{}}}}}"#,
                deep("[", 80),
                deep("]", 80)
            )),
            "nests deeper than 64 levels",
        ),
        (
            text(&format!("[{}1]", "1,".repeat(100_000))),
            "not a message of this protocol",
        ),
        // Keys that come twice.
        (
            text(r#"{"ack":{"version":1,"version":2}}"#),
            "duplicate field `version`",
        ),
        (
            text(r#"{"ack":{"version":1},"ack":{"version":2}}"#),
            "not a message of this protocol",
        ),
        (
            text(r#"{"ack":{"version":1},"gap":{"seq":1,"count":1}}"#),
            "not a message of this protocol",
        ),
        (
            payload(r#"{"dataset-samples":{"count":1},"event":{"message":{}}}"#),
            "not a message of this protocol",
        ),
        // What is no text.
        (whole(TEXT, b"{\"ack\":\xff\xfe}"), "not UTF-8"),
        (whole(TEXT, b"{\"ack\":{\"version\":1}}\xc3"), "not UTF-8"),
        (whole(TEXT, b"\xed\xa0\x80"), "not UTF-8"),
        (text(r#"{"\ud800":{}}"#), "not a message of this protocol"),
        (whole(BINARY, hello("edge-1").as_bytes()), "EOF while parsing"),
        // Names that are paths.
        (
            text(
                r#"{"rows":{"chunks":[],"rows":[{"key":{"object":{"kind":"dataset","namespace":"default","name":"../d"}},
                "uid":"u","generation":1,"hash":"0000000000000000000000000000000000000000000000000000000000000000"}],
                "more":false}}"#,
            ),
            "is not a Kubernetes name",
        ),
    ]
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn in_a_session(#[case] world: fn() -> World) {
    let world = world();
    world.place("edge-1", "d", 1);
    let all = malformed();
    for (bytes, why) in &all {
        let mut wire = world.live("edge-1").await;
        wire.send(bytes).await.unwrap();
        let refused = wire.refused().await.unwrap_or_default();
        assert!(
            refused.contains(why),
            "{:?}: {refused}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
        );
        assert!(refused.len() < 500, "it is short: {refused}");
    }
    world.sessions(0).await;
    assert_eq!(world.hub.snapshot().ended, [("violation", all.len() as u64)].into());
    assert_eq!(world.hub.nodes()[0].assigned, 1);
    assert!(world.engine.taken.lock().is_empty());
    world.serves_others().await;
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn in_place_of_a_hello(#[case] world: fn() -> World) {
    let world = world();
    let mut sent = 0;
    for (bytes, why) in malformed() {
        let mut wire = world.come("edge-1").await;
        wire.upgrade().await;
        // What is large ends sooner, and without a word.
        if wire.send(&bytes).await.is_ok() && bytes.len() < 20_000 {
            let refused = wire.refused().await.unwrap_or_default();
            assert!(refused.contains(why), "{refused}");
            sent += 1;
        }
    }
    assert!(sent > 20, "{sent}");
    let mut wire = world.come("edge-1").await;
    wire.upgrade().await;
    wire.text(r#"{"ack":{"version":1}}"#).await.unwrap();
    assert_eq!(wire.refused().await.as_deref(), Some("a session begins with a hello"));
    assert!(world.hub.nodes().is_empty(), "nothing is kept");
    world.serves_others().await;
}

#[rstest]
#[case::plain(World::plain)]
#[case::tls(World::tls)]
#[tokio::test(start_paused = true)]
async fn in_the_fields_of_a_hello(#[case] world: fn() -> World) {
    let world = world();
    let plain = hello("edge-1");
    let long = "x".repeat(1_000);
    let position = |cluster: &str, lease: &str| {
        let stored = format!(
            r#""stored":{{"cluster":"{cluster}","epoch":{{"lease":"{lease}","transitions":0}},"version":1}},"holds":0"#
        );
        plain.replace(r#""holds":0"#, &stored)
    };
    for (hello, why) in [
        (plain.replace("edge-1", "../edge-1"), "\"../edge-1\" is not a node name"),
        (plain.replace("edge-1", ""), "is not a node name"),
        (plain.replace("edge-1", &long), "is not a node name"),
        (
            plain.replace(r#""boot":"boot""#, &format!(r#""boot":"{long}""#)),
            "boot is longer than 253 bytes",
        ),
        (
            plain.replace(r#""agent":"test""#, &format!(r#""agent":"{long}""#)),
            "agent is longer than 253 bytes",
        ),
        (
            plain.replace(r#""protocol":1"#, r#""protocol":0"#),
            "protocol 0 is unknown",
        ),
        (position(&long, "lease"), "stored.cluster is longer than 253 bytes"),
        (
            position("cluster", &long),
            "stored.epoch.lease is longer than 253 bytes",
        ),
        (position("another", "lease"), "belongs to cluster another"),
    ] {
        let mut wire = world.come("edge-1").await;
        wire.upgrade().await;
        wire.text(&hello).await.unwrap();
        let refused = wire.refused().await.unwrap_or_default();
        assert!(refused.contains(why) && refused.len() < 500, "{hello}: {refused}");
    }
    assert!(world.hub.nodes().is_empty(), "nothing is kept");
    world.serves_others().await;
}
