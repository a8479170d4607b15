//! Patch: JSON, merge and strategic merge patches, and server-side apply.

use std::borrow::Cow;

use json_patch::{AddOperation, PatchOperation};
use serde_json::Value;

use super::admit::{Source, group_version};
use crate::api::{
    apply,
    convert::from_storage,
    object::{map, meta, meta_value},
    options::WriteOptions,
    request::RequestInfo,
    state::{Call, Reply, State},
    status::ApiError,
};
use crate::surface::strategic::{self, PatchError};

/// The kinds of patches, told apart by their media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Merge by the keys of lists; built-in resources only.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchKind {
    pub(in crate::api) fn of(media_type: &str) -> Option<Self> {
        match media_type {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }

    /// Lays a patch over an object.
    pub(super) fn lay_over(self, call: &Call<'_>, object: &mut Value, patch: Value) -> Result<(), ApiError> {
        match self {
            Self::Json => {
                let operations = patch.as_array().cloned();
                let patch: json_patch::Patch = serde_json::from_value(patch).map_err(|error| match operations {
                    // Of a list of operations it is told only that it does not work.
                    Some(_) => ApiError::unprocessable(),
                    None => ApiError::bad_request(format!("error decoding patch: {error}")),
                })?;
                operate(object, patch).map_err(|_| ApiError::unprocessable())
            }
            Self::Strategic if call.resource.custom => {
                let accepted = [
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/apply-patch+yaml",
                ];
                Err(ApiError::unsupported_media_type(&accepted))
            }
            Self::Strategic => match &call.resource.schema {
                Some(schema) => strategic::patch(schema, object, patch).map_err(|error| match error {
                    PatchError::NoMergeKey { .. } => ApiError::unknown(error.to_string()),
                    _ => ApiError::bad_request(error.to_string()),
                }),
                None => Err(ApiError::unprocessable()),
            },
            Self::Merge | Self::Apply => {
                json_patch::merge(object, &patch);
                Ok(())
            }
        }
    }
}

impl State {
    pub(in crate::api) fn patch(
        &mut self,
        call: &Call<'_>,
        kind: PatchKind,
        patch: Value,
        options: &WriteOptions,
    ) -> Result<Reply, ApiError> {
        if kind == PatchKind::Apply {
            return self.apply(call, &patch, options);
        }
        let existing = self.existing(call)?;
        let mut new = from_storage(call.resource, &existing.value).into_owned();
        kind.lay_over(call, &mut new, patch)?;
        if !call.resource.custom {
            call.check_patched(&new)?;
        }
        call.check_body(&mut new)?;
        check_name(call, &new)?;
        let warnings = call.admit(&mut new, options, Source::Patch)?;
        call.check_uid(&new, &existing.value)?;
        self.own(call, Some(&existing.value), &mut new, options);
        self.replace(call, &existing, new, options, warnings)
    }

    fn apply(&mut self, call: &Call<'_>, patch: &Value, options: &WriteOptions) -> Result<Reply, ApiError> {
        let (resource, request) = (call.resource, call.request);
        let text = |field: &str| patch.get(field).and_then(Value::as_str).unwrap_or_default();
        if text("apiVersion") != resource.api_version() || text("kind") != resource.names.kind {
            let (version, kind) = (text("apiVersion"), text("kind"));
            return Err(ApiError::bad_request(format!(
                "invalid object type: {}, Kind={kind}",
                group_version(version)
            )));
        }
        if meta_value(patch, "managedFields").is_some() {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        call.check_body_namespace(patch)?;
        let existing = self.existing(call);
        match &existing {
            // Where an update may create, that of a status may, too.
            Err(_) if request.subresource == "status" && resource.create_on_update => {
                let request = &RequestInfo {
                    subresource: String::new(),
                    ..request.clone()
                };
                return self.apply(&Call { resource, request }, patch, options);
            }
            Err(error) if !request.subresource.is_empty() => return Err(error.clone()),
            _ => {}
        }
        let faults = apply::faults(resource.schema.as_deref(), patch);
        if !faults.is_empty() {
            let list = match faults.as_slice() {
                [only] => only.clone(),
                many => format!(
                    "errors:\n{}",
                    many.iter()
                        .map(|fault| format!("  {fault}"))
                        .collect::<Vec<_>>()
                        .join("\n")
                ),
            };
            return Err(ApiError::unknown(format!(
                "failed to create typed patch object ({}/{}; {}, Kind={}): {list}",
                meta(patch, "namespace"),
                meta(patch, "name"),
                group_version(&resource.api_version()),
                resource.names.kind
            )));
        }
        let mut nothing = call.empty();
        map(&mut nothing).insert("apiVersion".into(), resource.api_version().into());
        map(&mut nothing).insert("kind".into(), resource.names.kind.as_str().into());
        let live = existing
            .as_ref()
            .map_or(Cow::Borrowed(&nothing), |e| from_storage(resource, &e.value));
        let (owner, now) = (call.owner(options, true), self.clock.now());
        let mut new = call
            .typed()
            .apply(&live, patch, &owner, options.force == Some(true), now)?;
        check_name(call, &new)?;
        let with_null = resource.custom && request.subresource.is_empty() && has_null(&new);
        let warnings = call.admit(&mut new, options, Source::Apply)?;
        if let Ok(existing) = existing {
            call.check_uid(&new, &existing.value)?;
            let reply = self.replace(call, &existing, new, options, warnings)?;
            if with_null && !options.dry_run {
                self.store.note_null(call.table(), &call.key());
            }
            return Ok(reply);
        }
        if meta_value(&new, "uid").is_some() {
            let uid = meta(&new, "uid");
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(ApiError::conflict(&resource.name(), &request.name, &why));
        }
        self.check_namespace(call, &request.name)?;
        self.insert(call, new, options, warnings)
    }
}

/// Does one operation after the other, each on what the ones before it have left, as Kubernetes does: it adds a field that is
/// to be replaced and is not there, and finds null where an object has no such field.
fn operate(object: &mut Value, patch: json_patch::Patch) -> Result<(), json_patch::PatchError> {
    for operation in patch.0 {
        let operation = match operation {
            PatchOperation::Replace(replace) if object.pointer(replace.path.as_str()).is_none() => {
                PatchOperation::Add(AddOperation {
                    path: replace.path,
                    value: replace.value,
                })
            }
            PatchOperation::Test(test) if test.value.is_null() && lacks(object, test.path.as_str()) => continue,
            other => other,
        };
        json_patch::patch(object, &[operation])?;
    }
    Ok(())
}

/// Whether a path ends at a field that an object could have and has not.
fn lacks(object: &Value, path: &str) -> bool {
    let parent = path.rsplit_once('/').and_then(|(parent, _)| object.pointer(parent));
    parent.is_some_and(Value::is_object) && object.pointer(path).is_none()
}

/// Whether a field of the metadata is null, as one is of which an apply has left nothing but its owner.
fn has_null(object: &Value) -> bool {
    let metadata = object.get("metadata").and_then(Value::as_object);
    metadata.is_some_and(|metadata| metadata.values().any(Value::is_null))
}

fn check_name(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    let (body, url) = (meta(object, "name"), call.request.name.as_str());
    if body.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({url} based on URL) was undeterminable: name must be provided"
        )));
    }
    if body != url {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({body}) does not match the name on the URL ({url})"
        )));
    }
    Ok(())
}
