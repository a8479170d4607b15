//! From what a client sent to what is stored: unknown fields, types, defaults, and at last the rules.

use serde_json::{Value, json};

use crate::{
    api::{
        builtin::{self, Refusal, Unreadable},
        field_error::FieldError,
        object::{meta, meta_value, set_meta},
        options::{FieldValidation, WriteOptions},
        state::{Call, State},
        status::{ApiError, GroupResource},
    },
    schema::{NameRule, validate_metadata, validate_metadata_update},
};

/// Kinds whose updates are held to all that holds for new objects, their metadata included.
const METADATA_AGAIN: [&str; 4] = ["ConfigMap", "Pod", "Secret", "Service"];

/// What an object was read from, which errors tell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::api) enum Source {
    /// The body itself.
    Body,
    /// An object with a patch laid over it.
    Patch,
    /// The outcome of a server-side apply, whose patch was checked before.
    Apply,
}

impl Call<'_> {
    /// Brings an object into the form in which it is kept, in the client's version, with defaults. Answers the warnings that the client is to see.
    pub(in crate::api) fn admit(
        &self,
        object: &mut Value,
        options: &WriteOptions,
        source: Source,
    ) -> Result<Vec<String>, ApiError> {
        let resource = self.resource;
        // An empty list takes all ownership away; no list leaves it as it is.
        let nobody = json!([]);
        let disowned = meta_value(object, "managedFields") == Some(&nobody);
        let sent = match source {
            Source::Patch => object.to_string(),
            Source::Apply | Source::Body => String::new(),
        };
        let mut warnings = Vec::new();
        if let Some(schema) = &resource.schema {
            let twice = options
                .duplicates
                .iter()
                .map(|path| format!("duplicate field {path:?}"));
            let unknown = schema
                .prune(object)
                .into_iter()
                .map(|path| format!("unknown field {path:?}"));
            let unknown: Vec<String> = twice.chain(unknown).collect();
            // What was put together by an apply is not read as a client's text is.
            if source != Source::Apply || !resource.custom {
                schema.drop_nulls(object);
            }
            match options.validation {
                FieldValidation::Strict if !unknown.is_empty() && source != Source::Apply => {
                    let why = format!("strict decoding error: {}", unknown.join(", "));
                    return Err(self.undecodable(source, &sent, &why.into()));
                }
                FieldValidation::Warn if source != Source::Apply => warnings = unknown,
                _ => {}
            }
        }
        if resource.custom {
            builtin::normalize_metadata(object).map_err(|why| self.undecodable(source, &sent, &why))?;
            if let Some(schema) = &resource.schema {
                schema.default_fields(object);
            }
        } else {
            builtin::admit(resource, object).map_err(|why| self.undecodable(source, &sent, &why))?;
        }
        if !resource.custom {
            builtin::shape(resource, object);
        }
        warnings.extend(dedup_owners(object, source));
        if disowned {
            set_meta(object, "managedFields", Some(nobody));
        }
        Ok(warnings)
    }

    /// What its author should know about an object that is taken.
    pub(super) fn advice(&self, object: &Value) -> Vec<String> {
        if self.resource.custom || !self.request.subresource.is_empty() {
            return Vec::new();
        }
        builtin::warnings(self.resource, object)
    }

    /// A patch leaves an object what it was.
    pub(super) fn check_patched(&self, object: &Value) -> Result<(), ApiError> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if kind == self.resource.names.kind && version == self.resource.api_version() {
            return Ok(());
        }
        let why =
            format!("no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:110\"");
        Err(self.undecodable(Source::Patch, &object.to_string(), &why.into()))
    }

    /// An applied object may name the uid of the one that is there, and no other.
    pub(super) fn check_uid(&self, object: &Value, existing: &Value) -> Result<(), ApiError> {
        let (uid, is) = (meta(object, "uid"), meta(existing, "uid"));
        if uid.is_empty() || uid == is {
            return Ok(());
        }
        let error = FieldError::invalid("metadata.uid", uid, "field is immutable");
        self.refuse(object, &[error.clone(), error])
    }

    fn undecodable(&self, source: Source, sent: &str, why: &Unreadable) -> ApiError {
        let (kind, version) = (&self.resource.names.kind, &self.resource.names.version);
        if source == Source::Apply {
            let (name, version) = (&self.request.name, group_version(&self.resource.api_version()));
            return ApiError::unknown(format!(
                "failed to convert new object (/{name}; {version}, Kind={kind}) to proper version: unable to convert \
                 unstructured object to {version}, Kind={kind}: {}",
                why.applied
            ));
        }
        if source == Source::Body {
            let why = format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {}",
                why.from_text
            );
            return ApiError::bad_request(why);
        }
        let nothing = GroupResource {
            group: String::new(),
            resource: String::new(),
        };
        ApiError::invalid(
            &nothing,
            "",
            &[FieldError::invalid("patch", sent, why.from_text.as_str())],
        )
    }

    /// Holds a new object to its rules.
    pub(in crate::api) fn validate_new(&self, object: &Value) -> Result<(), ApiError> {
        let names = &self.resource.names;
        let rule = NameRule::of(&names.group, &names.kind);
        let metadata = object.get("metadata").unwrap_or(&Value::Null);
        let mut errors = validate_metadata(metadata, names.namespaced, rule, "metadata");
        if !self.resource.custom {
            errors.extend(builtin::unknown_finalizers(metadata));
        }
        errors.extend(self.content_errors(object, None));
        self.refuse(object, &errors)
    }

    /// Holds a changed object to its rules.
    pub(in crate::api) fn validate_change(&self, object: &Value, old: &Value) -> Result<(), ApiError> {
        let metadata = |object: &Value| {
            let mut object = object.clone();
            set_meta(&mut object, "managedFields", None);
            object.get("metadata").cloned().unwrap_or_default()
        };
        let (new, before) = (metadata(object), metadata(old));
        let names = &self.resource.names;
        // Kubernetes looks at metadata once for all kinds, and then once more for each.
        let mut errors = validate_metadata(&new, names.namespaced, NameRule::PathSegment, "metadata");
        errors.extend(validate_metadata_update(&new, &before, "metadata"));
        errors.extend(validate_metadata_update(&new, &before, "metadata"));
        if !self.resource.custom && METADATA_AGAIN.contains(&names.kind.as_str()) && self.request.subresource.is_empty()
        {
            errors.extend(validate_metadata(
                &new,
                names.namespaced,
                NameRule::PathSegment,
                "metadata",
            ));
        }
        errors.extend(self.content_errors(object, Some(old)));
        self.refuse(object, &errors)
    }

    fn content_errors(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let status = self.request.subresource == "status";
        match (&self.resource.schema, old) {
            (Some(schema), Some(old)) if self.resource.custom && status => schema.validate_status(object, old),
            (Some(schema), old) if self.resource.custom => schema.validate(object, old),
            _ if self.resource.custom => Vec::new(),
            _ if status => builtin::validate_status(self.resource, object),
            _ => builtin::validate(self.resource, object, old),
        }
    }

    fn refuse(&self, object: &Value, errors: &[FieldError]) -> Result<(), ApiError> {
        if errors.is_empty() {
            return Ok(());
        }
        let name = meta(object, "name");
        Err(ApiError::invalid(&self.resource.group_kind(), name, errors))
    }
}

/// Group and version with a slash between them, in the core group too.
pub(super) fn group_version(version: &str) -> String {
    if version.contains('/') {
        version.to_owned()
    } else {
        format!("/{version}")
    }
}

/// Drops owners that are named twice, with a warning.
fn dedup_owners(object: &mut Value, source: Source) -> Option<String> {
    let owners = object.get_mut("metadata")?.get_mut("ownerReferences")?.as_array_mut()?;
    let (mut seen, mut twice): (Vec<Value>, Vec<String>) = (Vec::new(), Vec::new());
    for owner in std::mem::take(owners) {
        if seen.contains(&owner) {
            let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned();
            if !twice.contains(&uid) {
                twice.push(uid);
            }
        } else {
            seen.push(owner);
        }
    }
    *owners = seen;
    let when = if source == Source::Body {
        ""
    } else {
        " after mutating admission happens"
    };
    (!twice.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        )
    })
}

impl State {
    /// Gives a service its addresses, new or kept.
    pub(in crate::api) fn address(
        &self,
        call: &Call<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        if call.resource.custom || call.resource.names.kind != "Service" || !call.request.subresource.is_empty() {
            return Ok(());
        }
        self.addresses.give(object, old).map_err(|refusal| match refusal {
            Refusal::Fields(wrong) => ApiError::invalid(&call.resource.group_kind(), meta(object, "name"), &wrong),
            Refusal::Unnamed(why) => ApiError::unknown(why),
            Refusal::Internal(why) => ApiError::internal(why),
        })
    }
}
