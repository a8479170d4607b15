//! Errors of single fields, printed as Kubernetes prints them.

use std::fmt;

use serde_json::Value;

use crate::go;

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// It must be there.
    Required,
    /// Its value is not allowed.
    Invalid,
    /// Its value is none of those that are.
    NotSupported,
    /// It may not be set, or not be changed.
    Forbidden,
    /// It is there twice.
    Duplicate,
    /// Too many characters.
    TooLong,
    /// Too many items.
    TooMany,
    /// Its value has the wrong type.
    TypeInvalid,
    /// It names what does not exist.
    NotFound,
}

impl FieldErrorKind {
    /// The type of the cause in a `Status`.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotFound => "FieldValueNotFound",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
        }
    }
}

/// One field's error.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// What is wrong.
    pub kind: FieldErrorKind,
    /// Path of the field, such as `spec.ports[0].port`; empty for the whole object.
    pub path: String,
    /// The value at fault, where the kind shows one.
    pub value: Option<Value>,
    /// What would be right.
    pub detail: String,
}

impl FieldError {
    /// An error that shows the value.
    pub fn new(kind: FieldErrorKind, path: impl Into<String>, value: Value, detail: impl Into<String>) -> Self {
        Self {
            kind,
            path: path.into(),
            value: Some(value),
            detail: detail.into(),
        }
    }

    /// A field that must be there.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            kind: FieldErrorKind::Required,
            path: path.into(),
            value: None,
            detail: detail.into(),
        }
    }

    /// A value that is not allowed.
    pub fn invalid(path: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, path, value.into(), detail)
    }

    /// A value of the wrong type; `detail` says which type is right.
    pub fn type_invalid(path: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, path, value.into(), detail)
    }

    /// A field that may not be set, or not be changed.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            kind: FieldErrorKind::Forbidden,
            path: path.into(),
            value: None,
            detail: detail.into(),
        }
    }

    /// A value that is there twice.
    pub fn duplicate(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, path, value.into(), "")
    }

    /// A value that is none of `supported`.
    pub fn not_supported(path: impl Into<String>, value: impl Into<Value>, supported: &[impl AsRef<str>]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{:?}", value.as_ref())).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new(FieldErrorKind::NotSupported, path, value.into(), detail)
    }

    /// More characters than `limit`.
    pub fn too_long(path: impl Into<String>, limit: usize) -> Self {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {limit} {unit}");
        Self {
            kind: FieldErrorKind::TooLong,
            path: path.into(),
            value: None,
            detail,
        }
    }

    /// `count` items where `limit` are allowed.
    pub fn too_many(path: impl Into<String>, count: usize, limit: usize) -> Self {
        let unit = if limit == 1 { "item" } else { "items" };
        let detail = format!("must have at most {limit} {unit}");
        Self::new(FieldErrorKind::TooMany, path, count.into(), detail)
    }

    /// The error without its path.
    pub fn body(&self) -> String {
        let mut body = self.kind.words().to_owned();
        if let Some(value) = &self.value {
            body.push_str(": ");
            match value {
                Value::String(text) => body.push_str(&go::quoted(text)),
                other => body.push_str(&other.to_string()),
            }
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "<nil>" } else { &self.path };
        write!(f, "{path}: {}", self.body())
    }
}

/// Several errors in one line: each once, in brackets if there is more than one.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for error in errors {
        let line = error.to_string();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    match lines.as_slice() {
        [only] => only.clone(),
        _ => format!("[{}]", lines.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_kubernetes_does() {
        let invalid = FieldError::invalid("spec.replicas", -1, "must be greater than or equal to 0");
        assert_eq!(
            invalid.to_string(),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
        assert_eq!(
            FieldError::required("spec.selector", "").to_string(),
            "spec.selector: Required value"
        );
        let unsupported = FieldError::not_supported("spec.type", "X", &["A", "B"]);
        assert_eq!(
            unsupported.to_string(),
            r#"spec.type: Unsupported value: "X": supported values: "A", "B""#
        );
        assert_eq!(
            FieldError::too_long("a", 63).body(),
            "Too long: may not be more than 63 bytes"
        );
    }

    #[test]
    fn aggregates_each_error_once() {
        let (a, b) = (FieldError::required("a", ""), FieldError::required("b", ""));
        assert_eq!(aggregate(&[a.clone(), a.clone()]), "a: Required value");
        assert_eq!(aggregate(&[a, b]), "[a: Required value, b: Required value]");
    }
}
