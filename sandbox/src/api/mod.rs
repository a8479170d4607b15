//! The API server: storage, verbs, watches, server-side apply, faults.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use http::Request;
use jiff::Timestamp;

use self::front::Front;

mod about;
mod apply;
mod builtin;
mod clock;
mod convert;
mod crd;
mod faults;
mod field_error;
mod front;
mod ids;
mod lifecycle;
mod log;
mod logs;
mod negotiate;
mod object;
mod options;
mod perform;
mod registry;
mod request;
mod resource;
mod respond;
mod selector;
mod serve;
mod state;
mod status;
mod store;
mod verbs;
mod watch;
mod wire;

pub use clock::Clock;
pub use faults::{Fault, FaultHandle, Faults, Match, Past};
pub use field_error::{FieldError, FieldErrorKind};
pub use log::{LogEntry, Mark, RequestLog};
pub use logs::{LogRequest, LogSource, LogStream};
pub use request::{RequestInfo, Verb};
pub use resource::{Generation, Resource, ScalePaths};
pub use wire::Wire;

/// Who asks where nobody says so.
const ADMIN: &str = "system:admin";

/// An API server in memory. Clones are cheap and share it.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// What uids and generated names are made from.
    pub seed: u64,
    /// The time when the server starts. From there it follows tokio's clock.
    pub start: Timestamp,
    /// Changes kept per resource; a watch from before is answered 410.
    pub window: usize,
    /// The second byte of services' addresses, 127.`service_block`.0.0/16. Servers beside each other need two.
    pub service_block: u8,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            start: Timestamp::now(),
            window: 10_000,
            service_block: 96,
        }
    }
}

struct Inner {
    state: Mutex<state::State>,
    front: Front,
    logs: logs::LogSources,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, state::State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::new()
    }
}

impl ApiServer {
    /// A server with the namespaces `default` and `kube-system` and the built-in resources.
    pub fn new() -> Self {
        Self::with_options(&Options::default())
    }

    /// The same, set up otherwise.
    pub fn with_options(options: &Options) -> Self {
        let clock = Clock::starting_at(options.start);
        let state = Mutex::new(state::State::new(
            clock,
            options.seed,
            options.window,
            options.service_block,
        ));
        Self {
            inner: Arc::new(Inner {
                state,
                front: Front::default(),
                logs: logs::LogSources::default(),
            }),
        }
    }

    /// A client of this server, without a network, as user `system:admin`.
    pub fn client(&self) -> kube::Client {
        self.client_as(ADMIN)
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
            let user = asking(request.headers());
            async move { server.serve(&user, request).await }
        })
    }

    /// The faults to inject.
    pub fn faults(&self) -> &Faults {
        &self.inner.front.faults
    }

    /// What was asked of this server.
    pub fn requests(&self) -> &RequestLog {
        &self.inner.front.log
    }

    /// Who has the logs of a node's pods.
    pub fn set_log_source(&self, node: &str, source: LogSource) {
        self.inner.logs.set(node, source);
    }

    /// The server's clock.
    pub fn clock(&self) -> Clock {
        self.inner.lock().clock
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.inner.lock().store.revision()
    }

    /// Forgets all history, as etcd does now and then: whoever comes back with an older revision is answered 410.
    pub fn compact(&self) {
        self.inner.lock().store.compact();
    }
}

/// Who sent a request over HTTP.
fn asking(headers: &http::HeaderMap) -> String {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let token = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    header("impersonate-user").or(token).unwrap_or(ADMIN).to_owned()
}
