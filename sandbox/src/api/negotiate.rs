//! What shape the client wants: whole objects, their metadata alone, or a table.

use http::HeaderMap;
use serde_json::{Value, json};

use super::options::Query;
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

/// Reads the `Accept` header; `None` if nothing that it lists can be served.
pub(super) fn view(headers: &HeaderMap, query: &Query) -> Option<View> {
    let accept = headers
        .get(http::header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("*/*");
    accept.split(',').find_map(|media_type| {
        let mut parts = media_type.split(';').map(str::trim);
        if !matches!(parts.next()?, "application/json" | "application/*" | "*/*" | "") {
            return None;
        }
        match parts.find_map(|part| part.strip_prefix("as=")) {
            None => Some(View::Whole),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Some(View::Metadata),
            Some("Table") => Include::parse(query.get("includeObject").unwrap_or_default()).map(View::Table),
            Some(_) => None,
        }
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

    #[test]
    fn takes_the_first_that_it_can_serve() {
        for (accept, wanted) in [
            ("application/json", Some(View::Whole)),
            ("*/*", Some(View::Whole)),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Some(View::Whole),
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
                Some(View::Metadata),
            ),
            ("application/vnd.kubernetes.protobuf", None),
        ] {
            let headers = [(http::header::ACCEPT, accept.parse().unwrap())].into_iter().collect();
            assert_eq!(view(&headers, &Query::default()), wanted, "{accept}");
        }
        assert_eq!(view(&HeaderMap::new(), &Query::default()), Some(View::Whole));
    }
}
