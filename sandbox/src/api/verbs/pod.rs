//! What is asked of a pod beside its object: binding to a node, and eviction.

use http::StatusCode;
use serde_json::{Value, json};

use crate::api::{
    clock::seconds,
    field_error::FieldError,
    object::{array, child, is_terminating, map, meta, meta_value, metadata},
    options::{DeleteOptions, WriteOptions},
    request::RequestInfo,
    selector::LabelSelector,
    state::{Call, Reply, State},
    status::{ApiError, GroupResource},
    store::Key,
};

/// The tables of what pods name.
const PRIORITIES: &str = "priorityclasses.scheduling.k8s.io";
const ACCOUNTS: &str = "serviceaccounts.";

/// The table of disruption budgets.
const BUDGETS: &str = "poddisruptionbudgets.policy";

impl State {
    /// What a new pod names must exist. The account `default` always does.
    pub(in crate::api) fn admit_pod(&self, call: &Call<'_>, pod: &Value) -> Result<(), ApiError> {
        if call.resource.names.kind != "Pod" || call.resource.custom {
            return Ok(());
        }
        let text = |field: &str| pod.pointer(field).and_then(Value::as_str).unwrap_or_default();
        let (class, account) = (text("/spec/priorityClassName"), text("/spec/serviceAccountName"));
        let refused = |why: &str| Err(ApiError::forbidden(&call.resource.name(), meta(pod, "name"), why));
        let known = class.is_empty() || class.starts_with("system-");
        if !known && self.store.get(PRIORITIES, &Key::new("", class)).is_none() {
            return refused(&format!("no PriorityClass with name {class} was found"));
        }
        let priority = pod.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or(0);
        if class.is_empty() && priority != 0 {
            return refused(&format!(
                "the integer value of priority ({priority}) must not be provided in pod spec; priority admission \
                 controller computed 0 from the given PriorityClass name"
            ));
        }
        let namespace = call.request.namespace.as_str();
        if account != "default" && self.store.get(ACCOUNTS, &Key::new(namespace, account)).is_none() {
            return refused(&format!(
                "error looking up service account {namespace}/{account}: serviceaccount {account:?} not found"
            ));
        }
        Ok(())
    }

    /// Puts a pod on a node.
    pub(in crate::api) fn bind(
        &mut self,
        call: &Call<'_>,
        binding: &Value,
        options: &WriteOptions,
    ) -> Result<Reply, ApiError> {
        if meta(binding, "name") != call.request.name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
        let existing = self.existing(call)?;
        let kind = binding
            .pointer("/target/kind")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !matches!(kind, "" | "Node") {
            let supported = ["Node", "<empty>"];
            return Err(ApiError::unknown(
                FieldError::not_supported("target.kind", kind, &supported).to_string(),
            ));
        }
        if binding
            .pointer("/target/name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .is_empty()
        {
            return Err(ApiError::unknown(FieldError::required("target.name", "").to_string()));
        }
        let bindings = GroupResource {
            group: String::new(),
            resource: "pods/binding".into(),
        };
        let (pod, name) = (&existing.value, &call.request.name);
        let refused = |why: String| Err(ApiError::conflict(&bindings, name, &why));
        for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let (wanted, is) = (meta(binding, field), meta(pod, field));
            if !wanted.is_empty() && wanted != is {
                let why = format!(
                    "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: \
                     Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {is}",
                    call.storage_path()
                );
                return Err(ApiError::conflict(&call.resource.name(), name, &why));
            }
        }
        if is_terminating(pod) {
            return refused(format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        let text = |value: &Value, path: &str| {
            value
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let bound = text(pod, "/spec/nodeName");
        if !bound.is_empty() {
            return refused(format!("pod {name} is already assigned to node {bound:?}"));
        }
        let node = text(binding, "/target/name");
        let mut pod = pod.clone();
        let fields = map(&mut pod);
        child(fields, "spec").insert("nodeName".into(), node.into());
        child(fields, "status").shift_remove("nominatedNodeName");
        let condition = json!({"type": "PodScheduled", "status": "True"});
        set_condition(&mut pod, condition, seconds(self.clock.now()));
        for field in ["labels", "annotations"] {
            for (key, value) in meta_value(binding, field)
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                child(metadata(&mut pod), field).insert(key.clone(), value.clone());
            }
        }
        if !options.dry_run {
            self.store.put(call.table(), call.key(), pod);
        }
        Ok(success())
    }

    /// Deletes a pod unless a disruption budget forbids it.
    pub(in crate::api) fn evict(
        &mut self,
        call: &Call<'_>,
        eviction: &Value,
        options: &DeleteOptions,
    ) -> Result<Reply, ApiError> {
        if meta(eviction, "name") != call.request.name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let existing = self.existing(call)?;
        let phase = existing
            .value
            .pointer("/status/phase")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let counts = !matches!(phase, "Succeeded" | "Failed" | "Pending") && !is_terminating(&existing.value);
        if counts {
            self.spend_budget(call, &existing.value, options.dry_run)?;
        }
        if !options.dry_run {
            let mut pod = existing.value.clone();
            let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting"});
            set_condition(&mut pod, condition, seconds(self.clock.now()));
            self.store.put(call.table(), call.key(), pod);
        }
        let request = RequestInfo {
            subresource: String::new(),
            ..call.request.clone()
        };
        self.delete(
            &Call {
                resource: call.resource,
                request: &request,
            },
            options,
        )?;
        Ok(success())
    }

    fn spend_budget(&mut self, call: &Call<'_>, pod: &Value, dry_run: bool) -> Result<(), ApiError> {
        let namespace = call.request.namespace.as_str();
        let selects = |budget: &Value| {
            let selector = budget.pointer("/spec/selector").filter(|selector| !selector.is_null());
            selector.is_some_and(|selector| LabelSelector::from_object(selector).matches(pod))
        };
        let budgets = self.store.list(BUDGETS, Some(namespace), None);
        let found: Vec<_> = budgets
            .filter(|(_, budget)| selects(&budget.value))
            .map(|(_, b)| b.clone())
            .collect();
        let budget = match found.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                return Err(ApiError::unknown(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let status = |field: &str| {
            let value = budget.value.get("status").and_then(|status| status.get(field));
            value.and_then(Value::as_i64).unwrap_or(0)
        };
        let name = meta(&budget.value, "name");
        let refusal = |retry: u32, message: String| {
            let error = ApiError::too_many_requests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                retry,
            );
            Err(error.with_detail("causes", json!([{"reason": "DisruptionBudget", "message": message}])))
        };
        let generation = meta_value(&budget.value, "generation")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        if status("observedGeneration") < generation {
            return refusal(
                10,
                format!("The disruption budget {name} is still being processed by the server."),
            );
        }
        let allowed = status("disruptionsAllowed");
        if allowed <= 0 {
            let (needed, healthy) = (status("desiredHealthy"), status("currentHealthy"));
            let message =
                format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently");
            return refusal(0, message);
        }
        if !dry_run {
            let mut spent = budget.value.clone();
            let fields = child(map(&mut spent), "status");
            fields.insert("disruptionsAllowed".into(), (allowed - 1).into());
            let now = seconds(self.clock.now());
            child(fields, "disruptedPods").insert(call.request.name.clone(), now);
            self.store.put(&BUDGETS.into(), Key::new(namespace, name), spent);
        }
        Ok(())
    }
}

/// Sets a pod's condition, keeping the time of its last transition if its status stays.
fn set_condition(pod: &mut Value, mut condition: Value, now: Value) {
    let kind = condition.get("type").cloned();
    let status = condition.get("status").cloned();
    let conditions = array(child(map(pod), "status"), "conditions");
    let found = conditions.iter_mut().find(|known| known.get("type") == kind.as_ref());
    let since = match &found {
        Some(known) if known.get("status") == status.as_ref() => known.get("lastTransitionTime").cloned(),
        _ => None,
    };
    let fields = map(&mut condition);
    fields.insert("lastProbeTime".into(), Value::Null);
    fields.insert("lastTransitionTime".into(), since.unwrap_or(now));
    match found {
        Some(found) => *found = condition,
        None => conditions.push(condition),
    }
}

fn success() -> Reply {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Reply::Plain {
        code: StatusCode::CREATED,
        body,
    }
}
