//! An API server in memory that listens on loopback, for managers that are processes of their own.

use std::path::Path;

use serde_json::json;
use skerry_sandbox::ApiServer;

use crate::definitions::install;

/// Serves one with our CRDs of these kinds; `kubeconfig` in `folder` leads to it.
pub async fn serve(folder: &Path, kinds: &[&str]) -> ApiServer {
    let api = ApiServer::new();
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
