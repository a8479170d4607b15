//! Which verb a request comes to, and with which options.

use http::header::USER_AGENT;
use serde_json::Value;

use super::{
    Inner,
    faults::Fault,
    object::meta,
    options::{DeleteOptions, ListOptions, WriteOptions},
    request::Verb,
    resource::Resource,
    serve::Incoming,
    state::{Call, Reply, State},
    status::ApiError,
    verbs::PatchKind,
};

/// What is said to who wants into a pod.
const NO_EXEC: &str = "the sandbox runs pods as processes of this machine and opens no shell in them: look at them with \
                       the machine's own tools, or at their output with `kubectl logs`";
/// What is said to who wants to reach a pod's port.
const NO_FORWARD: &str = "the sandbox runs pods as processes of this machine and forwards no ports: connect to the pod's \
                          own address, which `kubectl get pod -o wide` shows";

impl Inner {
    /// Carries a request out and all that follows from it.
    pub(super) fn perform(
        &self,
        incoming: &Incoming,
        resource: &Resource,
        fault: Option<&Fault>,
    ) -> Result<Reply, ApiError> {
        let call = Call {
            resource,
            request: &incoming.request,
        };
        let mut state = self.lock();
        let reply = if matches!(call.request.verb, Verb::Get | Verb::List | Verb::Watch) {
            read(&state, &call, incoming, fault)
        } else {
            write(&mut state, &call, incoming)
        };
        if call.request.verb.is_mutating() && reply.is_ok() {
            let name = match &reply {
                Ok(Reply::Object { object, .. }) => meta(&object.value, "name").to_owned(),
                _ => call.request.name.clone(),
            };
            state.follow_up(&call, &name);
        }
        state.wake();
        reply
    }
}

fn read(state: &State, call: &Call<'_>, incoming: &Incoming, fault: Option<&Fault>) -> Result<Reply, ApiError> {
    let options = ListOptions::parse(&incoming.query, call.request.verb)?;
    if call.request.verb == Verb::List
        && options.token.is_some()
        && options.revision.is_some_and(|revision| revision > 0)
    {
        return Err(ApiError::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    let past = match fault {
        Some(Fault::Stale(past)) => Some(*past),
        _ => None,
    };
    match (call.request.verb, call.request.subresource.as_str(), past) {
        (Verb::Get, "scale", _) => state.get_scale(call),
        (Verb::Get, "exec" | "attach", _) => Err(ApiError::bad_request(NO_EXEC)),
        (Verb::Get, "portforward", _) => Err(ApiError::bad_request(NO_FORWARD)),
        (Verb::Get, _, None) => state.get(call, options.revision),
        (Verb::Get, _, Some(past)) => state.get_stale(call, past),
        (_, _, None) => state.list(call, &options),
        (_, _, Some(past)) => state.list_stale(call, &options, past),
    }
}

fn write(state: &mut State, call: &Call<'_>, incoming: &Incoming) -> Result<Reply, ApiError> {
    let (verb, query, kind) = (call.request.verb, &incoming.query, call.resource.names.kind.as_str());
    let options = || WriteOptions::parse(query, incoming.header(USER_AGENT), verb, call.request.apply);
    // What is written whole is also looked at for fields that are there twice.
    let whole = || -> Result<(Value, WriteOptions), ApiError> {
        let (object, duplicates) = incoming.object_of(kind)?;
        let options = WriteOptions {
            duplicates,
            ..options()?
        };
        Ok((object, options))
    };
    match (verb, call.request.subresource.as_str()) {
        (Verb::Create, "") if call.resource.names.kind == "SelfSubjectAccessReview" => {
            state.review(call, incoming.object()?, &options()?)
        }
        (Verb::Create, "") => {
            let (object, options) = whole()?;
            state.create(call, object, &options)
        }
        (Verb::Create, "binding") => state.bind(call, &incoming.object()?, &options()?),
        (Verb::Create, "eviction") => {
            let eviction = incoming.object()?;
            let mut wanted = DeleteOptions::parse(query, eviction.get("deleteOptions"))?;
            wanted.dry_run |= call.request.dry_run;
            state.evict(call, &eviction, &wanted)
        }
        (Verb::Create, "portforward") => Err(ApiError::bad_request(NO_FORWARD)),
        (Verb::Create, _) => Err(ApiError::bad_request(NO_EXEC)),
        (Verb::Update, "scale") => state.update_scale(call, incoming.object()?, &options()?),
        (Verb::Update, _) => {
            let (object, options) = whole()?;
            state.update(call, object, &options)
        }
        (Verb::Patch, subresource) => {
            let kind = PatchKind::of(incoming.media_type()).ok_or_else(ApiError::unknown_patch)?;
            let options = options()?;
            if kind != PatchKind::Apply {
                // The patch is read only once there is something to lay it over.
                state.existing(call)?;
            }
            match subresource {
                "scale" => state.patch_scale(call, kind, incoming.object()?, &options),
                _ => state.patch(call, kind, incoming.object()?, &options),
            }
        }
        (Verb::Delete, _) => state.delete(call, &delete_options(incoming)?),
        _ => state.delete_collection(
            call,
            &ListOptions::parse(query, Verb::List)?,
            &delete_options(incoming)?,
        ),
    }
}

fn delete_options(incoming: &Incoming) -> Result<DeleteOptions, ApiError> {
    let body: Option<Value> = if incoming.body.is_empty() {
        None
    } else {
        Some(incoming.options()?)
    };
    DeleteOptions::parse(&incoming.query, body.as_ref())
}
