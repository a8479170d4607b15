//! Delete and deletecollection: preconditions, grace periods, finalizers, propagation policies.

use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::{
    clock::seconds,
    lifecycle::{is_emptied, is_kept, mark_for_emptying},
    object::{finalizers, is_terminating, meta, meta_value, set_meta},
    options::{DeleteOptions, ListOptions, Propagation},
    request::RequestInfo,
    state::{Call, Reply, State},
    status::{ApiError, GroupResource},
    store::Object,
};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What a deletion does to an object.
enum Step {
    /// A deletion is under way already: nothing.
    Pending,
    /// It stays, marked, until its finalizers are gone or its kubelet has stopped it.
    Mark(Value),
    /// Its time is up: it is marked, so that everyone sees that, and goes.
    End(Value),
    /// It goes.
    Remove,
}

impl State {
    pub(in crate::api) fn delete(&mut self, call: &Call<'_>, options: &DeleteOptions) -> Result<Reply, ApiError> {
        let existing = self.existing(call)?;
        if is_kept(call.table(), &call.request.name) {
            let why = "this namespace may not be deleted";
            return Err(ApiError::forbidden(&call.resource.name(), &call.request.name, why));
        }
        check_preconditions(call, &existing, options)?;
        let step = self.deletion(call, &existing.value, options);
        let answer = |object: Arc<Object>, call: &Call<'_>| {
            if call.resource.returns_deleted {
                Reply::ok(object)
            } else {
                Reply::Plain {
                    code: StatusCode::OK,
                    body: success(&call.resource.name(), &object.value),
                }
            }
        };
        match step {
            Step::Pending => Ok(answer(existing, call)),
            Step::Mark(object) if object == existing.value => Ok(Reply::ok(existing)),
            Step::Mark(object) if options.dry_run => Ok(Reply::ok(Object::detached(object, existing.revision))),
            Step::Mark(object) => Ok(Reply::ok(self.store.put(call.table(), call.key(), object))),
            Step::End(object) if options.dry_run => Ok(Reply::ok(Object::detached(object, existing.revision))),
            Step::End(object) => {
                let marked = self.store.put(call.table(), call.key(), object);
                Ok(answer(self.remove(call.table(), &call.key()).unwrap_or(marked), call))
            }
            Step::Remove if options.dry_run => Ok(answer(existing, call)),
            Step::Remove => {
                let last = self.remove(call.table(), &call.key()).unwrap_or(existing);
                Ok(answer(last, call))
            }
        }
    }

    pub(in crate::api) fn delete_collection(
        &mut self,
        call: &Call<'_>,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Reply, ApiError> {
        let Reply::List { items, revision, .. } = self.list(call, list)? else {
            return Err(ApiError::internal("a list is no list"));
        };
        for item in &items {
            let request = RequestInfo {
                name: meta(&item.value, "name").to_owned(),
                namespace: meta(&item.value, "namespace").to_owned(),
                ..call.request.clone()
            };
            match self.delete(
                &Call {
                    resource: call.resource,
                    request: &request,
                },
                options,
            ) {
                Ok(_) => {}
                Err(error) if error.code == StatusCode::NOT_FOUND => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Reply::List {
            items,
            revision,
            token: None,
            remaining: None,
        })
    }

    fn deletion(&self, call: &Call<'_>, object: &Value, options: &DeleteOptions) -> Step {
        let mut object = object.clone();
        let now = self.clock.now();
        let graceful = match grace(call, &mut object, options, now) {
            Grace::Pending => return Step::Pending,
            Grace::Seconds(seconds) => Some(seconds),
            Grace::None => None,
        };
        if is_emptied(call.table()) && !is_terminating(&object) {
            set_meta(&mut object, "deletionTimestamp", Some(seconds(now)));
            mark_for_emptying(call.table(), &mut object, seconds(now));
            return Step::Mark(object);
        }
        let held = object
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty());
        if is_emptied(call.table()) && held {
            return Step::Pending;
        }
        let kept = finalizers_after(&object, options.propagation, call.resource.names.kind == "Event");
        let pending = !kept.is_empty();
        set_finalizers(&mut object, kept);
        match graceful {
            Some(grace) if grace > 0 || pending => Step::Mark(object),
            Some(_) => Step::End(object),
            None if pending => {
                mark(&mut object, now);
                Step::Mark(object)
            }
            _ => Step::Remove,
        }
    }
}

/// Pods end in two steps: marked now, removed by the kubelet (or at once where no kubelet has them).
fn grace(call: &Call<'_>, object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Grace {
    if call.resource.names.kind != "Pod" {
        return Grace::None;
    }
    let wanted = options
        .grace_seconds
        .map(|seconds| if seconds < 0 { 1 } else { seconds });
    if is_terminating(object) {
        return shorten(object, wanted, now);
    }
    let spec = |field: &str| object.get("spec").and_then(|spec| spec.get(field));
    let own = spec("terminationGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let bound = spec("nodeName")
        .and_then(Value::as_str)
        .is_some_and(|node| !node.is_empty());
    let phase = object
        .get("status")
        .and_then(|status| status.get("phase"))
        .and_then(Value::as_str);
    let ended = matches!(phase, Some("Failed" | "Succeeded"));
    let period = if bound && !ended { wanted.unwrap_or(own) } else { 0 };
    let at = now.checked_add(jiff::SignedDuration::from_secs(period)).unwrap_or(now);
    raise_generation(object);
    set_meta(object, "deletionTimestamp", Some(seconds(at)));
    set_meta(object, "deletionGracePeriodSeconds", Some(json!(period)));
    Grace::Seconds(period)
}

enum Grace {
    None,
    Pending,
    Seconds(i64),
}

/// A grace period that runs may only become shorter.
fn shorten(object: &mut Value, wanted: Option<i64>, now: Timestamp) -> Grace {
    let running = meta_value(object, "deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    if running == 0 {
        return Grace::None;
    }
    let Some(mut period) = wanted.filter(|wanted| *wanted < running) else {
        return Grace::Pending;
    };
    let started = meta(object, "deletionTimestamp").parse::<Timestamp>().unwrap_or(now);
    let shift = jiff::SignedDuration::from_secs(period - running);
    let mut at = started.checked_add(shift).unwrap_or(now);
    if at < now {
        at = now;
        period = period.min(1);
    }
    set_meta(object, "deletionTimestamp", Some(seconds(at)));
    set_meta(object, "deletionGracePeriodSeconds", Some(json!(period)));
    Grace::Seconds(period)
}

fn mark(object: &mut Value, now: Timestamp) {
    let marked = meta(object, "deletionTimestamp").parse::<Timestamp>().ok();
    if marked.is_none() {
        raise_generation(object);
    }
    if marked.is_none_or(|at| at > now) {
        set_meta(object, "deletionTimestamp", Some(seconds(now)));
    }
    set_meta(object, "deletionGracePeriodSeconds", Some(json!(0)));
}

fn raise_generation(object: &mut Value) {
    if let Some(generation) = meta_value(object, "generation").and_then(Value::as_i64) {
        set_meta(object, "generation", Some(json!(generation + 1)));
    }
}

/// The finalizers that the garbage collector is to see, given the policy.
fn finalizers_after(object: &Value, policy: Option<Propagation>, uncollected: bool) -> Vec<String> {
    let present = finalizers(object);
    if uncollected {
        return present;
    }
    let has = |name: &str| present.iter().any(|finalizer| finalizer == name);
    let (orphan, foreground) = match policy {
        Some(policy) => (policy == Propagation::Orphan, policy == Propagation::Foreground),
        None => (has(ORPHAN), has(FOREGROUND) && !has(ORPHAN)),
    };
    let mut kept: Vec<String> = present
        .into_iter()
        .filter(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND)
        .collect();
    if orphan {
        kept.push(ORPHAN.into());
    }
    if foreground {
        kept.push(FOREGROUND.into());
    }
    kept
}

fn set_finalizers(object: &mut Value, list: Vec<String>) {
    let value = if list.is_empty() { None } else { Some(Value::from(list)) };
    set_meta(object, "finalizers", value);
}

fn check_preconditions(call: &Call<'_>, existing: &Object, options: &DeleteOptions) -> Result<(), ApiError> {
    let kind = call.resource.group_kind();
    let uid = meta(&existing.value, "uid");
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(&kind, &call.request.name, &why));
    }
    let revision = meta(&existing.value, "resourceVersion");
    if let Some(wanted) = options.revision.as_deref().filter(|wanted| *wanted != revision) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
        );
        return Err(ApiError::conflict(&kind, &call.request.name, &why));
    }
    Ok(())
}

fn success(what: &GroupResource, object: &Value) -> Value {
    let mut details = serde_json::Map::new();
    details.insert("name".into(), meta(object, "name").into());
    if !what.group.is_empty() {
        details.insert("group".into(), what.group.as_str().into());
    }
    details.insert("kind".into(), what.resource.as_str().into());
    details.insert("uid".into(), meta(object, "uid").into());
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
