//! All that can come to the manager's port for nodes over TLS, once TLS is there: requests to join and to renew, and sessions,
//! of nobody or of a node with a certificate.

use std::{future::Future, sync::Arc};

use axum::serve::Listener;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ObjectMeta, PostParams},
};
use rustls_pki_types::ServerName;
use serde_json::json;
use skerry_crds::{
    names::identity::{AUTHORITY, join_token},
    skerry::v1alpha1::EdgeNode,
};
use skerry_edge::{
    Downstream,
    identity::{
        Authority, JoinToken, MANAGER, NodeKey, TokenRecord,
        trust::{Trust, node_config},
    },
    message::Received,
};
use skerry_globalmanager::{
    hub::Hub,
    identity::{Identity, Terms},
    metrics::Metrics,
};
use skerry_sandbox::ApiServer;
use tokio::io::DuplexStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

use crate::{
    Came,
    identity::TOKEN,
    manager_doors::{NODE, came},
    visits::visit,
};

const NAMESPACE: &str = "default";

/// What comes; before it, each in a line of its own, whether it comes with the node's certificate (`node`), and what the API
/// server has as the time before which the node's certificates are revoked (`revoked …`).
struct Input<'a> {
    certified: bool,
    revoked: Option<&'a str>,
    came: &'a [u8],
}

impl<'a> Input<'a> {
    fn read(data: &'a [u8]) -> Self {
        let certified = data.starts_with(b"node\n");
        let data = data.strip_prefix(b"node\n").unwrap_or(data);
        let revoked = data.strip_prefix(b"revoked ").and_then(|rest| {
            let at = rest.iter().position(|byte| *byte == b'\n')?;
            let (text, came) = rest.split_at(at);
            Some((std::str::from_utf8(text).ok()?, came.get(1..)?))
        });
        Self {
            certified,
            revoked: revoked.map(|(text, _)| text),
            came: revoked.map_or(data, |(_, came)| came),
        }
    }
}

pub(crate) fn join_door(data: &[u8]) -> Came {
    let input = Input::read(data);
    let authority = Authority::new("cluster", Timestamp::now()).unwrap();
    let bring = async |here| {
        let wire = over_tls(&authority, input.certified, here).await;
        visit(wire, input.came).await
    };
    let door = async |hub: Hub, listener, stop| {
        let client = cluster(&authority, input.revoked).await;
        serve(client, hub, listener, stop).await;
    };
    let came = came(bring, door, |text| match Downstream::decode(text) {
        Ok(Received::Message(frame)) => frame.name().to_owned(),
        other => panic!("a node is told {text}, which is {other:?}"),
    });
    match came {
        // An answer that is no upgrade.
        Came::Refused(words) if words.starts_with("HTTP/1.1 20") => Came::Taken(words),
        came => came,
    }
}

fn serve(
    client: Client,
    hub: Hub,
    listener: impl Listener<Io = DuplexStream, Addr = std::net::SocketAddr>,
    stop: CancellationToken,
) -> impl Future<Output = ()> {
    let identity = Identity {
        watches: client.clone(),
        client,
        namespace: NAMESPACE.to_owned(),
        cluster: "cluster".to_owned(),
        terms: Terms::default(),
        metrics: Metrics::new(),
    };
    async move { identity.serve_on(hub, listener, stop).await.unwrap() }
}

async fn over_tls(authority: &Authority, certified: bool, here: DuplexStream) -> TlsStream<DuplexStream> {
    let trust = Trust::Authority(authority.certificate().clone());
    let key = NodeKey::generate().unwrap();
    let certificate = certified.then(|| {
        let hour = SignedDuration::from_hours(1);
        authority.issue(NODE, &key.request().unwrap(), Timestamp::now(), hour)
    });
    let identity = certificate.map(|certificate| (certificate.unwrap(), &key));
    let config = node_config(trust, identity).unwrap();
    let name = ServerName::try_from(MANAGER).unwrap();
    let wire = TlsConnector::from(Arc::new(config)).connect(name, here);
    wire.await.unwrap()
}

/// An API server with the authority, a token for the node (no manager looks at whose authority a token names) and, where anything is revoked of it, the node.
async fn cluster(authority: &Authority, revoked: Option<&str>) -> Client {
    let client = ApiServer::new().client();
    let definition = skerry_crds::all().iter().find(|crd| crd.spec.names.kind == "EdgeNode");
    // It takes anything as a time: what the API server would refuse may be there from before that it did.
    let text = serde_json::to_string(definition.unwrap()).unwrap();
    let lax = text
        .replace(r#""format":"date-time","#, "")
        .replace(r#","format":"date-time""#, "");
    let definition: CustomResourceDefinition = serde_json::from_str(&lax).unwrap();
    create(&Api::all(client.clone()), &definition).await;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let pair = [
        ("tls.crt", authority.pem().to_owned()),
        ("tls.key", authority.key_pem()),
    ];
    create(&secrets, &secret(AUTHORITY.to_owned(), &pair)).await;
    let token: JoinToken = TOKEN.parse().unwrap();
    let record = TokenRecord::new(&token, NODE, Timestamp::now(), Timestamp::MAX);
    let record = [("record", serde_json::to_string(&record).unwrap())];
    create(&secrets, &secret(join_token(&token.id), &record)).await;
    if let Some(revoked) = revoked {
        let kind = ApiResource::erase::<EdgeNode>(&());
        let mut node = DynamicObject::new(NODE, &kind);
        node.data = json!({"spec": {"revokedBefore": revoked}});
        create(&Api::namespaced_with(client.clone(), NAMESPACE, &kind), &node).await;
    }
    client
}

async fn create<K>(api: &Api<K>, object: &K)
where
    K: Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    api.create(&PostParams::default(), object).await.unwrap();
}

fn secret(name: String, fields: &[(&str, String)]) -> Secret {
    let field = |(name, text): &(&str, String)| ((*name).to_owned(), ByteString(text.clone().into_bytes()));
    Secret {
        metadata: ObjectMeta {
            name: Some(name),
            ..ObjectMeta::default()
        },
        data: Some(fields.iter().map(field).collect()),
        ..Secret::default()
    }
}
