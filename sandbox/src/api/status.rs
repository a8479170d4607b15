//! Failures, as the `Status` objects that Kubernetes answers with.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::field_error::{FieldError, aggregate};

/// A request that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// HTTP status.
    pub code: StatusCode,
    /// `reason`, a word that clients branch on; empty where Kubernetes gives none.
    pub reason: &'static str,
    /// The sentence for people.
    pub message: String,
    /// `details`, if any.
    pub details: Option<Value>,
}

/// Group and plural name, printed `deployments.apps`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name (or the kind, in errors about an object's content).
    pub resource: String,
}

impl std::fmt::Display for GroupResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.resource)?;
        if self.group.is_empty() {
            Ok(())
        } else {
            write!(f, ".{}", self.group)
        }
    }
}

/// What everyone is told whose `resourceVersion` is not the present one.
pub const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
        }
    }

    fn about(mut self, what: &GroupResource, name: &str) -> Self {
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !what.group.is_empty() {
            details.insert("group".into(), what.group.as_str().into());
        }
        if !what.resource.is_empty() {
            details.insert("kind".into(), what.resource.as_str().into());
        }
        self.details = Some(Value::Object(details));
        self
    }

    /// Adds a field to `details`.
    #[must_use]
    pub fn with_detail(mut self, field: &str, value: Value) -> Self {
        let details = self.details.get_or_insert_with(|| json!({}));
        if let Some(details) = details.as_object_mut() {
            details.insert(field.into(), value);
        }
        self
    }

    /// There is no such object.
    pub fn not_found(what: &GroupResource, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{what} {name:?} not found")).about(what, name)
    }

    /// There is such an object already.
    pub fn already_exists(what: &GroupResource, name: &str) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "AlreadyExists",
            format!("{what} {name:?} already exists"),
        )
        .about(what, name)
    }

    /// The object is not as the request presumes.
    pub fn conflict(what: &GroupResource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {what} {name:?}: {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(what, name)
    }

    /// A server-side apply touches what others own.
    pub fn apply_conflict(message: String, causes: Vec<Value>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message).with_detail("causes", Value::Array(causes))
    }

    /// The request is understood and refused.
    pub fn forbidden(what: &GroupResource, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{what} is forbidden: {why}")
        } else {
            format!("{what} {name:?} is forbidden: {why}")
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(what, name)
    }

    /// The object is not valid. `kind` carries the kind in place of the plural name.
    pub fn invalid(kind: &GroupResource, name: &str, errors: &[FieldError]) -> Self {
        let causes: Vec<Value> = errors
            .iter()
            .map(|error| {
                let mut cause = json!({"reason": error.kind.cause(), "message": error.body()});
                let path = if error.path.is_empty() { "<nil>" } else { &error.path };
                if let Some(cause) = cause.as_object_mut() {
                    cause.insert("field".into(), path.into());
                }
                cause
            })
            .collect();
        let message = format!("{kind} {name:?} is invalid: {}", aggregate(errors));
        let error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(kind, name);
        if causes.is_empty() {
            error
        } else {
            error.with_detail("causes", Value::Array(causes))
        }
    }

    /// A patch that cannot be laid over the object.
    pub fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).bare()
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// There is no such resource in a group that is served.
    pub fn no_such_resource() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        )
        .bare()
    }

    /// The verb is not served for the resource.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).bare()
    }

    fn bare(mut self) -> Self {
        self.details = Some(json!({}));
        self
    }

    /// The body's media type is not one of those that are taken.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// A patch of a kind that is not known.
    pub fn unknown_patch() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            "415: Unsupported Media Type",
        )
        .bare()
    }

    /// None of the media types that the client takes can be served.
    pub fn not_acceptable(watching: bool) -> Self {
        let streams = if watching {
            ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
        } else {
            ""
        };
        let message = format!(
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf{streams}"
        );
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message).bare()
    }

    /// The shape in which the client wants the answer is not known.
    pub fn not_acceptable_shape() -> Self {
        let message = "only the following media types are accepted: application/json, application/yaml, \
                       application/vnd.kubernetes.protobuf";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// The answer cannot have the shape that the client wants.
    pub fn not_acceptable_kind(message: String) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// History that is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// A revision that is still to come.
    pub fn too_large_revision(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
            .with_detail(
                "causes",
                json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]),
            )
            .with_detail("retryAfterSeconds", json!(1))
    }

    /// The server is at fault.
    pub fn internal(why: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {why}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
            .with_detail("causes", json!([{"message": why.to_string()}]))
    }

    /// A failure that Kubernetes gives no reason for: code 500 and a sentence.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// The answer did not come in time.
    pub fn timeout() -> Self {
        let message = "Timeout: request did not complete within requested timeout - context deadline exceeded";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).bare()
    }

    /// The server is busy, or the request must be tried again for a reason that it names.
    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
            .with_detail("retryAfterSeconds", json!(retry_after))
    }

    /// The body is too large.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
        });
        if let Some(fields) = status.as_object_mut() {
            if !self.reason.is_empty() {
                fields.insert("reason".into(), self.reason.into());
            }
            if let Some(details) = &self.details {
                fields.insert("details".into(), details.clone());
            }
            fields.insert("code".into(), self.code.as_u16().into());
        }
        status
    }

    /// Seconds of the `Retry-After` header, if one is due.
    pub fn retry_after(&self) -> Option<u64> {
        self.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_found_names_group_and_name() {
        let what = GroupResource {
            group: "apps".into(),
            resource: "deployments".into(),
        };
        assert_eq!(
            ApiError::not_found(&what, "x").to_status(),
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "deployments.apps \"x\" not found", "reason": "NotFound",
                "details": {"name": "x", "group": "apps", "kind": "deployments"}, "code": 404})
        );
    }

    #[test]
    fn invalid_lists_its_causes() {
        let kind = GroupResource {
            group: String::new(),
            resource: "Pod".into(),
        };
        let status = ApiError::invalid(&kind, "p", &[FieldError::required("spec.containers", "")]).to_status();
        assert_eq!(
            status["message"],
            "Pod \"p\" is invalid: spec.containers: Required value"
        );
        assert_eq!(
            status["details"]["causes"],
            json!([{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"}])
        );
    }
}
