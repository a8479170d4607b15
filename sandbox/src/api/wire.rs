//! The way to an API server that is not ours, with the same log and the same faults as the one in memory has.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    error::Error,
    iter::successors,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::{
    Faults, RequestLog,
    faults::{Fault, Past},
    front::{Answer, Front},
    request::Verb,
    respond,
    serve::{Asked, Incoming, read},
    status::ApiError,
};

/// A way to an API server. Clones share log and faults.
#[derive(Clone)]
pub struct Wire {
    client: kube::Client,
    front: Arc<Front>,
    traffic: Arc<Traffic>,
}

/// What is under way at the API server.
#[derive(Default)]
struct Traffic {
    /// Of each user, watches that are open, and other requests that are unanswered. Signs of life, which never end, are left
    /// out.
    counts: Mutex<BTreeMap<(String, bool), usize>>,
    /// Of each user, what the watches since the last end of all stand by.
    stands: Mutex<BTreeMap<String, watch::Sender<()>>>,
}

/// A request that is under way for as long as this is kept.
struct UnderWay {
    traffic: Arc<Traffic>,
    user: String,
    is_watch: bool,
}

impl Traffic {
    fn count(&self, change: impl FnOnce(&mut BTreeMap<(String, bool), usize>)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn stands(&self) -> MutexGuard<'_, BTreeMap<String, watch::Sender<()>>> {
        self.stands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when the watches are ended that this user has by now.
    fn end_of_watches(&self, user: &str) -> impl Future<Output = ()> + Send + use<> {
        let mut stands = self.stands().entry(user.to_owned()).or_default().subscribe();
        async move { while stands.changed().await.is_ok() {} }
    }
}

impl UnderWay {
    fn new(traffic: &Arc<Traffic>, incoming: &Incoming) -> Self {
        let (user, is_watch) = (incoming.request.user.clone(), incoming.request.verb == Verb::Watch);
        traffic.count(|counts| *counts.entry((user.clone(), is_watch)).or_default() += 1);
        let traffic = traffic.clone();
        Self {
            traffic,
            user,
            is_watch,
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let key = (std::mem::take(&mut self.user), self.is_watch);
        self.traffic.count(|counts| {
            if let Some(count) = counts.get_mut(&key) {
                *count -= 1;
            }
        });
    }
}

impl Wire {
    /// A way over `client`, whose user may impersonate others.
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            front: Arc::default(),
            traffic: Arc::default(),
        }
    }

    /// A client that speaks as `user`, a member of `groups`.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        let who = std::iter::once(("impersonate-user", user));
        let who = who.chain(groups.iter().map(|&group| ("impersonate-group", group)));
        self.speaking(user, who.map(|(header, value)| (header, value.to_owned())).collect())
    }

    /// A client that speaks as whoever `client` is, and that faults and the log know as `name`.
    pub fn client_over(&self, client: kube::Client, name: &str) -> kube::Client {
        let wire = Self { client, ..self.clone() };
        wire.speaking(name, vec![])
    }

    fn speaking(&self, name: &str, who: Vec<(&'static str, String)>) -> kube::Client {
        let (wire, name) = (self.clone(), name.to_owned());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (wire, name, who) = (wire.clone(), name.clone(), who.clone());
            async move { Ok::<_, Infallible>(wire.serve(&name, &who, request.map(Body::new)).await) }
        });
        kube::Client::new(service, "default")
    }

    /// The faults to inject.
    pub fn faults(&self) -> &Faults {
        &self.front.faults
    }

    /// What was asked by the clients of this way.
    pub fn requests(&self) -> &RequestLog {
        &self.front.log
    }

    /// How many watches of a user are open.
    pub fn watches(&self, user: &str) -> usize {
        let mut open = 0;
        self.traffic
            .count(|counts| open = counts.get(&(user.to_owned(), true)).copied().unwrap_or_default());
        open
    }

    /// Ends the watches that a user has open, as an API server does that was watched for long enough. Those of Nodes and
    /// Leases go on: they are signs of life.
    pub fn end_watches(&self, user: &str) {
        self.traffic.stands().remove(user);
    }

    /// Whether the API server owes anybody an answer; watches apart.
    pub fn is_asked(&self) -> bool {
        let mut asked = false;
        self.traffic
            .count(|counts| asked = counts.iter().any(|((_, is_watch), count)| !is_watch && *count > 0));
        asked
    }

    async fn serve(&self, user: &str, who: &[(&'static str, String)], mut request: Request<Body>) -> Response<Body> {
        for (header, value) in who {
            if let Ok(value) = HeaderValue::from_str(value) {
                request.headers_mut().append(*header, value);
            }
        }
        match read(user, request).await {
            Asked::Resource(incoming) => self.front.pass(self, &incoming, Timestamp::now()).await,
            Asked::Other(request) => self.forward(request).await,
            Asked::Refused(error) => respond::error(&error),
        }
    }

    async fn forward(&self, request: Request<Body>) -> Response<Body> {
        let request = match buffered(request).await {
            Ok(request) => request,
            Err(error) => return respond::error(&ApiError::internal(error.to_string())),
        };
        match self.client.send(request).await {
            Ok(response) => response.map(Body::new),
            // What a proxy says of a server that is away.
            Err(error) => {
                let causes = successors(Some(&error as &dyn Error), |&error| error.source());
                let why: Vec<_> = causes.map(ToString::to_string).collect();
                let mut away = ApiError::internal(why.join(": "));
                away.code = StatusCode::SERVICE_UNAVAILABLE;
                respond::error(&away)
            }
        }
    }

    async fn send(&self, incoming: &Incoming, uri: Uri) -> Response<Body> {
        let mut request = Request::new(Body::from(incoming.body.clone()));
        *request.method_mut() = incoming.parts.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = incoming.parts.headers.clone();
        let is_sign_of_life = ["leases", "nodes"].contains(&incoming.request.resource.as_str());
        let under_way = (!is_sign_of_life).then(|| UnderWay::new(&self.traffic, incoming));
        let end = self.traffic.end_of_watches(&incoming.request.user);
        let response = self.forward(request).await;
        match under_way {
            Some(watch) if watch.is_watch => response.map(|body| kept_with(until(body, end), watch)),
            _ => response,
        }
    }

    /// Where an earlier state is listed.
    async fn earlier(&self, incoming: &Incoming, past: Past) -> Option<Uri> {
        let path = incoming.parts.uri.path();
        let mut newest = Request::new(Body::empty());
        *newest.method_mut() = Method::GET;
        *newest.uri_mut() = format!("{path}?limit=1").parse().ok()?;
        let answer = self.forward(newest).await.into_body().collect().await.ok()?.to_bytes();
        let answer: Value = serde_json::from_slice(&answer).ok()?;
        let newest: u64 = answer.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()?;
        let query = incoming.parts.uri.query().unwrap_or_default();
        let mut wanted = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if !matches!(&*name, "resourceVersion" | "resourceVersionMatch") {
                wanted.append_pair(&name, &value);
            }
        }
        wanted.append_pair("resourceVersion", &past.revision(newest).max(1).to_string());
        wanted.append_pair("resourceVersionMatch", "Exact");
        format!("{path}?{}", wanted.finish()).parse().ok()
    }
}

impl Answer for Wire {
    async fn answer(&self, incoming: &Incoming, fault: Option<&Fault>) -> Response<Body> {
        let uri = match fault {
            Some(Fault::Stale(past)) if incoming.request.verb == Verb::List => self.earlier(incoming, *past).await,
            _ => None,
        };
        let response = self
            .send(incoming, uri.unwrap_or_else(|| incoming.parts.uri.clone()))
            .await;
        match fault {
            Some(Fault::DropWatch { after }) => response.map(|body| first_lines(body, *after)),
            _ => response,
        }
    }
}

async fn buffered(request: Request<Body>) -> Result<Request<kube::client::Body>, axum::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Request::from_parts(parts, kube::client::Body::from(body)))
}

/// The body, and something that is kept for as long as it is read.
fn kept_with<T: Send + 'static>(body: Body, kept: T) -> Body {
    let chunks = stream::unfold((body.into_data_stream(), kept), |(mut chunks, kept)| async move {
        let chunk = chunks.next().await?;
        Some((chunk, (chunks, kept)))
    });
    Body::from_stream(chunks)
}

/// The body up to an event.
fn until(body: Body, end: impl Future<Output = ()> + Send + 'static) -> Body {
    Body::from_stream(body.into_data_stream().take_until(end))
}

/// The body up to the end of so many lines.
fn first_lines(body: Body, lines: usize) -> Body {
    let cut = stream::unfold((body.into_data_stream(), lines), |(mut chunks, left)| async move {
        if left == 0 {
            return None;
        }
        let chunk = match chunks.next().await? {
            Ok(chunk) => chunk,
            Err(error) => return Some((Err(error), (chunks, 0))),
        };
        let (chunk, left) = cut_after(chunk, left);
        Some((Ok(chunk), (chunks, left)))
    });
    Body::from_stream(cut)
}

fn cut_after(chunk: Bytes, mut lines: usize) -> (Bytes, usize) {
    for (index, byte) in chunk.iter().enumerate() {
        if *byte == b'\n' {
            lines -= 1;
            if lines == 0 {
                return (chunk.slice(..=index), 0);
            }
        }
    }
    (chunk, lines)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// An API server at which nothing ever happens.
    fn quiet() -> kube::Client {
        let silence = || Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let service = tower::service_fn(move |_: Request<kube::client::Body>| async move {
            Ok::<_, Infallible>(Response::new(silence()))
        });
        kube::Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_users_watches_are_ended_and_others_are_not() {
        let wire = Wire::new(quiet());
        let watch = async |user: &str| {
            let request = Request::get("/api/v1/pods?watch=true").body(kube::client::Body::empty());
            let answer = wire.client_over(quiet(), user).send(request.unwrap()).await;
            answer.unwrap().into_body()
        };
        let (ended, of_another) = (watch("one").await, watch("other").await);
        wire.end_watches("one");
        assert!(ended.collect().await.unwrap().to_bytes().is_empty());
        assert_eq!((wire.watches("one"), wire.watches("other")), (0, 1));
        assert!(of_another.collect().now_or_never().is_none());
        // Whoever comes back is told what is to come.
        assert!(watch("one").await.collect().now_or_never().is_none());
    }

    #[test]
    fn a_body_is_cut_at_the_end_of_a_line() {
        let text = Bytes::from_static(b"one\ntwo\nthree\n");
        assert_eq!(cut_after(text.clone(), 2), (Bytes::from_static(b"one\ntwo\n"), 0));
        assert_eq!(cut_after(text.clone(), 5), (text, 2));
    }
}
