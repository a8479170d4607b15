//! The parties: a cluster, managers of it, and whoever connects to those.

use std::{net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta, PostParams},
};
use rustls::ClientConfig;
use skerry_crds::names::identity::{AUTHORITY, JOIN_TOKEN_TYPE};
use skerry_edge::{
    Downstream, ObjectKey, Upstream,
    identity::{
        Authority, JoinToken,
        trust::{Trust, node_config},
    },
    limits::SUBPROTOCOL,
    message::{Hello, Received},
    transport::{
        Event,
        client::{self, Dialer, NodeSocket, TcpDialer},
        tls::TlsDialer,
    },
};
use skerry_globalmanager::{
    engine::Taken,
    hub::{Answers, Hub, Reported, Reports},
    identity::{Identity, Terms, operator},
    metrics::Metrics,
};
use skerry_sandbox::{ApiServer, api::Faults};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{common::first_term, node::Node};

const NAMESPACE: &str = "default";

/// A cluster.
pub(crate) struct Cluster(ApiServer);

impl Cluster {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// One whose definition takes anything as a revocation.
    pub(crate) async fn lax() -> Self {
        Self::with(|crd| {
            let text = serde_json::to_string(crd)
                .unwrap()
                .replace(r#""format":"date-time","#, "");
            let text = text.replace(r#","format":"date-time""#, "");
            *crd = serde_json::from_str(&text).unwrap();
        })
        .await
    }

    async fn with(change: impl FnOnce(&mut CustomResourceDefinition)) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = ApiServer::new();
        let crds: Api<CustomResourceDefinition> = Api::all(server.client());
        let mut crd = skerry_crds::all()
            .iter()
            .find(|crd| crd.spec.names.kind == "EdgeNode")
            .unwrap()
            .clone();
        change(&mut crd);
        crds.create(&PostParams::default(), &crd).await.unwrap();
        Self(server)
    }

    /// Of the last write.
    pub(crate) fn revision(&self) -> u64 {
        self.0.revision()
    }

    pub(crate) fn client(&self) -> Client {
        self.0.client()
    }

    pub(crate) fn faults(&self) -> &Faults {
        self.0.faults()
    }

    /// Forgets what came until now: whoever was not told has to look anew.
    pub(crate) fn compact(&self) {
        self.0.compact();
    }

    /// A manager that leads.
    pub(crate) async fn manager(&self) -> Manager {
        self.manager_for(Terms::default()).await
    }

    pub(crate) async fn manager_for(&self, terms: Terms) -> Manager {
        self.manager_by(self.client(), terms).await
    }

    /// One that reaches the API server by this client.
    pub(crate) async fn manager_by(&self, client: Client, terms: Terms) -> Manager {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, hub, stop) = (
            listener.local_addr().unwrap(),
            Hub::with_jitter(|| 0.0),
            CancellationToken::new(),
        );
        hub.lead(first_term(), Arc::new(NoReports));
        let identity = Identity {
            client: client.clone(),
            watches: client,
            namespace: NAMESPACE.to_owned(),
            cluster: "cluster".to_owned(),
            terms,
            metrics: Metrics::new(),
        };
        hub.expect_proof();
        let plain = plain(&hub, &stop).await;
        let (theirs, stopped) = (hub.clone(), stop.clone());
        let serving = tokio::spawn(async move { identity.serve(theirs, listener, stopped).await.unwrap() });
        let manager = Manager {
            address,
            plain,
            authority: self.authority().await,
            hub,
            stop,
            serving,
        };
        manager.is_up().await;
        manager
    }

    /// The authority, once there is one.
    pub(crate) async fn authority(&self) -> Authority {
        let secrets: Api<Secret> = Api::namespaced(self.client(), NAMESPACE);
        loop {
            if let Some(secret) = secrets.get_opt(AUTHORITY).await.unwrap() {
                let data = secret.data.unwrap();
                let text = |field: &str| String::from_utf8(data[field].0.clone()).unwrap();
                return Authority::read(&text("tls.crt"), &text("tls.key")).unwrap();
            }
            tokio::task::yield_now().await;
        }
    }

    /// An operator gives an authority.
    pub(crate) async fn give(&self, authority: &Authority) {
        let secrets: Api<Secret> = Api::namespaced(self.client(), NAMESPACE);
        let field = |name: &str, text: &str| (name.to_owned(), ByteString(text.as_bytes().to_vec()));
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(AUTHORITY.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(
                [
                    field("tls.crt", authority.pem()),
                    field("tls.key", &authority.key_pem()),
                ]
                .into(),
            ),
            ..Secret::default()
        };
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }

    pub(crate) async fn invite(&self, node: &str, lifetime: SignedDuration) -> JoinToken {
        self.authority().await;
        operator::invite(&self.client(), NAMESPACE, node, lifetime)
            .await
            .unwrap()
    }

    /// How many tokens are kept.
    pub(crate) async fn tokens(&self) -> usize {
        let secrets: Api<Secret> = Api::namespaced(self.client(), NAMESPACE);
        let kept = secrets.list(&ListParams::default()).await.unwrap();
        kept.iter()
            .filter(|secret| secret.type_.as_deref() == Some(JOIN_TOKEN_TYPE))
            .count()
    }
}

/// Where this hub is to be reached in plain.
pub(crate) async fn plain(hub: &Hub, stop: &CancellationToken) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (hub, stop) = (hub.clone(), stop.clone());
    tokio::spawn(async move { hub.serve(listener, stop).await });
    address
}

pub(crate) struct NoReports;

#[async_trait]
impl Reports for NoReports {
    async fn take(&self, _: &ObjectKey, reports: &[Reported]) -> Answers {
        Answers {
            each: vec![Taken::Refused("nobody reports here".to_owned()); reports.len()],
            asked: false,
        }
    }
}

/// A manager.
pub(crate) struct Manager {
    address: SocketAddr,
    pub(crate) plain: SocketAddr,
    pub(crate) authority: Authority,
    pub(crate) hub: Hub,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Manager {
    /// Waits until it knows what is revoked, so that it sends nobody away for the time being.
    async fn is_up(&self) {
        let probe = Node::certified(
            "probe",
            &self.authority,
            &self.authority,
            Timestamp::now(),
            SignedDuration::from_hours(1),
        );
        while self.session(&probe, "probe").await == Said::Restarting {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until no node is connected.
    pub(crate) async fn without_sessions(&self) {
        while self.hub.snapshot().sessions > 0 {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn stop(self) {
        self.hub.shut_down().await;
        self.stop.cancel();
        self.serving.await.unwrap();
    }

    /// What a node is told first that says it is `name`.
    pub(crate) async fn session(&self, node: &Node, name: &str) -> Said {
        match self.connect(node, name).await {
            Ok(mut session) => session.next().await,
            Err(refused) => Said::Refused(refused),
        }
    }

    /// A connection over which a hello was said.
    pub(crate) async fn connect(&self, node: &Node, name: &str) -> Result<Session, String> {
        let config = watch::channel(Arc::new(node.config(&self.authority))).1;
        let dialer = TlsDialer::new(self.address.to_string(), config);
        Session::begin(&dialer, name).await
    }

    /// What is answered to this, whoever says it.
    pub(crate) async fn post(&self, path: &str, body: String) -> (u16, String) {
        let config = node_config(Trust::Fingerprint(self.authority.fingerprint()), None).unwrap();
        self.ask(config, path, body).await.unwrap()
    }

    /// What is answered to the node where the upgrade's headers say these names.
    pub(crate) async fn upgrade(&self, node: &Node, names: &[&str]) -> (u16, String) {
        let client = https(node.config(&self.authority));
        let upgrade = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", SUBPROTOCOL),
        ];
        let headers = upgrade.into_iter().chain(names.iter().map(|name| ("node-name", *name)));
        let asked = headers.fold(
            client.get(format!("https://{}/", self.address)),
            |asked, (header, value)| asked.header(header, value),
        );
        let answer = asked.send().await.unwrap();
        match answer.status().as_u16() {
            101 => (101, String::new()),
            status => (status, answer.text().await.unwrap()),
        }
    }

    pub(crate) async fn ask(&self, config: ClientConfig, path: &str, body: String) -> Result<(u16, String), String> {
        let asked = https(config).post(format!("https://{}{path}", self.address));
        let asked = asked.header("content-type", "application/json").body(body);
        let answer = asked.send().await.map_err(|error| error.to_string())?;
        Ok((answer.status().as_u16(), answer.text().await.unwrap()))
    }
}

fn https(config: ClientConfig) -> reqwest::Client {
    let client = reqwest::Client::builder().tls_backend_preconfigured(config);
    client.no_proxy().build().unwrap()
}

/// What a manager says.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    Welcome,
    Restarting,
    Refused(String),
}

impl Said {
    pub(crate) fn says(&self, what: &str) -> bool {
        matches!(self, Self::Refused(why) if why.contains(what))
    }
}

/// A connection.
pub(crate) struct Session<D: Dialer = TlsDialer>(NodeSocket<D::Io>);

/// A connection in plain over which somebody said that he is `name`.
pub(crate) async fn say_in_plain(address: SocketAddr, name: &str) -> Session<TcpDialer> {
    let dialer = TcpDialer::new(address.to_string());
    Session::begin(&dialer, name).await.unwrap()
}

impl<D: Dialer> Session<D> {
    async fn begin(dialer: &D, name: &str) -> Result<Self, String> {
        let mut socket = client::connect(dialer).await.map_err(|error| error.to_string())?;
        socket.send(Upstream::Hello(Hello {
            node: name.to_owned(),
            boot: "boot".to_owned(),
            protocol: 1,
            agent: "test".to_owned(),
            stored: None,
            holds: 0,
            window: None,
        }));
        Ok(Self(socket))
    }

    /// One that was let in.
    pub(crate) async fn welcomed(mut self) -> Self {
        assert_eq!(self.next().await, Said::Welcome);
        self
    }

    /// Says these, and goes on until `heard`.
    pub(crate) async fn says(&mut self, frames: impl IntoIterator<Item = Upstream>, heard: impl Fn() -> bool) {
        frames.into_iter().for_each(|frame| self.0.send(frame));
        let heard = async {
            while !heard() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            said = self.next() => panic!("{said:?}"),
            () = heard => {}
        }
    }

    pub(crate) async fn next(&mut self) -> Said {
        loop {
            match self.0.next().await {
                Ok(Event::Frame(Ok(Received::Message(Downstream::Welcome { .. })))) => return Said::Welcome,
                Ok(Event::Frame(Ok(Received::Message(Downstream::Restarting { .. })))) => return Said::Restarting,
                Ok(Event::Frame(Ok(Received::Message(Downstream::Refused { hint, .. })))) => {
                    return Said::Refused(hint);
                }
                Ok(_) => {}
                Err(ended) => return Said::Refused(ended.to_string()),
            }
        }
    }

    /// The version of the next object.
    pub(crate) async fn put(&mut self) -> u64 {
        loop {
            if let Event::Frame(Ok(Received::Message(Downstream::Put { version, .. }))) = self.0.next().await.unwrap() {
                return version;
            }
        }
    }

    /// What it says last.
    pub(crate) async fn farewell(&mut self) -> Said {
        loop {
            match self.next().await {
                Said::Welcome => {}
                said => return said,
            }
        }
    }
}
