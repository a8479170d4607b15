//! The two servers: the one in memory and the real one.

use std::{fs, time::Duration};

use http::{Request, header};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{Patch, PatchParams},
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use skerry_sandbox::ApiServer;
use skerry_tests::{
    definitions::install,
    planes::{CONTROL_PLANES, Plane},
};

use crate::{answer::Answer, kinds::KINDS};

/// How long an answer may take; watches end by themselves earlier.
const PATIENCE: Duration = Duration::from_secs(60);

/// Revisions in the cases are higher.
pub const FIRST_REVISION: u64 = 700;

/// Who asks; the name by which fields are owned comes from it.
const USER_AGENT: &str = "contract/1.0";

/// Both servers.
pub struct Pair {
    /// Kubernetes.
    pub real: Client,
    /// Ours.
    pub sandbox: Client,
}

impl Pair {
    /// Both, if a real one is there.
    pub async fn start() -> Option<Self> {
        let file = std::env::var_os(CONTROL_PLANES)?;
        let list = fs::read(&file).expect("the list of control planes can be read");
        let planes: Vec<Plane> = serde_json::from_slice(&list).expect("the list of control planes is JSON");
        let plane = planes.first().expect("there is a control plane");
        // Another test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(&plane.kubeconfig).expect("the kubeconfig can be read");
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("the kubeconfig is one");
        // Every answer counts, refusals too.
        config.default_retry = false;
        let server = ApiServer::new();
        let pair = Self {
            real: Client::try_from(config).expect("a client can be made"),
            sandbox: server.client(),
        };
        let ours: Vec<_> = KINDS.iter().filter(|kind| kind.custom).map(|kind| kind.name).collect();
        tokio::join!(install(&pair.real, &ours), install(&pair.sandbox, &ours));
        tokio::join!(count_up(&pair.real), count_up(&pair.sandbox));
        plane.compact(FIRST_REVISION).await;
        server.compact();
        Some(pair)
    }
}

/// Writes until revisions are numbers that nothing else in a message is.
async fn count_up(client: &Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let mut revision = 0;
    while revision < FIRST_REVISION {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "count"}, "data": {"to": revision.to_string()}});
        let written = maps
            .patch("count", &PatchParams::apply("count").force(), &Patch::Apply(map))
            .await
            .expect("a map is accepted");
        revision = written
            .resource_version()
            .and_then(|version| version.parse().ok())
            .expect("it has a revision");
    }
}

/// A request, filled in.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Its method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The body's media type.
    pub content_type: Option<String>,
    /// The wanted media type.
    pub accept: String,
    /// The body.
    pub body: Vec<u8>,
}

/// Asks a server.
pub async fn ask(client: &Client, ask: &Ask) -> Answer {
    let mut request = Request::builder()
        .method(ask.method.as_str())
        .uri(&ask.path)
        .header(header::ACCEPT, &ask.accept)
        .header(header::USER_AGENT, USER_AGENT);
    if let Some(content_type) = &ask.content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    let request = request
        .body(Body::from(ask.body.clone()))
        .unwrap_or_else(|error| panic!("{} {}: {error}", ask.method, ask.path));
    let exchange = async {
        let response = client.send(request).await.expect("the server answers");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("the answer is complete").to_bytes();
        (parts, body)
    };
    let (parts, body) = tokio::time::timeout(PATIENCE, exchange)
        .await
        .unwrap_or_else(|_| panic!("no answer in time to {} {}", ask.method, ask.path));
    let text = |value: &header::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let content_type = parts.headers.get(header::CONTENT_TYPE).map(text).unwrap_or_default();
    let watched = ask.path.contains("watch=");
    Answer {
        code: parts.status.as_u16(),
        warnings: parts.headers.get_all(header::WARNING).iter().map(text).collect(),
        body: Answer::parse(&content_type, watched, &body),
        content_type,
    }
}
