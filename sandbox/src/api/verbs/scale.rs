//! The scale subresource: a Scale is read from an object, and its replicas are written back into it.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{PatchKind, admit::Source};
use crate::{
    api::{
        apply::{FieldSet, Owner, Typed, to_object, to_scale},
        field_error::FieldError,
        object::{child, map, meta, meta_value, set_meta},
        options::WriteOptions,
        resource::ScalePaths,
        selector::LabelSelector,
        state::{Call, Reply, State},
        status::{ApiError, GroupResource},
        store::Object,
    },
    schema,
};

/// The version of Scales.
const VERSION: &str = "autoscaling/v1";

impl State {
    pub(in crate::api) fn get_scale(&self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let object = self.existing(call)?;
        if call.resource.custom && at(&object.value, path(call)).is_none() {
            return Err(ApiError::internal(format!(
                "the spec replicas field {:?} does not exist",
                path(call)
            )));
        }
        Ok(plain(&scale_of(call, &object.value)))
    }

    pub(in crate::api) fn update_scale(
        &mut self,
        call: &Call<'_>,
        mut scale: Value,
        options: &WriteOptions,
    ) -> Result<Reply, ApiError> {
        let existing = self.existing(call)?;
        check_name(call, &scale)?;
        let (live, path) = (owned_scale(call, &existing.value), path(call));
        if let Some(fields) = scale.as_object_mut() {
            fields.insert("kind".into(), "Scale".into());
            fields.insert("apiVersion".into(), VERSION.into());
            // A Scale does not tell none from nothing, and nobody owns nothing.
            let spec = child(fields, "spec");
            if spec.get("replicas") == Some(&json!(0)) {
                spec.shift_remove("replicas");
            }
        }
        let owner = Owner::new(&options.manager, false, "scale", VERSION);
        typed().update(&live, &mut scale, &owner, self.clock.now());
        let mut new = existing.value.clone();
        to_object(&scale, path, &call.resource.api_version(), &mut new);
        self.write_scale(call, &existing, &scale, new, options)
    }

    pub(in crate::api) fn patch_scale(
        &mut self,
        call: &Call<'_>,
        kind: PatchKind,
        patch: Value,
        options: &WriteOptions,
    ) -> Result<Reply, ApiError> {
        let existing = self.existing(call)?;
        let mut scale = owned_scale(call, &existing.value);
        if kind != PatchKind::Apply {
            kind.lay_over(call, &mut scale, patch)?;
            return self.update_scale(call, scale, options);
        }
        let (owner, force) = (
            Owner::new(&options.manager, true, "scale", VERSION),
            options.force == Some(true),
        );
        let applied = typed().apply(&scale, &patch, &owner, force, self.clock.now())?;
        let mut new = existing.value.clone();
        to_object(&applied, path(call), &call.resource.api_version(), &mut new);
        self.write_scale(call, &existing, &applied, new, options)
    }

    /// Writes the replicas of a Scale into the object, whose owners are right already.
    fn write_scale(
        &mut self,
        call: &Call<'_>,
        existing: &Arc<Object>,
        scale: &Value,
        mut new: Value,
        options: &WriteOptions,
    ) -> Result<Reply, ApiError> {
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        if replicas < 0 {
            let kind = GroupResource {
                group: "autoscaling".into(),
                resource: "Scale".into(),
            };
            let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
            return Err(ApiError::invalid(&kind, &call.request.name, &[error]));
        }
        set(&mut new, path(call), replicas);
        for field in ["uid", "resourceVersion"] {
            if let Some(value) = meta_value(scale, field) {
                set_meta(&mut new, field, Some(value.clone()));
            }
        }
        let warnings = call.admit(&mut new, options, Source::Apply)?;
        let reply = self.replace(call, existing, new, options, warnings)?;
        Ok(match reply {
            Reply::Object { object, .. } => plain(&scale_of(call, &object.value)),
            other => other,
        })
    }
}

/// What a Scale is to the rules of ownership.
fn typed() -> Typed<'static> {
    Typed {
        schema: schema::builtin("autoscaling", "v1", "Scale").map(AsRef::as_ref),
        api_version: VERSION.to_owned(),
        empty: json!({}),
        reset: FieldSet::default(),
    }
}

fn check_name(call: &Call<'_>, scale: &Value) -> Result<(), ApiError> {
    let (body, url) = (meta(scale, "name"), &call.request.name);
    if body == url {
        return Ok(());
    }
    let text = format!("the name of the object ({body}) does not match the name on the URL ({url})");
    Err(ApiError::bad_request(text))
}

/// The Scale of an object, with the owners of its replicas.
fn owned_scale(call: &Call<'_>, object: &Value) -> Value {
    let mut scale = scale_of(call, object);
    to_scale(object, path(call), &mut scale);
    scale
}

fn path<'a>(call: &Call<'a>) -> &'a str {
    call.resource.scale.as_ref().map_or("", |paths| &paths.spec)
}

fn paths<'a>(call: &Call<'a>) -> Option<&'a ScalePaths> {
    call.resource.scale.as_ref()
}

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split('.').filter(|step| !step.is_empty())
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    steps(path).try_fold(object, |value, step| value.get(step))
}

fn set(object: &mut Value, path: &str, replicas: i64) {
    let Some((parents, last)) = path.rsplit_once('.') else {
        return;
    };
    let parent: &mut Map<String, Value> = steps(parents).fold(map(object), |map, step| child(map, step));
    parent.insert(last.to_owned(), replicas.into());
}

fn plain(scale: &Value) -> Reply {
    Reply::Plain {
        code: StatusCode::OK,
        body: scale.clone(),
    }
}

fn scale_of(call: &Call<'_>, object: &Value) -> Value {
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        metadata.extend(meta_value(object, field).map(|value| (field.to_owned(), value.clone())));
    }
    let number = |path: &str| at(object, path).and_then(Value::as_i64).unwrap_or(0);
    let (mut spec, mut status) = (Map::new(), Map::new());
    if let Some(paths) = paths(call) {
        if number(&paths.spec) != 0 {
            spec.insert("replicas".into(), number(&paths.spec).into());
        }
        status.insert("replicas".into(), number(&paths.status).into());
        let selector = paths.selector.as_ref().and_then(|path| at(object, path));
        let text = match selector {
            Some(Value::String(text)) => text.clone(),
            Some(selector @ Value::Object(_)) => LabelSelector::from_object(selector).to_string(),
            _ => String::new(),
        };
        if !text.is_empty() {
            status.insert("selector".into(), text.into());
        }
    }
    json!({"kind": "Scale", "apiVersion": VERSION, "metadata": metadata, "spec": spec, "status": status})
}
