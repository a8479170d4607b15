//! What it costs the API server that nodes ask to join, and that operators see how sessions stand.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::json;
use skerry_edge::{
    Object, ObjectKey,
    identity::{JOIN, JoinRequest, JoinToken, NodeKey, SigningRequest},
    limits,
};
use skerry_globalmanager::{
    hub::Part,
    identity::{Terms, sessions::Sessions},
};
use skerry_sandbox::api::{Fault, Match, Verb};
use tokio::task::JoinSet;

use crate::{node::Node, party::Cluster};

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// A client whose requests are noted.
fn watched(cluster: &Cluster) -> (Client, Arc<Mutex<Vec<String>>>) {
    let (client, asked) = (cluster.client(), Arc::<Mutex<Vec<String>>>::default());
    let noted = asked.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let asked = format!("{} {}", request.method(), request.uri().path());
        noted.lock().unwrap().push(asked);
        let client = client.clone();
        async move { client.send(request).await }
    });
    (Client::new(service, "default"), asked)
}

#[tokio::test]
async fn names_without_an_edge_node_cost_the_api_server_nothing() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager().await;
    let (client, asked) = watched(&cluster);
    let mut sessions = Sessions::new(&client, "default", manager.hub.clone());
    let owner = ObjectKey::new("dataset", "default", "d");
    let part = |uid: &str| Part {
        object: Object {
            key: owner.clone(),
            uid: uid.to_owned(),
            generation: 1,
            body: json!({}).into(),
        },
        credentials: vec![],
    };
    let names = (0..50).map(|number| format!("plain-{number}"));
    manager.hub.set(&owner, names.map(|name| (name, part("u"))).collect());
    sessions.look(Timestamp::now()).await.unwrap();
    assert_eq!(std::mem::take(&mut *asked.lock().unwrap()).len(), 1, "a list, once");
    for _ in 0..5 {
        sessions.look(Timestamp::now()).await.unwrap();
    }
    assert_eq!(*asked.lock().unwrap(), Vec::<String>::new());

    let mut node = Node::new("edge-1");
    node.join(&manager, &cluster.invite("edge-1", HOUR).await)
        .await
        .unwrap();
    let _live = manager.connect(&node, "edge-1").await.unwrap().welcomed().await;
    // Until the watch has told of it.
    while asked.lock().unwrap().is_empty() {
        sessions.look(Timestamp::now()).await.unwrap();
        tokio::task::yield_now().await;
    }
    let path = "/apis/skerry.io/v1alpha1/namespaces/default/edgenodes/edge-1";
    assert_eq!(
        std::mem::take(&mut *asked.lock().unwrap()),
        [format!("GET {path}"), format!("PATCH {path}/status")]
    );
    sessions.look(Timestamp::now()).await.unwrap();
    assert_eq!(*asked.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn so_many_are_joined_at_once_and_the_others_wait() {
    let cluster = Cluster::new().await;
    let manager = Arc::new(cluster.manager().await);
    let mut invited = Vec::new();
    for number in 0..=limits::REQUESTS {
        let name = format!("edge-{number}");
        let token = cluster.invite(&name, HOUR).await;
        invited.push((Node::new(&name), token));
    }
    let reads = Match::any().verb(Verb::Get).resource("edgenodes");
    let reads = reads.times(limits::REQUESTS as u64);
    let unanswered = cluster.faults().inject(reads, Fault::Crash { applied: false });
    let (mut last, token) = invited.pop().unwrap();
    let mut held = JoinSet::new();
    for (mut node, token) in invited {
        let manager = manager.clone();
        held.spawn(async move { node.join(&manager, &token).await });
    }
    while unanswered.hits() < limits::REQUESTS as u64 {
        tokio::task::yield_now().await;
    }
    let mut joining = pin!(last.join(&manager, &token));
    let meanwhile = async {
        for _ in 0..20 {
            assert_eq!(manager.post(JOIN, "{}".to_owned()).await.0, 422);
        }
    };
    tokio::select! {
        joined = &mut joining => panic!("it does not wait: {joined:?}"),
        () = meanwhile => {}
    }
    held.shutdown().await;
    joining.await.unwrap();
}

#[tokio::test]
async fn strangers_that_ask_to_join_cost_the_api_server_a_read_each_and_few_of_them() {
    let cluster = Cluster::new().await;
    let (client, asked) = watched(&cluster);
    let manager = cluster.manager_by(client, Terms::default()).await;
    let guess = JoinRequest {
        node: "stranger".to_owned(),
        token: JoinToken::generate(manager.authority.fingerprint()),
        request: SigningRequest::of(&NodeKey::generate().unwrap()).unwrap(),
    };
    let guess = serde_json::to_string(&guess).unwrap();
    let of_it = |asked: &String| asked.contains("skerry-join-") || asked.ends_with("/stranger");
    assert_eq!(manager.post(JOIN, guess.clone()).await.0, 403);
    let of_one: Vec<_> = asked
        .lock()
        .unwrap()
        .iter()
        .filter(|asked| of_it(asked))
        .cloned()
        .collect();
    assert_eq!(
        of_one.len(),
        1,
        "a token that is not there is looked for, once: {of_one:?}"
    );

    let began = Instant::now();
    for _ in 0..4 * limits::JOINS {
        let (status, sentence) = manager.post(JOIN, guess.clone()).await;
        assert!(
            status == 403 || status == 503 && sentence.contains("too many"),
            "{status}: {sentence}"
        );
    }
    let most = limits::JOINS + u32::try_from(began.elapsed().as_millis() / limits::JOINS_EVERY.as_millis()).unwrap();
    let reads = asked.lock().unwrap().iter().filter(|asked| of_it(asked)).count();
    assert!(reads <= most as usize + 1, "{reads} reads, and {most} there may be");

    // Whoever has a token waits for a moment at most, and takes no turn of others.
    let token = cluster.invite("edge-1", HOUR).await;
    let mut node = Node::new("edge-1");
    while let Err(refused) = node.join(&manager, &token).await {
        assert!(refused.contains("too many"), "{refused}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
