//! All that can come to the manager's ports, before and after an upgrade: of nodes, and of Sedna's local controllers.

use std::{
    collections::BTreeSet,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use axum::serve::Listener;
use serde_json::json;
use skerry_edge::{
    Credential, Downstream, Epoch, Object, ObjectKey,
    cloud::Server,
    message::Received,
    sedna::{envelope::Envelope, told::Told},
};
use skerry_globalmanager::{
    engine::Taken,
    hub::{Answers, Hub, OldAgents, Part, Reported, Reports, Snapshot},
};
use tokio::{
    io::{DuplexStream, duplex},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Came,
    visits::{BUFFER, PATIENCE, answered, on_paused_time, visit},
};

/// Who has objects placed on it.
pub(crate) const NODE: &str = "edge-1";

/// A node of ours, or whoever comes instead.
pub(crate) fn manager_door(data: &[u8]) -> Came {
    let door = async |hub: Hub, listener: Once, stop: CancellationToken| hub.serve_on(listener, stop).await;
    let bring = async |here| visit(here, data).await;
    came(bring, door, |text| match Downstream::decode(text) {
        Ok(Received::Message(frame)) => frame.name().to_owned(),
        other => panic!("a node is told {text}, which is {other:?}"),
    })
}

/// One of Sedna's local controllers, or whoever comes instead.
pub(crate) fn sedna_door(data: &[u8]) -> Came {
    let old = OldAgents { credentials: true };
    let door =
        async |hub: Hub, listener: Once, stop: CancellationToken| hub.serve_old_agents_on(old, listener, stop).await;
    let bring = async |here| visit(here, data).await;
    came(bring, door, |text| {
        match Envelope::decode(text).and_then(|envelope| envelope.told()) {
            Ok(Told::Put { object, credential }) => format!("put {} {}", object.key.kind, credential.is_some()),
            Ok(Told::Delete(key)) => format!("delete {}", key.kind),
            Err(error) => panic!("an agent is told {text}: {error}"),
        }
    })
}

/// Whatever `bring` brings by a door is answered with little, its connection ends by itself, and nothing is left of it. `word` is for what
/// the manager says.
pub(crate) fn came(
    bring: impl AsyncFnOnce(DuplexStream) -> Vec<u8>,
    door: impl AsyncFnOnce(Hub, Once, CancellationToken),
    word: impl Fn(&str) -> String,
) -> Came {
    on_paused_time(async {
        let (hub, engine) = (Hub::with_jitter(|| 0.0), Arc::<Engine>::default());
        hub.lead(term(), engine.clone());
        for part in placed() {
            hub.set(&part.object.key.clone(), [(NODE.to_owned(), part)].into());
        }
        let (stop, (here, there)) = (CancellationToken::new(), duplex(BUFFER));
        let visiting = async {
            let answer = bring(here).await;
            stop.cancel();
            answer
        };
        let (answer, ()) = tokio::join!(visiting, door(hub.clone(), Once(Some(there)), stop.clone()));
        assert_eq!(hub.doors().present(), (0, 0), "its place is not free again");
        let shut = timeout(PATIENCE, hub.shut_down()).await;
        assert!(shut.is_ok(), "its session is still there after {PATIENCE:?}");
        let seen = hub.snapshot();
        assert_eq!(seen.sessions, 0, "a node is connected whose connection is over");
        engine.heard_only_what_is_placed();
        match answered(&answer, word) {
            Came::Taken(words) => Came::taken(format!("{words}, {}", seen_as(&seen))),
            Came::Refused(words) => Came::refused(format!("{words}, {}", seen_as(&seen))),
        }
    })
}

/// What operators see of one connection: more than it was answered.
fn seen_as(seen: &Snapshot) -> String {
    let why = [&seen.refused, &seen.reports_denied, &seen.ended];
    let words = why.into_iter().flat_map(|counted| counted.keys().copied());
    let counts = [
        ("acked", seen.acked),
        ("accepted", seen.reports_accepted),
        ("given up", seen.reports_given_up),
        ("unknown", seen.unknown_frames),
    ];
    let counted = counts.into_iter().filter(|(_, count)| *count > 0).map(|(word, _)| word);
    words.chain(counted).collect::<Vec<_>>().join(" ")
}

/// A manager's first term in a cluster.
pub(crate) fn term() -> Server {
    let epoch = Epoch {
        lease: "lease".to_owned(),
        transitions: 0,
        made: None,
    };
    Server {
        cluster: "cluster".to_owned(),
        epoch,
    }
}

/// What the node should hold: of both that an agent is told differently.
fn placed() -> [Part; 2] {
    let object = |kind: &str, name: &str, spec: serde_json::Value| Object {
        key: ObjectKey::new(kind.to_lowercase(), "default", name),
        uid: format!("uid-{name}"),
        generation: 1,
        body: json!({"apiVersion": "sedna.io/v1alpha1", "kind": kind, "spec": spec}).into(),
    };
    let dataset = object("Dataset", "d0", json!({"url": "s3://b/d", "credentialName": "s3"}));
    let credential = Credential {
        owner: dataset.key.clone(),
        uid: dataset.uid.clone(),
        secret: "s3".to_owned(),
        fields: [("ACCESS_KEY_ID".to_owned(), "k".to_owned())].into(),
    };
    [
        Part {
            object: dataset,
            credentials: vec![credential],
        },
        Part {
            object: object("JointInferenceService", "helmet", json!({})),
            credentials: Vec::new(),
        },
    ]
}

/// One connection, and then none.
pub(crate) struct Once(Option<DuplexStream>);

impl Listener for Once {
    type Io = DuplexStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (DuplexStream, SocketAddr) {
        match self.0.take() {
            Some(come) => (come, (Ipv4Addr::LOCALHOST, 40_000).into()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok((Ipv4Addr::LOCALHOST, 9000).into())
    }
}

/// Takes all reports.
#[derive(Default)]
struct Engine(Mutex<BTreeSet<ObjectKey>>);

impl Engine {
    /// Nobody may report on anything else.
    fn heard_only_what_is_placed(&self) {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let placed = placed().map(|part| part.object.key);
        for key in heard.iter() {
            assert!(
                placed.contains(key),
                "a report on {key} was taken, which the node does not have"
            );
        }
    }
}

#[async_trait]
impl Reports for Engine {
    async fn take(&self, key: &ObjectKey, reports: &[Reported]) -> Answers {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone());
        Answers {
            each: vec![Taken::Accepted; reports.len()],
            asked: false,
        }
    }
}
