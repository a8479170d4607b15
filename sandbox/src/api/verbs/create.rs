//! Create.

use http::StatusCode;
use serde_json::{Value, json};

use super::admit::Source;
use crate::{
    api::{
        builtin,
        clock::seconds,
        convert::to_storage,
        field_error::FieldError,
        object::{is_terminating, map, meta, meta_value, set_meta},
        options::WriteOptions,
        resource::Generation,
        state::{Call, Reply, State},
        status::{ApiError, GroupResource},
        store::{Key, Object},
    },
    schema::make_whole,
};

/// What only the server writes, and what a client that creates an object may not bring along.
const SERVER_FIELDS: [&str; 6] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "selfLink",
    "uid",
];

/// How often a name is generated before the last one is reported as taken.
const NAME_ATTEMPTS: usize = 8;

impl State {
    pub(in crate::api) fn create(
        &mut self,
        call: &Call<'_>,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Reply, ApiError> {
        call.check_body(&mut object)?;
        if !meta(&object, "resourceVersion").is_empty() {
            return Err(ApiError::unknown(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.check_namespace(call, meta(&object, "name"))?;
        let warnings = call.admit(&mut object, options, Source::Body)?;
        call.strip(&mut object);
        self.own(call, None, &mut object, options);
        self.insert(call, object, options, warnings)
    }

    /// Stores a new object, whichever verb it comes from.
    pub(in crate::api) fn insert(
        &mut self,
        call: &Call<'_>,
        mut object: Value,
        options: &WriteOptions,
        mut warnings: Vec<String>,
    ) -> Result<Reply, ApiError> {
        to_storage(call.resource, &mut object);
        call.strip(&mut object);
        set_meta(&mut object, "uid", Some(self.ids.uid().into()));
        set_meta(&mut object, "creationTimestamp", Some(seconds(self.clock.now())));
        if call.resource.names.namespaced {
            set_meta(&mut object, "namespace", Some(call.request.namespace.as_str().into()));
        }
        if call.resource.generation != Generation::None {
            set_meta(&mut object, "generation", Some(json!(1)));
        }
        if !call.resource.custom {
            builtin::prepare_create(call.resource, &mut object);
        } else if call.resource.has_status() {
            map(&mut object).shift_remove("status");
        }
        self.name(call, &mut object);
        self.admit_pod(call, &object)?;
        if call.resource.names.kind == "Namespace" && !call.resource.custom {
            builtin::label_namespace(&mut object);
        }
        call.validate_new(&object)?;
        make_whole(&mut object);
        let key = Key::new(meta(&object, "namespace"), meta(&object, "name"));
        if let Some(existing) = self.store.get(call.table(), &key) {
            let mut error = ApiError::already_exists(&call.resource.name(), &key.name);
            if is_terminating(&existing.value) {
                error.message = format!("object is being deleted: {}", error.message);
            }
            return Err(error);
        }
        self.address(call, &mut object, None)?;
        warnings.extend(call.advice(&object));
        let object = if options.dry_run {
            set_meta(&mut object, "resourceVersion", None);
            Object::detached(object, self.store.revision())
        } else {
            self.put(call.table(), key, object)
        };
        Ok(Reply::Object {
            code: StatusCode::CREATED,
            object,
            warnings,
        })
    }

    /// Makes the rest of a name that is to be generated, another one if it is taken.
    fn name(&mut self, call: &Call<'_>, object: &mut Value) {
        let prefix = meta(object, "generateName").to_owned();
        if !meta(object, "name").is_empty() || prefix.is_empty() {
            return;
        }
        for _ in 0..NAME_ATTEMPTS {
            let name = self.ids.name(&prefix);
            let key = Key::new(meta(object, "namespace"), name.as_str());
            set_meta(object, "name", Some(name.into()));
            if self.store.get(call.table(), &key).is_none() {
                return;
            }
        }
    }
}

impl Call<'_> {
    /// Takes away what only the server writes. Where it counts no generations, the client may.
    fn strip(&self, object: &mut Value) {
        let counted = self.resource.generation != Generation::None;
        for field in SERVER_FIELDS
            .into_iter()
            .filter(|field| counted || *field != "generation")
        {
            set_meta(object, field, None);
        }
    }

    /// The body is an object of the request's resource and namespace.
    pub(in crate::api) fn check_body(&self, object: &mut Value) -> Result<(), ApiError> {
        let resource = self.resource;
        if object.is_null() && !self.resource.custom {
            *object = json!({});
        }
        if object.is_array() {
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: \
                 an object is wanted, not a list",
                resource.names.kind
            )));
        }
        if !object.is_object() {
            return Err(ApiError::bad_request("the body of the request must be a JSON object"));
        }
        let text = |field| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let wanted = resource.api_version();
        let mismatch = |why: String| {
            let version = version.rsplit('/').next().unwrap_or_default();
            let text = format!(
                "{kind} in version {version:?} cannot be handled as a {}: {why}",
                resource.names.kind
            );
            Err(ApiError::bad_request(text))
        };
        if resource.custom {
            return self.check_custom_body(object);
        }
        let earlier = version
            .rsplit_once('/')
            .is_some_and(|(group, version)| group == resource.names.group && version.contains("beta"));
        if earlier {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({wanted})"
            )));
        }
        if !version.is_empty() && version != wanted {
            let scheme = "in scheme \"pkg/runtime/scheme.go:110\"";
            return mismatch(format!(
                "no kind {kind:?} is registered for version {version:?} {scheme}"
            ));
        }
        if !kind.is_empty() && kind != resource.names.kind {
            let package = resource
                .names
                .group
                .split('.')
                .next()
                .filter(|group| !group.is_empty())
                .unwrap_or("core");
            let (theirs, ours) = (&resource.names.version, &resource.names.kind);
            return mismatch(format!(
                "converting ({theirs}.{kind}) to ({package}.{ours}): unknown conversion"
            ));
        }
        self.check_body_namespace(object)?;
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".into(), wanted.into());
            fields.insert("kind".into(), resource.names.kind.clone().into());
        }
        Ok(())
    }

    pub(super) fn check_body_namespace(&self, object: &Value) -> Result<(), ApiError> {
        if let Some(namespace) = meta_value(object, "namespace").and_then(Value::as_str)
            && !namespace.is_empty()
            && self.resource.names.namespaced
            && namespace != self.request.namespace
        {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Ok(())
    }

    /// Custom resources must say what they are.
    fn check_custom_body(&self, object: &Value) -> Result<(), ApiError> {
        let names = &self.resource.names;
        let text = |field| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let (version, kind, wanted) = (text("apiVersion"), text("kind"), self.resource.api_version());
        if kind.is_empty() {
            let json = object.to_string();
            let start: String = json.chars().take(32).collect();
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{json}' ({start} ...)",
                names.kind
            )));
        }
        if version != wanted {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({wanted})"
            )));
        }
        if kind != names.kind {
            let what = GroupResource {
                group: names.group.clone(),
                resource: kind.to_owned(),
            };
            let error = FieldError::invalid("kind", kind, format!("must be {}", names.kind));
            return Err(ApiError::invalid(&what, meta(object, "name"), &[error]));
        }
        self.check_body_namespace(object)
    }
}
