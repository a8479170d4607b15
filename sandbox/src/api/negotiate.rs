//! What shape the client wants: whole objects, their metadata alone, or a table; as JSON or as YAML.

use http::HeaderMap;
use serde_json::{Value, json};

use super::{field_error::FieldError, options::Query, request::Verb, resource::Resource, status::ApiError};
use crate::surface::table::Include;

/// The shape of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Objects as they are.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// A table, as `kubectl get` prints it, with so much of each object.
    Table(Include),
}

/// What is taken of a media type's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape<'a> {
    Plain,
    As(&'a str),
    Unknown,
}

/// Reads the `Accept` header: the first that can be served.
pub(super) fn view(headers: &HeaderMap, query: &Query, verb: Verb, resource: &Resource) -> Result<View, ApiError> {
    let accepted: Vec<Shape<'_>> = accepted(headers).filter_map(shape).collect();
    let wanted = accepted.iter().find(|shape| **shape != Shape::Unknown);
    let list = matches!(verb, Verb::List | Verb::DeleteCollection);
    match wanted {
        None if accepted.is_empty() => Err(ApiError::not_acceptable(verb == Verb::Watch)),
        None | Some(Shape::Unknown) => Err(ApiError::not_acceptable_shape()),
        Some(Shape::Plain) => Ok(View::Whole),
        Some(Shape::As("Table")) => {
            let include = query.get("includeObject").unwrap_or_default();
            Include::parse(include).map(View::Table).ok_or_else(|| {
                let why = "must be 'Metadata', 'Object', 'None', or empty";
                let error = FieldError::invalid("includeObject", include, why);
                ApiError::bad_request(format!("Unable to convert to Table as requested: {error}"))
            })
        }
        Some(Shape::As(name)) if verb == Verb::Watch || list == name.ends_with("List") => Ok(View::Metadata),
        Some(Shape::As(name)) => {
            let (not, kind) = if list {
                ("", &resource.names.list_kind)
            } else {
                ("not ", &resource.names.kind)
            };
            let group = resource.names.group.split('.').next().filter(|group| !group.is_empty());
            let package = if resource.custom {
                "unstructured"
            } else {
                group.unwrap_or("core")
            };
            let kind = match (resource.custom, list) {
                (true, true) => "UnstructuredList",
                (true, false) => "Unstructured",
                (false, _) => kind,
            };
            Err(ApiError::not_acceptable_kind(format!(
                "you requested {name}, but the requested object is {not}a list (*{package}.{kind})"
            )))
        }
    }
}

/// Whether the answer is to be YAML.
pub(super) fn wants_yaml(headers: &HeaderMap) -> bool {
    let first = accepted(headers).find(|kind| shape(kind).is_some_and(|shape| shape != Shape::Unknown));
    first.is_some_and(|kind| kind.starts_with("application/yaml"))
}

fn accepted(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let accept = headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.unwrap_or("*/*").split(',').map(str::trim)
}

/// What a media type asks for, if it is one that is served at all.
fn shape(media_type: &str) -> Option<Shape<'_>> {
    let mut parts = media_type.split(';').map(str::trim);
    let known = ["application/json", "application/yaml", "application/*", "*/*", ""];
    if !known.contains(&parts.next()?) {
        return None;
    }
    let parameters: Vec<&str> = parts.collect();
    let parameter = |name: &str| parameters.iter().find_map(|part| part.strip_prefix(name));
    let version = parameter("v=").is_none_or(|version| version == "v1");
    Some(match parameter("as=") {
        None => Shape::Plain,
        Some(name @ ("Table" | "PartialObjectMetadata" | "PartialObjectMetadataList")) if version => Shape::As(name),
        Some(_) => Shape::Unknown,
    })
}

/// An object's metadata, as an object of its own.
pub(super) fn partial(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::registry::Registry;

    #[test]
    fn takes_the_first_that_it_can_serve() {
        let registry = Registry::builtin();
        let pods = registry.get("", "v1", "pods").unwrap();
        for (accept, verb, wanted) in [
            ("application/json", Verb::Get, Some(View::Whole)),
            ("*/*", Verb::List, Some(View::Whole)),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Verb::Get,
                Some(View::Whole),
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
                Verb::List,
                Some(View::Metadata),
            ),
            ("application/json;as=PartialObjectMetadataList;v=v1", Verb::Get, None),
            (
                "application/json;as=Table;v=v7,application/json",
                Verb::Get,
                Some(View::Whole),
            ),
            ("application/json;as=Table;v=v7", Verb::Get, None),
            ("application/vnd.kubernetes.protobuf", Verb::Get, None),
        ] {
            let headers = [(http::header::ACCEPT, accept.parse().unwrap())].into_iter().collect();
            let found = view(&headers, &Query::default(), verb, pods);
            assert_eq!(found.ok(), wanted, "{accept}");
        }
    }
}
