//! What stands in front of an API server in a test: the log of what is asked, and the faults that hit it.

use axum::body::Body;
use http::{Response, StatusCode};
use jiff::Timestamp;

use super::{
    faults::{Fault, Faults, Hit},
    log::RequestLog,
    respond,
    serve::Incoming,
    status::{ApiError, GroupResource, MODIFIED},
    watch::error_event,
};

/// Whoever answers the requests that are let through.
pub(super) trait Answer {
    /// Answers; [`Fault::DropWatch`] and [`Fault::Stale`] are up to it.
    fn answer(&self, incoming: &Incoming, fault: Option<&Fault>) -> impl Future<Output = Response<Body>> + Send;
}

/// The log and the faults.
#[derive(Default)]
pub(super) struct Front {
    pub(super) faults: Faults,
    pub(super) log: RequestLog,
}

impl Front {
    /// Has a request logged, hit by faults or not, and answered.
    pub(super) async fn pass(&self, server: &impl Answer, incoming: &Incoming, at: Timestamp) -> Response<Body> {
        let sequence = self.log.push(at, incoming.request.clone());
        let response = self.with_faults(server, incoming).await;
        self.log.answered(sequence, response.status().as_u16());
        response
    }

    async fn with_faults(&self, server: &impl Answer, incoming: &Incoming) -> Response<Body> {
        let mut other = None;
        for mut hit in self.faults.hits(&incoming.request) {
            if let Fault::Latency(delay) = hit.fault {
                hit.reached();
                // What is late no more is answered at once.
                let _ = tokio::time::timeout(delay, hit.removed()).await;
            } else {
                other = Some(hit);
            }
        }
        let Some(hit) = other else {
            return server.answer(incoming, None).await;
        };
        let response = match &hit.fault {
            Fault::Conflict => {
                let what = GroupResource {
                    group: incoming.request.group.clone(),
                    resource: incoming.request.resource.clone(),
                };
                respond::error(&ApiError::conflict(&what, &incoming.request.name, MODIFIED))
            }
            Fault::TooManyRequests { retry_after } => respond::error(&ApiError::too_many_requests(
                "the server has received too many requests and has asked us to try again later",
                *retry_after,
            )),
            Fault::InternalError => respond::error(&ApiError::internal("injected fault")),
            Fault::Timeout { applied } => {
                if *applied {
                    server.answer(incoming, None).await;
                }
                respond::error(&ApiError::timeout())
            }
            Fault::Crash { applied } => {
                let met = Met(&hit);
                if *applied {
                    server.answer(incoming, None).await;
                }
                drop(met);
                return std::future::pending().await;
            }
            Fault::ExpireWatch => {
                let event = error_event(&ApiError::expired("too old resource version: 1 (2)"));
                respond::json(StatusCode::OK, event)
            }
            fault @ (Fault::DropWatch { .. } | Fault::Stale(_) | Fault::Latency(_)) => {
                server.answer(incoming, Some(fault)).await
            }
        };
        hit.reached();
        response
    }
}

/// A fault that was met, which is told when this goes: also where the caller has crashed at another one meanwhile and hears
/// of nothing any more.
struct Met<'a>(&'a Hit);

impl Drop for Met<'_> {
    fn drop(&mut self) {
        self.0.reached();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::FutureExt as _;
    use http::Request;

    use super::*;
    use crate::api::{
        Match,
        serve::{Asked, read},
    };

    /// An API server that is asked and answers nobody.
    struct Busy;

    impl Answer for Busy {
        async fn answer(&self, _: &Incoming, _: Option<&Fault>) -> Response<Body> {
            pending().await
        }
    }

    #[tokio::test]
    async fn whoever_is_gone_before_a_crash_takes_effect_has_met_it() {
        let front = Front::default();
        let crash = front.faults.inject(Match::any().nth(1), Fault::Crash { applied: true });
        let request = Request::get("/api/v1/namespaces/default/configmaps/a").body(Body::empty());
        let Asked::Resource(incoming) = read("user", request.unwrap()).await else {
            panic!("a resource is asked for");
        };
        let mut caller = Box::pin(front.pass(&Busy, &incoming, Timestamp::UNIX_EPOCH));
        assert!((&mut caller).now_or_never().is_none());
        assert_eq!(crash.hits(), 0);
        drop(caller);
        assert_eq!(crash.hits(), 1);
    }
}
