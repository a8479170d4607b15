//! Update, and the part of every write that changes an existing object.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::admit::Source;
use crate::{
    api::{
        apply::keep_times,
        builtin,
        convert::to_storage,
        field_error::FieldError,
        object::{child, finalizers, map, meta, meta_value, set_meta},
        options::WriteOptions,
        resource::{Generation, Resource},
        state::{Call, Reply, State},
        status::{ApiError, MODIFIED},
        store::Object,
    },
    schema::{is_same, make_whole},
};

impl State {
    pub(in crate::api) fn update(
        &mut self,
        call: &Call<'_>,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Reply, ApiError> {
        call.check_body(&mut object)?;
        if meta(&object, "name") != call.request.name {
            let (body, url) = (meta(&object, "name"), &call.request.name);
            return Err(ApiError::bad_request(format!(
                "the name of the object ({body}) does not match the name on the URL ({url})"
            )));
        }
        let warnings = call.admit(&mut object, options, Source::Body)?;
        let existing = match self.existing(call) {
            Ok(existing) => existing,
            Err(_) if call.resource.create_on_update && call.request.subresource.is_empty() => {
                self.check_namespace(call, &call.request.name)?;
                self.own(call, None, &mut object, options);
                return self.insert(call, object, options, warnings);
            }
            Err(error) => return Err(error),
        };
        self.own(call, Some(&existing.value), &mut object, options);
        self.replace(call, &existing, object, options, warnings)
    }

    /// Puts `new` in the place of `old`: preconditions, what the endpoint may write, generation, storage.
    pub(in crate::api) fn replace(
        &mut self,
        call: &Call<'_>,
        old: &Arc<Object>,
        mut new: Value,
        options: &WriteOptions,
        mut warnings: Vec<String>,
    ) -> Result<Reply, ApiError> {
        let (resource, name) = (call.resource, &call.request.name);
        to_storage(resource, &mut new);
        let (uid, old_uid) = (meta(&new, "uid"), meta(&old.value, "uid"));
        if !uid.is_empty() && uid != old_uid {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
                 failed: UID in precondition: {uid}, UID in object meta: {old_uid}",
                call.storage_path()
            );
            return Err(ApiError::conflict(&resource.name(), name, &why));
        }
        let revision = meta(&new, "resourceVersion");
        if (revision.is_empty() || revision == "0") && !resource.unconditional_update {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            // Here the plural name stands where the kind stands elsewhere.
            return Err(ApiError::invalid(&resource.name(), name, &[error]));
        }
        if !revision.is_empty() && revision != "0" && revision != meta(&old.value, "resourceVersion") {
            return Err(ApiError::conflict(&resource.name(), name, MODIFIED));
        }
        restrict(call, &old.value, &mut new);
        if !resource.custom && call.request.subresource.is_empty() {
            builtin::prepare_update(resource, &mut new);
        }
        for field in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "resourceVersion",
            "namespace",
        ] {
            set_meta(&mut new, field, meta_value(&old.value, field).cloned());
        }
        let generation = match call.request.subresource.as_str() {
            "status" => meta_value(&old.value, "generation").cloned(),
            _ => next_generation(resource, &old.value, &new),
        };
        set_meta(&mut new, "generation", generation);
        self.address(call, &mut new, Some(&old.value))?;
        warnings.extend(call.advice(&new));
        keep_times(&old.value, &mut new);
        let answer = |object: Arc<Object>| {
            Ok(Reply::Object {
                code: StatusCode::OK,
                object,
                warnings,
            })
        };
        if is_same(&new, &old.value) && !old.with_null {
            return answer(old.clone());
        }
        call.validate_change(&new, &old.value)?;
        make_whole(&mut new);
        if options.dry_run {
            return answer(Object::detached(new, old.revision));
        }
        let gone = meta_value(&old.value, "deletionTimestamp").is_some()
            && finalizers(&new).is_empty()
            && !is_held(call, &new)
            && meta_value(&old.value, "deletionGracePeriodSeconds").is_none_or(|grace| grace == 0);
        if gone {
            // Nobody sees the object without its last finalizer: it goes at once.
            self.remove(call.table(), &call.key());
            return answer(Object::detached(new, old.revision));
        }
        answer(self.put(call.table(), call.key(), new))
    }
}

/// A namespace has finalizers of another kind, which are its content's.
fn is_held(call: &Call<'_>, object: &Value) -> bool {
    let finalizers = object.pointer("/spec/finalizers").and_then(Value::as_array);
    call.resource.names.kind == "Namespace" && !call.resource.custom && finalizers.is_some_and(|list| !list.is_empty())
}

/// An endpoint writes its own part: `status` the status, the main one everything else.
fn restrict(call: &Call<'_>, old: &Value, new: &mut Value) {
    if call.request.subresource == "status" {
        let whole = call.resource.custom || call.resource.names.kind == "CustomResourceDefinition";
        let mut kept = old.clone();
        let fields = map(&mut kept);
        copy(new, fields, "status");
        if whole {
            set_meta(&mut kept, "managedFields", meta_value(new, "managedFields").cloned());
        } else {
            copy(new, fields, "metadata");
            let protected = match call.resource.names.kind.as_str() {
                "Deployment" => "labels",
                "Pod" => "ownerReferences",
                _ => "selfLink",
            };
            set_meta(&mut kept, protected, meta_value(old, protected).cloned());
        }
        *new = kept;
    } else if call.resource.names.kind == "Namespace" && !call.resource.custom {
        let fields = map(new);
        copy(old, fields, "status");
        if call.request.subresource != "finalize" {
            let finalizers = old.pointer("/spec/finalizers").cloned();
            let spec = child(fields, "spec");
            spec.shift_remove("finalizers");
            spec.extend(finalizers.map(|finalizers| ("finalizers".to_owned(), finalizers)));
        }
    } else if call.resource.has_status() {
        copy(old, map(new), "status");
    }
}

/// Sets a field as another object has it, or has it not.
fn copy(from: &Value, to: &mut Map<String, Value>, field: &str) {
    match from.get(field) {
        Some(value) => to.insert(field.into(), value.clone()),
        None => to.shift_remove(field),
    };
}

fn next_generation(resource: &Resource, old: &Value, new: &Value) -> Option<Value> {
    let same = |fields: &[&str]| fields.iter().all(|field| old.get(field) == new.get(field));
    let content = |object: &Value, leave_out: &[&str]| {
        let fields = object.as_object().into_iter().flatten();
        fields
            .filter(|(field, _)| !leave_out.contains(&field.as_str()))
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    let changed = match resource.generation {
        Generation::None => return meta_value(old, "generation").cloned(),
        Generation::Spec => !same(&["spec"]),
        Generation::SpecOrAnnotations => {
            !same(&["spec"]) || meta_value(old, "annotations") != meta_value(new, "annotations")
        }
        Generation::Content => content(old, &["metadata", "status"]) != content(new, &["metadata", "status"]),
        Generation::ContentOrLabels => {
            content(old, &["metadata", "status"]) != content(new, &["metadata", "status"])
                || meta_value(old, "labels") != meta_value(new, "labels")
        }
        Generation::All => content(old, &["metadata"]) != content(new, &["metadata"]),
    };
    let generation = meta_value(old, "generation").and_then(Value::as_i64).unwrap_or(1);
    Some(json!(generation + i64::from(changed)))
}
