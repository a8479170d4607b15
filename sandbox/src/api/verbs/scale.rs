//! The scale subresource: a Scale is read from an object, and its replicas are written back into it.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{PatchKind, admit::Source};
use crate::api::{
    field_error::FieldError,
    object::{child, map, meta, meta_value, set_meta},
    options::WriteOptions,
    resource::ScalePaths,
    selector::LabelSelector,
    state::{Call, Reply, State},
    status::{ApiError, GroupResource},
};

impl State {
    pub(in crate::api) fn get_scale(&self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let object = self.existing(call)?;
        Ok(plain(&scale_of(call, &object.value)))
    }

    pub(in crate::api) fn update_scale(
        &mut self,
        call: &Call<'_>,
        scale: &Value,
        options: &WriteOptions,
    ) -> Result<Reply, ApiError> {
        let existing = self.existing(call)?;
        let kind = GroupResource {
            group: "autoscaling".into(),
            resource: "Scale".into(),
        };
        if meta(scale, "name") != call.request.name {
            let (body, url) = (meta(scale, "name"), &call.request.name);
            return Err(ApiError::bad_request(format!(
                "the name of the object ({body}) does not match the name on the URL ({url})"
            )));
        }
        let replicas = replicas(scale);
        if replicas < 0 {
            let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
            return Err(ApiError::invalid(&kind, &call.request.name, &[error]));
        }
        let mut new = existing.value.clone();
        set(&mut new, paths(call), replicas);
        for field in ["uid", "resourceVersion"] {
            if let Some(value) = meta_value(scale, field) {
                set_meta(&mut new, field, Some(value.clone()));
            }
        }
        let warnings = call.admit(&mut new, options, Source::Apply)?;
        self.own(call, Some(&existing.value), &mut new, options);
        let reply = self.replace(call, &existing, new, options, warnings)?;
        Ok(scaled(call, reply))
    }

    pub(in crate::api) fn patch_scale(
        &mut self,
        call: &Call<'_>,
        kind: PatchKind,
        patch: Value,
        options: &WriteOptions,
    ) -> Result<Reply, ApiError> {
        if kind == PatchKind::Apply {
            return self.apply_scale(call, &patch, options);
        }
        let existing = self.existing(call)?;
        let mut scale = scale_of(call, &existing.value);
        kind.lay_over(call, &mut scale, patch)?;
        self.update_scale(call, &scale, options)
    }

    fn apply_scale(&mut self, call: &Call<'_>, patch: &Value, options: &WriteOptions) -> Result<Reply, ApiError> {
        let existing = self.existing(call)?;
        // Applying a Scale is applying its replicas to the object.
        let mut applied = json!({"apiVersion": call.resource.api_version(), "kind": call.resource.names.kind,
            "metadata": {"name": call.request.name}});
        set(&mut applied, paths(call), replicas(patch));
        let (owner, now) = (call.owner(options, true), self.clock.now());
        let mut new = call
            .typed()
            .apply(&existing.value, &applied, &owner, options.force == Some(true), now)?;
        let warnings = call.admit(&mut new, options, Source::Apply)?;
        let reply = self.replace(call, &existing, new, options, warnings)?;
        Ok(scaled(call, reply))
    }
}

fn paths<'a>(call: &Call<'a>) -> Option<&'a ScalePaths> {
    call.resource.scale.as_ref()
}

fn replicas(scale: &Value) -> i64 {
    scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0)
}

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split('.').filter(|step| !step.is_empty())
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    steps(path).try_fold(object, |value, step| value.get(step))
}

fn set(object: &mut Value, paths: Option<&ScalePaths>, replicas: i64) {
    let Some((parents, last)) = paths.and_then(|paths| paths.spec.rsplit_once('.')) else {
        return;
    };
    let parent: &mut Map<String, Value> = steps(parents).fold(map(object), |map, step| child(map, step));
    parent.insert(last.to_owned(), replicas.into());
}

fn scaled(call: &Call<'_>, reply: Reply) -> Reply {
    match reply {
        Reply::Object { object, .. } => plain(&scale_of(call, &object.value)),
        other => other,
    }
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
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}
