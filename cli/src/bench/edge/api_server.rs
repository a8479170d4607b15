//! The sandbox's API server in a process of its own: without controllers and without nodes, so that what it costs is what
//! objects cost.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::serve::ListenerExt as _;
use serde_json::json;
use skerry_sandbox::ApiServer;
use tokio::{
    net::TcpListener,
    time::{Instant, sleep},
};

use crate::{failure::Failure, process::Process, signals};

/// How long it may take until it can be asked.
const START: Duration = Duration::from_secs(20);
/// How often it is looked whether it can: another process raises no event here.
const LOOK: Duration = Duration::from_millis(20);

/// Starts one; its kubeconfig is in the folder then.
pub(super) async fn start(folder: &Path) -> Result<(Process, PathBuf), Failure> {
    let kubeconfig = folder.join("api-server.kubeconfig");
    let arguments = [
        "bench-part",
        "api-server",
        "--kubeconfig",
        &kubeconfig.display().to_string(),
    ];
    let mut process = Process::start("api-server", &arguments, &[], folder)?;
    let begun = Instant::now();
    while !kubeconfig.exists() {
        if let Some(ended) = process.ended() {
            return Err(ended);
        }
        if begun.elapsed() > START {
            let hint = format!("{} says more", folder.join("api-server.log").display());
            return Err(Failure::new(
                format!("the API server does not listen within {START:?}"),
                hint,
            ));
        }
        sleep(LOOK).await;
    }
    Ok((process, kubeconfig))
}

/// Is one, until SIGTERM.
pub(super) async fn run(kubeconfig: &Path) -> Result<(), Failure> {
    let stop = signals::stop()?;
    let unusable = |error: std::io::Error| Failure::new(error, "see whether the disk is full");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(unusable)?;
    let server = format!("http://{}", listener.local_addr().map_err(unusable)?);
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": server}}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    });
    let listener = listener.tap_io(|connection| {
        // Events of watches are small and each is waited for. Where that cannot be had, they are slow, not lost.
        let _ = connection.set_nodelay(true);
    });
    // Whoever waits for the file finds it whole.
    let unfinished = kubeconfig.with_extension("unfinished");
    std::fs::write(&unfinished, text.to_string()).map_err(unusable)?;
    std::fs::rename(&unfinished, kubeconfig).map_err(unusable)?;
    let serve = axum::serve(listener, ApiServer::new().router());
    tokio::select! {
        ended = serve.into_future() => ended.map_err(unusable),
        // Watches never end by themselves, so it is not waited for them.
        () = stop.cancelled() => Ok(()),
    }
}
