//! An API server in memory that listens on loopback, for managers that are processes of their own.

use std::{future::Future, path::Path, sync::LazyLock, time::Duration};

use serde_json::json;
use skerry_sandbox::{ApiServer, api::Options};
use tokio::time::{interval, timeout};

use crate::definitions::install;

/// How long anything may take: generous, since nothing is measured here.
const PATIENCE: Duration = Duration::from_secs(120);

/// A client of what listens here. Made once: in making it all authorities are read that others are trusted by. Each scenario has
/// a runtime of its own, so each question has its own connection.
pub(crate) static HTTP: LazyLock<reqwest::Client> = LazyLock::new(|| {
    // Whoever is first installs it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).build();
    client.expect("a client can be made")
});

/// Serves one with our CRDs of these kinds; `kubeconfig` in `folder` leads to it. Each is another cluster.
pub async fn serve(folder: &Path, kinds: &[&str]) -> ApiServer {
    let api = ApiServer::with_options(&Options {
        seed: rand::random(),
        ..Options::default()
    });
    install(&api.client(), kinds).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback has a port");
    let address = listener.local_addr().expect("a listener has an address");
    tokio::spawn(axum::serve(listener, api.router()).into_future());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "s",
        "clusters": [{"name": "s", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "s", "context": {"cluster": "s", "user": "u"}}],
    });
    std::fs::write(folder.join("kubeconfig"), kubeconfig.to_string()).expect("the kubeconfig can be written");
    api
}

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    skerry_sandbox::free_port().expect("loopback has a port")
}

/// Asks again and again, since another process raises no event here; nothing where there is no answer in all that time.
pub async fn asked_again<T, F: Future<Output = Option<T>>>(mut ask: impl FnMut() -> F) -> Option<T> {
    let answer = async {
        let mut often = interval(Duration::from_millis(50));
        loop {
            often.tick().await;
            if let Some(answer) = ask().await {
                return answer;
            }
        }
    };
    timeout(PATIENCE, answer).await.ok()
}
