//! One HTTP request: read, let through by what stands in front, carried out, answered.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::{Request, Response, header::CONTENT_TYPE, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use super::{
    ApiServer,
    faults::Fault,
    front::Answer,
    negotiate::{self, View},
    object::{map, meta},
    options::{ListOptions, Query},
    request::{RequestInfo, Route, Verb, route},
    resource::Resource,
    respond,
    state::Call,
    status::ApiError,
    verbs::{PatchKind, fields_of},
    watch::Watcher,
};
use crate::{schema::read_json, surface::protobuf};

/// The largest body that is taken, in bytes.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// A request that was read.
pub(super) struct Incoming {
    pub(super) request: RequestInfo,
    pub(super) query: Query,
    pub(super) parts: Parts,
    pub(super) body: Bytes,
}

impl Incoming {
    pub(super) fn header(&self, name: http::header::HeaderName) -> &str {
        self.parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    pub(super) fn media_type(&self) -> &str {
        self.header(CONTENT_TYPE).split(';').next().unwrap_or_default().trim()
    }

    /// The body as an object.
    pub(super) fn object(&self) -> Result<Value, ApiError> {
        self.read().map(|(object, _)| object)
    }

    /// The body as an object, and the fields that it has twice: JSON, or YAML or the binary form where that is what it
    /// says it is.
    fn read(&self) -> Result<(Value, Vec<String>), ApiError> {
        let media_type = self.media_type();
        if media_type == protobuf::MEDIA_TYPE {
            let object = protobuf::decode(&self.body).map_err(|error| ApiError::bad_request(error.to_string()))?;
            return Ok((object, Vec::new()));
        }
        if !matches!(media_type, "" | "application/json" | "application/yaml") && PatchKind::of(media_type).is_none() {
            let accepted = ["application/json", "application/yaml", protobuf::MEDIA_TYPE];
            return Err(ApiError::unsupported_media_type(&accepted));
        }
        let json = read_json(&self.body);
        if json.is_ok() || !media_type.contains("yaml") {
            return json.map_err(|error| {
                let (why, text) = if self.body.is_empty() {
                    ("unexpected end of JSON input".to_owned(), "<empty>".into())
                } else {
                    (error.to_string(), String::from_utf8_lossy(&self.body))
                };
                ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why} ({text})"))
            });
        }
        let text = std::str::from_utf8(&self.body).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let object = serde_saphyr::from_str(text)
            .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
        Ok((object, Vec::new()))
    }

    /// The body as the options of a deletion.
    pub(super) fn options(&self) -> Result<Value, ApiError> {
        let mut options = self.object().map_err(|error| ApiError::unknown(error.message))?;
        let text = |field: &str| options.get(field).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if !matches!(kind, "" | "DeleteOptions") {
            return Err(ApiError::unknown(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:110\""
            )));
        }
        map(&mut options);
        Ok(options)
    }

    /// The body as an object of a kind, and the fields that it has twice.
    pub(super) fn object_of(&self, kind: &str) -> Result<(Value, Vec<String>), ApiError> {
        self.read().map_err(|mut error| {
            if error.code == http::StatusCode::BAD_REQUEST {
                let why = error.message;
                error.message = format!("the object provided is unrecognized (must be of type {kind}): {why}");
            }
            error
        })
    }
}

/// What a request turned out to be.
pub(super) enum Asked {
    /// One for a resource.
    Resource(Box<Incoming>),
    /// Any other, unread.
    Other(Request<Body>),
    /// One that is not to be had.
    Refused(ApiError),
}

/// Reads a request.
pub(super) async fn read(user: &str, request: Request<Body>) -> Asked {
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let mut info = match route(request.method(), request.uri().path(), query.flag("watch")) {
        Route::Resource(info) => info,
        Route::NotAllowed => return Asked::Refused(ApiError::method_not_allowed()),
        Route::Other => return Asked::Other(request),
    };
    user.clone_into(&mut info.user);
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Asked::Refused(ApiError::too_large(BODY_LIMIT)),
        Err(error) => return Asked::Refused(ApiError::bad_request(format!("the body broke off: {error}"))),
    };
    let mut incoming = Incoming {
        request: *info,
        query,
        parts,
        body,
    };
    complete(&mut incoming);
    Asked::Resource(Box::new(incoming))
}

impl ApiServer {
    pub(super) async fn serve(&self, user: &str, request: Request<Body>) -> Response<Body> {
        let head = request.method() == http::Method::HEAD;
        match read(user, request).await {
            Asked::Resource(incoming) => {
                let now = self.clock().now();
                self.inner.front.pass(self, &incoming, now).await
            }
            Asked::Other(request) => self.about(&request.into_parts().0),
            Asked::Refused(error) if head => respond::error(&error).map(|_| Body::empty()),
            Asked::Refused(error) => respond::error(&error),
        }
    }

    /// Carries a request out. It waits for nothing but logs, so that a caller who is dropped was either served or not.
    async fn carry_out(&self, incoming: &Incoming, fault: Option<&Fault>) -> Response<Body> {
        let resource = match self.inner.lock().served(&incoming.request) {
            Ok(Some(resource)) => resource,
            Ok(None) => return respond::page_not_found(),
            Err(error) => return respond::error(&error),
        };
        let view = match negotiate::view(
            &incoming.parts.headers,
            &incoming.query,
            incoming.request.verb,
            &resource,
        ) {
            Ok(view) => view,
            Err(error) => return respond::error(&error),
        };
        if incoming.request.verb == Verb::Watch {
            return self.watch(incoming, &resource, view, fault);
        }
        if incoming.request.subresource == "log" {
            return match self.log(incoming, &resource).await {
                Ok(response) => response,
                Err(error) => respond::error(&error),
            };
        }
        let mut response = match self.inner.perform(incoming, &resource, fault) {
            Ok(reply) => {
                let now = self.inner.lock().clock.now();
                respond::reply(&resource, view, reply, now)
            }
            Err(error) => respond::error(&error),
        };
        respond::warn(&mut response, resource.deprecation());
        response
    }

    async fn log(&self, incoming: &Incoming, resource: &Resource) -> Result<Response<Body>, ApiError> {
        let pod = self.inner.lock().existing(&Call {
            resource,
            request: &incoming.request,
        })?;
        let Some(log) = self.inner.logs.open(&pod.value, &incoming.query).await? else {
            let mut nothing = Response::new(Body::empty());
            *nothing.status_mut() = http::StatusCode::NO_CONTENT;
            return Ok(nothing);
        };
        let mut response = Response::new(Body::from_stream(log));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
        Ok(response)
    }

    fn watch(
        &self,
        incoming: &Incoming,
        resource: &Arc<Resource>,
        view: View,
        fault: Option<&Fault>,
    ) -> Response<Body> {
        let parsed = ListOptions::parse(&incoming.query, Verb::Watch).and_then(|options| {
            let fields = fields_of(resource, options.fields.clone())?;
            Ok(ListOptions { fields, ..options })
        });
        let options = match parsed {
            Ok(options) => options,
            Err(error) => return respond::error(&error),
        };
        let namespace = &incoming.request.namespace;
        let mut watcher = Watcher::open(&self.inner, &mut self.inner.lock(), resource, namespace, options, view);
        if let Some(Fault::DropWatch { after }) = fault {
            watcher.end_after(*after);
        }
        let events = stream::unfold(watcher, |mut watcher| async move {
            let events = watcher.next().await?;
            Some((Ok::<_, std::convert::Infallible>(events), watcher))
        });
        respond::json(http::StatusCode::OK, Body::from_stream(events))
    }
}

impl Answer for ApiServer {
    async fn answer(&self, incoming: &Incoming, fault: Option<&Fault>) -> Response<Body> {
        let response = self.carry_out(incoming, fault).await;
        if incoming.request.verb != Verb::Watch && negotiate::wants_yaml(&incoming.parts.headers) {
            return respond::as_yaml(response).await;
        }
        response
    }
}

/// Fills in what faults and the log want to know beyond the path.
fn complete(incoming: &mut Incoming) {
    let apply = PatchKind::of(incoming.media_type()) == Some(PatchKind::Apply);
    let mut dry_run = incoming.query.get("dryRun").is_some();
    let mut name = None;
    match incoming.request.verb {
        Verb::Create => name = incoming.object().ok().map(|object| meta(&object, "name").to_owned()),
        Verb::Delete | Verb::DeleteCollection if !incoming.body.is_empty() => {
            let listed = incoming
                .object()
                .ok()
                .and_then(|body| Some(!body.get("dryRun")?.as_array()?.is_empty()));
            dry_run |= listed == Some(true);
        }
        _ => {}
    }
    let request = &mut incoming.request;
    request.apply = apply && request.verb == Verb::Patch;
    request.dry_run = dry_run;
    if let Some(name) = name.filter(|_| request.name.is_empty()) {
        request.name = name;
    }
}
