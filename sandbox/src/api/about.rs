//! What is asked of the server rather than of its objects: discovery, `OpenAPI`, version, health.

use axum::body::Body;
use http::{HeaderMap, Method, Response, StatusCode, header, request::Parts};
use serde_json::Value;

use super::{ApiServer, registry::Registry, respond, status::ApiError};
use crate::surface::{self, AGGREGATED, Discovery, openapi};

impl ApiServer {
    /// Answers a request that leads to no resource.
    pub(super) fn about(&self, parts: &Parts) -> Response<Body> {
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return respond::error(&ApiError::method_not_allowed());
        }
        let state = self.inner.lock();
        let address = parts
            .headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok())
            .unwrap_or_default();
        match page(&state.registry, parts.uri.path(), &parts.headers, address) {
            Page::Json(body) => respond::json(StatusCode::OK, body.to_string()),
            Page::Typed(body, kind) => {
                let mut response = respond::json(StatusCode::OK, body.to_string());
                response
                    .headers_mut()
                    .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
                response
            }
            Page::Text(text) => respond::text(text),
            Page::Nothing(code) => {
                let mut nothing = Response::new(Body::empty());
                *nothing.status_mut() = code;
                nothing
            }
            Page::NoSuchVersion => respond::error(&ApiError::no_such_resource()),
            Page::NotFound => respond::page_not_found(),
        }
    }
}

enum Page {
    Json(Value),
    Typed(Value, &'static str),
    Text(&'static str),
    /// A refusal without a word.
    Nothing(StatusCode),
    NoSuchVersion,
    NotFound,
}

fn page(registry: &Registry, path: &str, headers: &HeaderMap, address: &str) -> Page {
    let accepted = accepted(headers);
    let aggregated = accepted.first().is_some_and(|first| is_aggregated(first));
    let discovery = || Discovery::new(registry.iter().map(|resource| &resource.names));
    let served = || {
        registry.iter().map(|resource| openapi::Served {
            resource: &resource.names,
            schema: resource
                .definition
                .as_ref()
                .and_then(|version| version.pointer("/schema/openAPIV3Schema")),
            custom: resource.custom,
        })
    };
    let found = |page: Option<Value>| page.map_or(Page::NotFound, Page::Json);
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match *parts.as_slice() {
        ["api"] if aggregated => Page::Typed(discovery().aggregated(true), AGGREGATED),
        ["apis"] if aggregated => Page::Typed(discovery().aggregated(false), AGGREGATED),
        ["api"] => Page::Json(discovery().core_versions(address)),
        ["api", version] => discovery()
            .resources("", version)
            .map_or(Page::NoSuchVersion, Page::Json),
        ["apis"] => Page::Json(discovery().groups()),
        ["apis", group] => found(discovery().group(group)),
        ["apis", group, version] => match discovery().resources(group, version) {
            Some(resources) => Page::Json(resources),
            None if discovery().group(group).is_some() => Page::NoSuchVersion,
            None => Page::NotFound,
        },
        ["version"] => Page::Json(surface::version()),
        ["healthz" | "livez" | "readyz", ..] => Page::Text("ok"),
        // Types in a compact binary form are not on offer; clients go on without.
        ["openapi", ..] if !accepted.iter().any(|kind| is_json(kind)) => Page::Nothing(StatusCode::NOT_ACCEPTABLE),
        ["openapi", "v2"] => Page::Json(openapi::v2(served())),
        ["openapi", "v3"] => Page::Json(openapi::v3_index(served())),
        ["openapi", "v3", ref place @ ..] => {
            let document = openapi::v3_document(&place.join("/"), served());
            document.map_or(Page::Nothing(StatusCode::NOT_FOUND), Page::Json)
        }
        _ => Page::NotFound,
    }
}

/// Media types in the order in which the client lists them; all are welcome where it lists none.
fn accepted(headers: &HeaderMap) -> Vec<&str> {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .unwrap_or("*/*");
    accept.split(',').map(str::trim).collect()
}

fn is_json(kind: &str) -> bool {
    matches!(
        kind.split(';').next(),
        Some("application/json" | "application/*" | "*/*")
    )
}

fn is_aggregated(kind: &str) -> bool {
    let mut parts = kind.split(';').map(str::trim);
    let wanted: Vec<_> = AGGREGATED.split(';').collect();
    parts.next() == Some("application/json") && wanted.iter().skip(1).all(|word| kind.contains(word))
}
