//! Identity on the edge link, by a manager that has the rights of the chart's roles and no other.

use std::sync::Arc;

use jiff::SignedDuration;
use rustls::ClientConfig;
use skerry_edge::{
    Downstream,
    identity::{
        Issued, JOIN, JoinRequest, JoinToken, NodeKey, SigningRequest, read_certificate,
        trust::{Trust, node_config},
    },
    message::Received,
    transport::{Event, client, tls::TlsDialer},
};
use skerry_globalmanager::{
    hub::Hub,
    identity::{Identity, Terms, operator},
    metrics::Metrics,
};
use skerry_tests::{NAMESPACE, definitions::install};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::Cluster;

const NODE: &str = "edge-1";

#[tokio::test(start_paused = true)]
#[ignore = "asks for a real control plane: tests/cluster/run"]
async fn a_node_joins_and_is_turned_away_with_the_rights_of_the_chart() {
    let cluster = Cluster::idle().await;
    let operator = cluster.api.client_as("operator");
    install(&operator, &["EdgeNode"]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let identity = Identity {
        client: cluster.api.manager("manager"),
        watches: cluster.api.manager("manager"),
        namespace: NAMESPACE.to_owned(),
        cluster: "cluster".to_owned(),
        terms: Terms::default(),
        metrics: Metrics::new(),
    };
    let stop = CancellationToken::new();
    let serving = tokio::spawn(identity.serve(Hub::default(), listener, stop.clone()));

    let hour = SignedDuration::from_hours(1);
    let invite = async || operator::invite(&operator, NAMESPACE, NODE, hour).await.ok();
    let token = cluster.until("an authority", invite).await;
    let key = NodeKey::generate().unwrap();
    let issued: Issued = serde_json::from_str(&join(&address, &token, &key).await.unwrap()).unwrap();
    let expires = cluster
        .kubectl
        .field(&format!("edgenode/{NODE}"), ".status.certificate.expires")
        .await;
    assert!(expires.ends_with('Z'), "{expires}");

    operator::revoke(&operator, NAMESPACE, NODE).await.unwrap();
    let again = join(&address, &token, &key).await.unwrap_err();
    assert!(again.contains("was turned away"), "the token was its, too: {again}");
    let certificate = read_certificate(&issued.certificate).unwrap();
    let trust = Trust::Authority(read_certificate(&issued.authority).unwrap());
    let config = node_config(trust, Some((certificate, &key))).unwrap();
    let dialer = TlsDialer::new(address, watch::channel(Arc::new(config)).1);
    // Before the watch has told the manager, it sends the node away for a while, because it leads nothing.
    let refused = async || match client::connect(&dialer).await.unwrap().next().await {
        Ok(Event::Frame(Ok(Received::Message(Downstream::Refused { hint, .. })))) => Some(hint),
        _ => None,
    };
    let hint = cluster.until("the refusal", refused).await;
    assert!(hint.contains("was turned away"), "{hint}");
    stop.cancel();
    serving.await.unwrap().unwrap();
}

/// What the manager answers to a node that joins.
async fn join(manager: &str, token: &JoinToken, key: &NodeKey) -> Result<String, String> {
    let question = JoinRequest {
        node: NODE.to_owned(),
        token: token.clone(),
        request: SigningRequest::of(key).unwrap(),
    };
    let config: ClientConfig = node_config(Trust::Fingerprint(token.authority), None).unwrap();
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .no_proxy()
        .build();
    let asked = client.unwrap().post(format!("https://{manager}{JOIN}"));
    let asked = asked.header("content-type", "application/json");
    let answer = asked
        .body(serde_json::to_string(&question).unwrap())
        .send()
        .await
        .unwrap();
    let joined = answer.status().is_success();
    let text = answer.text().await.unwrap();
    if joined { Ok(text) } else { Err(text) }
}
