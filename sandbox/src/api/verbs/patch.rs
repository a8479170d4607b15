//! Patch: JSON, merge and strategic merge patches, and server-side apply.

use serde_json::Value;

use crate::api::{
    object::{meta, set_meta},
    options::WriteOptions,
    state::{Call, Reply, State},
    status::ApiError,
};

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
            return self.apply(call, patch, options);
        }
        let existing = self.existing(call)?;
        let mut new = existing.value.clone();
        match kind {
            PatchKind::Json => {
                let patch: json_patch::Patch = serde_json::from_value(patch)
                    .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
                json_patch::patch(&mut new, &patch).map_err(|error| {
                    ApiError::invalid(&call.resource.group_kind(), &call.request.name, &[]).with_message(format!(
                        "the server rejected our request due to an error in our request: {error}"
                    ))
                })?;
            }
            _ => json_patch::merge(&mut new, &patch),
        }
        self.check_body(call, &mut new)?;
        self.replace(call, &existing, new, options)
    }

    fn apply(&mut self, call: &Call<'_>, mut patch: Value, options: &WriteOptions) -> Result<Reply, ApiError> {
        if !options.manager_named {
            return Err(ApiError::bad_request(
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
            ));
        }
        self.check_body(call, &mut patch)?;
        if meta(&patch, "name").is_empty() {
            set_meta(&mut patch, "name", Some(call.request.name.as_str().into()));
        }
        match self.existing(call) {
            Ok(existing) => {
                let mut new = existing.value.clone();
                json_patch::merge(&mut new, &patch);
                self.replace(call, &existing, new, options)
            }
            Err(_) if call.request.subresource.is_empty() => {
                self.check_namespace(call, &call.request.name)?;
                self.insert(call, patch, options)
            }
            Err(error) => Err(error),
        }
    }
}
