//! Turns what a verb answered into an HTTP response.

use std::sync::Arc;

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http::{Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Collected};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    convert::from_storage,
    negotiate::{View, partial},
    resource::Resource,
    state::Reply,
    status::ApiError,
    store::Object,
};

/// The page that Kubernetes shows for paths that lead nowhere.
pub(super) fn page_not_found() -> Response<Body> {
    let mut response = text("404 page not found\n");
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// Plain text.
pub(super) fn text(text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(
        CONTENT_TYPE,
        http::HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

/// JSON with a status.
pub(super) fn json(code: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

/// The same answer as YAML.
pub(super) async fn as_yaml(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    // It was made in memory a moment ago, so that nothing can break off.
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let document: Option<Value> = serde_json::from_slice(&body).ok();
    let Some(yaml) = document.and_then(|document| serde_saphyr::to_string(&document).ok()) else {
        return Response::from_parts(parts, Body::from(body));
    };
    parts
        .headers
        .insert(CONTENT_TYPE, http::HeaderValue::from_static("application/yaml"));
    Response::from_parts(parts, Body::from(yaml))
}

/// Adds warnings.
pub(super) fn warn(response: &mut Response<Body>, warnings: impl IntoIterator<Item = String>) {
    for warning in warnings {
        // The code of warnings that have none of their own.
        if let Ok(value) = format!("299 - {warning:?}").parse() {
            response.headers_mut().append(http::header::WARNING, value);
        }
    }
}

/// A failure.
pub(super) fn error(error: &ApiError) -> Response<Body> {
    let mut response = json(error.code, error.to_status().to_string());
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
    }
    response
}

/// What a verb answered, in the shape that the client wants.
pub(super) fn reply(resource: &Resource, view: View, reply: Reply, now: Timestamp) -> Response<Body> {
    match reply {
        Reply::Plain { code, body } => json(code, body.to_string()),
        Reply::Object { code, object, warnings } => {
            let mut response = json(code, shown(resource, view, &object, now));
            warn(&mut response, warnings);
            response
        }
        Reply::List {
            items,
            revision,
            token,
            remaining,
        } => {
            let mut metadata = json!({"resourceVersion": revision.to_string()});
            if let Some(fields) = metadata.as_object_mut() {
                // Lists of custom resources say it even where there is no more.
                let token = token.or_else(|| (resource.custom && !matches!(view, View::Table(_))).then(String::new));
                fields.extend(token.map(|token| ("continue".to_owned(), Value::from(token))));
                fields.extend(remaining.map(|count| ("remainingItemCount".to_owned(), Value::from(count))));
            }
            json(StatusCode::OK, list(resource, view, &metadata, &items, now))
        }
    }
}

fn list(resource: &Resource, view: View, metadata: &Value, items: &[Arc<Object>], now: Timestamp) -> Bytes {
    let (kind, api_version) = match view {
        View::Whole => (resource.names.list_kind.as_str(), resource.api_version()),
        View::Metadata => ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned()),
        View::Table(include) => {
            let items: Vec<Value> = items
                .iter()
                .map(|item| from_storage(resource, &item.value).into_owned())
                .collect();
            let list = json!({"metadata": metadata, "items": items});
            return resource.printer().table(&list, include, true, now).to_string().into();
        }
    };
    let head = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata}).to_string();
    let mut out = BytesMut::new();
    out.put_slice(head.trim_end_matches('}').as_bytes());
    // The metadata's own brace was cut off too.
    out.put_slice(b"},\"items\":[");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.put_u8(b',');
        }
        match view {
            View::Whole if !resource.custom => out.put_slice(&typeless(resource, item)),
            _ => out.put_slice(&shown(resource, view, item, now)),
        }
    }
    out.put_slice(b"]}");
    out.freeze()
}

fn shown(resource: &Resource, view: View, object: &Object, now: Timestamp) -> Bytes {
    match view {
        View::Table(include) => {
            let object = from_storage(resource, &object.value);
            resource.printer().table(&object, include, true, now).to_string().into()
        }
        _ => told(resource, view, object),
    }
}

/// An item of a list of a built-in kind, which does not say its type.
fn typeless(resource: &Resource, object: &Object) -> Bytes {
    if resource.is_storage_version() {
        return object.json_without_type();
    }
    let mut object = from_storage(resource, &object.value).into_owned();
    if let Some(fields) = object.as_object_mut() {
        fields.shift_remove("kind");
        fields.shift_remove("apiVersion");
    }
    object.to_string().into()
}

/// One object, whole or its metadata alone.
pub(super) fn told(resource: &Resource, view: View, object: &Object) -> Bytes {
    match view {
        View::Metadata => partial(&object.value).to_string().into(),
        _ if !resource.is_storage_version() => from_storage(resource, &object.value).to_string().into(),
        _ => object.json(),
    }
}
