//! The routes as a worker meets them, without a socket.

use std::{net::Ipv4Addr, time::Duration};

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use serde_json::json;
use skerry_edge::{
    Object, ObjectKey, Position,
    node::{Batch, Change},
};
use tempfile::TempDir;
use tower::ServiceExt;

use super::*;
use crate::store::OutboxLimits;

struct Fixture {
    directory: TempDir,
    store: Store,
    api: Api,
    router: Router,
    link: watch::Sender<node::State>,
}

async fn fixture() -> Fixture {
    fixture_in(TempDir::new().unwrap()).await
}

async fn fixture_in(directory: TempDir) -> Fixture {
    let store = Store::open(&directory.path().join("store.db"), OutboxLimits::default())
        .await
        .unwrap();
    let (link, receiver) = watch::channel(node::State::Connecting);
    let api = Api {
        store: store.clone(),
        link: receiver,
        metrics: Arc::default(),
    };
    Fixture {
        directory,
        store,
        router: router(api.clone()),
        api,
        link,
    }
}

impl Fixture {
    async fn send(&self, request: Request<Body>) -> (StatusCode, String, String) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let kind = response.headers().get(header::CONTENT_TYPE);
        let kind = kind.map(|kind| kind.to_str().unwrap().to_owned()).unwrap_or_default();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn post(&self, worker: &str, kind: &str, body: impl Into<Body>) -> (StatusCode, String, String) {
        let request = Request::post(format!("/sedna/workers/{worker}/info"))
            .header(header::CONTENT_TYPE, kind)
            .extension(Caller(Ok(())));
        self.send(request.body(body.into()).unwrap()).await
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        let (status, _, body) = self.send(Request::get(path).body(Body::empty()).unwrap()).await;
        (status, body)
    }

    async fn reports(&self) -> usize {
        self.hold(json!({})).await;
        self.store.fetch(0, 1_000).await.unwrap().len()
    }

    /// The node is told of the job.
    async fn hold(&self, body: serde_json::Value) {
        let object = Object {
            key: ObjectKey::new("federatedlearningjob", "default", "job"),
            uid: "u".to_owned(),
            generation: 1,
            body: body.into(),
        };
        let epoch = skerry_edge::Epoch {
            lease: "l".to_owned(),
            transitions: 0,
            made: None,
        };
        let batch = Batch {
            changes: vec![Change::Put(object)],
            position: Position::start("c", epoch),
        };
        self.store.apply(batch).await.unwrap();
    }
}

fn message() -> serde_json::Value {
    json!({
        "name": "trainer-1", "namespace": "default", "ownerName": "job", "ownerKind": "federatedlearningjob",
        "kind": "train", "status": "completed",
        "ownerInfo": {"currentRound": 1, "sampleCount": 7},
        "results": [{"format": "pb", "url": "/model", "metrics": {"accuracy": 0.9}}],
    })
}

const WELL: &str = "{\n \"Status\": 200,\n \"Message\": \"OK\"\n}";

#[tokio::test]
async fn a_worker_is_answered_as_sedna_answers() {
    let fixture = fixture().await;
    for kind in ["application/json", "application/json; charset=utf-8"] {
        let (status, kind, body) = fixture.post("trainer-1", kind, message().to_string()).await;
        assert_eq!(
            (status, kind.as_str(), body.as_str()),
            (StatusCode::OK, "application/json", WELL)
        );
    }
    assert_eq!(fixture.reports().await, 2);
}

#[tokio::test]
async fn a_store_that_was_moved_aside_is_told_until_somebody_takes_it_away() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("store.db"), "this is no database").unwrap();
    let fixture = fixture_in(directory).await;
    let aside = fixture.store.moved_aside();
    assert_eq!(aside.len(), 1);
    let line = format!(
        "a damaged store was moved to {}: reports of it that could not be read are only there\n",
        aside[0].display()
    );
    let (status, said) = fixture.get("/readyz").await;
    assert_eq!(status, StatusCode::OK, "it takes reports: {said}");
    assert!(said.ends_with(&line), "{said}");
    let gauge = "skerry_localcontroller_stores_moved_aside 1\n";
    let (_, metrics) = fixture.get("/metrics").await;
    assert!(metrics.contains(gauge), "{metrics}");

    let Fixture { directory, store, .. } = fixture;
    std::fs::remove_file(&store.moved_aside()[0]).unwrap();
    store.close().await;
    let fixture = fixture_in(directory).await;
    let (_, said) = fixture.get("/readyz").await;
    assert!(!said.contains("moved"), "{said}");
    let (_, metrics) = fixture.get("/metrics").await;
    assert!(metrics.contains(&gauge.replace('1', "0")), "{metrics}");
}

#[tokio::test]
async fn an_unknown_owner_kind_is_well_and_dropped() {
    let fixture = fixture().await;
    let mut message = message();
    message["ownerKind"] = json!("deployment");
    let (status, _, body) = fixture.post("trainer-1", "application/json", message.to_string()).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, WELL));
    assert_eq!(fixture.reports().await, 0);
}

#[tokio::test]
async fn what_is_wrong_is_said_in_the_same_shape() {
    let fixture = fixture().await;
    let well = message().to_string();
    for (worker, kind, body, expected, word) in [
        ("trainer-2", "application/json", well.clone(), 400, "trainer-2"),
        ("trainer-1", "application/json", "{".to_owned(), 400, "EOF"),
        (
            "trainer-1",
            "application/xml",
            "<a/>".to_owned(),
            415,
            "application/json",
        ),
        (
            "trainer-1",
            "application/json",
            " ".repeat(MAX_REPORT + 1),
            413,
            "length limit",
        ),
    ] {
        let (status, kind, body) = fixture.post(worker, kind, body).await;
        assert_eq!(
            (status.as_u16(), kind.as_str()),
            (expected, "application/json"),
            "{body}"
        );
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["Status"], expected);
        assert!(body["Message"].as_str().unwrap().contains(word), "{body}");
    }
    assert_eq!(fixture.reports().await, 0);
}

#[tokio::test]
async fn a_full_disk_is_no_success() {
    let fixture = fixture().await;
    fixture.store.fill_disk().await;
    let mut message = message();
    message["ownerInfo"]["text"] = json!("x".repeat(100_000));
    let (status, _, body) = fixture.post("trainer-1", "application/json", message.to_string()).await;
    assert_eq!(status, StatusCode::INSUFFICIENT_STORAGE);
    assert!(body.contains("disk"), "{body}");
    let (status, body) = fixture.get("/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "whoever asks can know before");
    assert!(body.contains("store: the disk of the store is full"), "{body}");
    assert_eq!(
        fixture.get("/healthz").await.0,
        StatusCode::OK,
        "a restart would not help"
    );
    fixture.store.empty_disk().await;
    let (status, ..) = fixture.post("trainer-1", "application/json", message.to_string()).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(fixture.get("/readyz").await.0, StatusCode::OK);
    drop(fixture.directory);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_not_waited_for() {
    let fixture = fixture().await;
    let body = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
    let (status, ..) = fixture.post("trainer-1", "application/json", body).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn ready_is_who_can_keep_a_report() {
    let fixture = fixture().await;
    assert_eq!(fixture.get("/healthz").await, (StatusCode::OK, "ok\n".to_owned()));
    let away = node::State::Waiting {
        until: Duration::ZERO,
        cause: Some("connection refused".to_owned()),
    };
    fixture.link.send_replace(away);
    let (status, body) = fixture.get("/readyz").await;
    assert_eq!(status, StatusCode::OK);
    assert!(body.contains("connection refused"), "{body}");
    fixture.store.close().await;
    let (status, body) = fixture.get("/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("store: the store is closed"), "{body}");
}

#[tokio::test]
async fn what_happens_is_counted() {
    let fixture = fixture().await;
    fixture
        .post("trainer-1", "application/json", message().to_string())
        .await;
    fixture.post("trainer-1", "application/json", "").await;
    let (_, text) = fixture.get("/metrics").await;
    for line in [
        "skerry_localcontroller_worker_messages_total{outcome=\"accepted\"} 1",
        "skerry_localcontroller_worker_messages_total{outcome=\"refused\"} 1",
        "skerry_localcontroller_outbox_reports 1",
        "skerry_localcontroller_link_live 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn a_worker_of_another_node_is_turned_away() {
    let fixture = fixture().await;
    let stranger = Stranger(Ipv4Addr::new(203, 0, 113, 7).into());
    let request = Request::post("/sedna/workers/trainer-1/info")
        .header(header::CONTENT_TYPE, "application/json")
        .extension(Caller(Err(stranger)));
    let (status, _, body) = fixture.send(request.body(message().to_string().into()).unwrap()).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(
        body.contains("\"Status\": 403") && body.contains("203.0.113.7 is neither"),
        "{body}"
    );
    assert_eq!(fixture.reports().await, 0);
    let (_, text) = fixture.get("/metrics").await;
    assert!(text.contains("worker_messages_total{outcome=\"stranger\"} 1"), "{text}");
}

#[tokio::test]
async fn a_worker_that_the_node_does_not_have_is_turned_away() {
    let fixture = fixture().await;
    fixture.hold(json!({"workers": ["trainer-2", "trainer-3"]})).await;
    let (status, _, body) = fixture
        .post("trainer-1", "application/json", message().to_string())
        .await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(
        body.contains("federatedlearningjob/default/job has no worker \\\"trainer-1\\\" on this node"),
        "{body}"
    );
    fixture.hold(json!({"workers": ["trainer-2", "trainer-1"]})).await;
    let (status, ..) = fixture
        .post("trainer-1", "application/json", message().to_string())
        .await;
    assert_eq!(status, StatusCode::OK, "it has it now");
    assert_eq!(fixture.reports().await, 1);
}

#[tokio::test]
async fn a_worker_that_was_quicker_than_the_manager_is_judged_when_the_node_hears_of_it() {
    let fixture = fixture().await;
    let of = |worker: &str| {
        let mut message = message();
        message["name"] = json!(worker);
        message.to_string()
    };
    for worker in ["trainer-1", "trainer-9"] {
        let (status, ..) = fixture.post(worker, "application/json", of(worker)).await;
        assert_eq!(status, StatusCode::OK);
    }
    fixture.hold(json!({"workers": ["trainer-1"]})).await;
    let sent = fixture.store.fetch(0, 10).await.unwrap();
    let [skerry_edge::node::Outgoing::Report(report)] = &sent[..] else {
        panic!("{sent:?}")
    };
    let message = report.payload.message().unwrap().value().unwrap();
    assert_eq!(message["name"], "trainer-1");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_floods_is_told_to_wait_and_holds_up_no_other() {
    let fixture = fixture().await;
    fixture.hold(json!({"workers": ["trainer-1", "trainer-2"]})).await;
    // Without the routes, whose time-outs the paused clock would run into while the store works.
    let workers = Workers::new(fixture.api.clone());
    let post = async |worker: &str| {
        let mut message = message();
        message["name"] = json!(worker);
        let body = Ok(message.to_string().into());
        let taken = workers.take(worker, Caller(Ok(())), &HeaderMap::new(), body).await;
        taken.map_err(|Refusal(outcome, status, message)| (outcome, status.as_u16(), message))
    };
    for _ in 0..limits::BURST {
        assert_eq!(post("trainer-1").await, Ok("accepted"));
    }
    let (outcome, status, message) = post("trainer-1").await.unwrap_err();
    assert_eq!((outcome, status), ("too_many", 429));
    assert!(message.contains("try again in 20 ms"), "{message}");
    assert_eq!(post("trainer-2").await, Ok("accepted"));
    tokio::time::advance(limits::EVERY).await;
    assert_eq!(
        post("trainer-1").await,
        Ok("accepted"),
        "what was refused can be sent again"
    );
    let kept = fixture.store.fetch(0, 10_000).await.unwrap().len();
    assert_eq!(kept, limits::BURST as usize + 2);
}
