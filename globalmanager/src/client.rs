//! The client of the API server: counted, and with time-outs, since kube's own waits for an answer as long as it takes.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use anyhow::Context as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::time::timeout;
use tower::{BoxError, Service};

use crate::{config, metrics::Metrics};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the head of an answer may take: a little longer than what the API server itself gives a request, which is a
/// minute. What follows it of a watch is waited for by its watcher.
const ANSWER: Duration = Duration::from_secs(65);

/// Connects as configured.
pub async fn connect(config: &config::Config, metrics: Arc<Metrics>) -> anyhow::Result<Client> {
    let mut kube = match &config.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| {
                format!(
                    "the kubeconfig {} cannot be read; name another with --kubeconfig",
                    path.display()
                )
            })?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        None => Config::incluster().context(
            "there is no kubeconfig and this process does not run in a pod; name a kubeconfig with --kubeconfig",
        )?,
    };
    if let Some(master) = &config.master {
        kube.cluster_url = master
            .parse()
            .with_context(|| format!("--master {master} is not a URL"))?;
    }
    counted(kube, metrics)
}

/// A client that counts. What the API server turns away for now is for its caller to try again: kube's own repeating would be
/// counted as one request, and the time an answer may take would be that of all attempts.
fn counted(mut kube: Config, metrics: Arc<Metrics>) -> anyhow::Result<Client> {
    kube.connect_timeout = Some(CONNECT);
    kube.default_retry = false;
    let namespace = kube.default_namespace.clone();
    let client = Client::try_from(kube)?;
    Ok(Client::new(Counted { inner: client, metrics }, namespace))
}

/// Counts requests by verb and answer, and gives up those that are not answered: a connection of which half is gone brings
/// neither an answer nor an error.
#[derive(Clone)]
struct Counted {
    inner: Client,
    metrics: Arc<Metrics>,
}

impl Service<Request<Body>> for Counted {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let verb = verb(&request);
        let Self { inner, metrics } = self.clone();
        Box::pin(async move {
            let answer = timeout(ANSWER, inner.send(request)).await;
            let answer = answer.map_err(BoxError::from).and_then(|answer| Ok(answer?));
            metrics.called(verb, answer.as_ref().map_or(0, |answer| answer.status().as_u16()));
            answer
        })
    }
}

/// Kubernetes' verb of a request.
fn verb(request: &Request<Body>) -> &'static str {
    let query = request.uri().query().unwrap_or_default();
    match request.method().as_str() {
        "GET" if query.split('&').any(|part| part == "watch=true") => "watch",
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use k8s_openapi::api::core::v1::Pod;
    use kube::{Api, api::WatchParams};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        time::Instant,
    };
    use tower::service_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_never_answered_is_given_up() {
        let silent = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, BoxError>>());
        let counted = Counted {
            inner: Client::new(silent, "default"),
            metrics: Arc::default(),
        };
        let pods: Api<Pod> = Api::default_namespaced(Client::new(counted, "default"));
        let began = Instant::now();
        pods.get("p").await.unwrap_err();
        assert_eq!(began.elapsed().as_secs(), ANSWER.as_secs());
        assert!(pods.watch(&WatchParams::default(), "1").await.is_err());
        assert_eq!(began.elapsed().as_secs(), 2 * ANSWER.as_secs());
    }

    #[tokio::test]
    async fn whoever_is_turned_away_is_told_and_it_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let busy = tokio::spawn(async move {
            loop {
                let (mut asked, _) = listener.accept().await.unwrap();
                assert!(asked.read(&mut [0; 4096]).await.unwrap() > 0);
                let answer = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                asked.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let metrics = Metrics::new();
        let client = counted(Config::new(url.parse().unwrap()), metrics.clone()).unwrap();
        let error = Api::<Pod>::default_namespaced(client).get("p").await.unwrap_err();
        busy.abort();
        assert!(
            matches!(&error, kube::Error::Api(status) if status.code == 429),
            "{error:?}"
        );
        let told = metrics.encode();
        let calls: Vec<_> = told
            .lines()
            .filter(|line| line.starts_with("skerry_api_requests_total{"))
            .collect();
        assert_eq!(calls, [r#"skerry_api_requests_total{verb="get",code="429"} 1"#]);
    }
}
