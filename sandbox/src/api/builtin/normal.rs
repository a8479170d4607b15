//! A built-in object as the typed round trip of Kubernetes leaves it: types checked, unset values dropped, quantities
//! written in one way. Unknown fields are none of its business.

use serde_json::{Map, Value};

use super::quantity;
use crate::schema::Schema;

/// Fields whose zero value differs from absence. Everywhere else `false`, `0` and `""` count as not set.
#[rustfmt::skip]
const ZERO_COUNTS: &[&str] = &[
    "activeDeadlineSeconds", "allocateLoadBalancerNodePorts", "allowPrivilegeEscalation", "appProtocol",
    "automountServiceAccountToken", "averageUtilization", "backoffLimit", "backoffLimitPerIndex", "blockOwnerDeletion",
    "collisionCount", "completionMode", "completions", "controller", "defaultMode", "deletionGracePeriodSeconds",
    "enableServiceLinks", "endPort", "expirationSeconds", "fsGroup", "fsGroupChangePolicy", "holderIdentity",
    "hostUsers", "immutable", "ingressClassName", "internalTrafficPolicy", "ipFamilyPolicy", "leaseDurationSeconds",
    "leaseTransitions", "loadBalancerClass", "localhostProfile", "manualSelector", "minDomains", "minReplicas", "mode",
    "mountPropagation", "nodeAffinityPolicy", "nodeTaintsPolicy", "optional", "parallelism", "partition", "pathType",
    "preemptionPolicy", "preferredHolder", "priority", "privileged", "procMount", "progressDeadlineSeconds",
    "readOnlyRootFilesystem", "ready", "remainingItemCount", "replicas", "revisionHistoryLimit", "runAsGroup",
    "runAsNonRoot", "runAsUser", "runtimeClassName", "scope", "selectPolicy", "serving", "setHostnameAsFQDN",
    "shareProcessNamespace", "stabilizationWindowSeconds", "started", "startingDeadlineSeconds", "storageClassName",
    "strategy", "suspend", "terminating", "terminatingReplicas", "terminationGracePeriodSeconds", "timeZone",
    "tolerationSeconds", "trafficDistribution", "ttlSecondsAfterFinished", "unhealthyPodEvictionPolicy",
    "userNamespaces", "zone",
];

/// Brings an object into its normal form. The error is the sentence that Kubernetes answers a wrong type with.
pub(super) fn normalize(schema: &Schema, object: &mut Value) -> Result<(), String> {
    walk(schema, object, "")
}

fn walk(schema: &Schema, value: &mut Value, path: &str) -> Result<(), String> {
    match value {
        Value::Object(map) if schema.is_map() => {
            for (key, value) in map.iter_mut() {
                if let Some(below) = schema.field(key) {
                    check(below, value, schema, path)?;
                }
            }
        }
        Value::Object(map) => fields(schema, map, path)?,
        Value::Array(list) => {
            for item in list {
                if let Some(items) = schema.items() {
                    check(items, item, schema, path)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn fields(schema: &Schema, map: &mut Map<String, Value>, path: &str) -> Result<(), String> {
    let mut unset = Vec::new();
    for (name, value) in map.iter_mut() {
        let Some(below) = schema.field(name) else { continue };
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        if !value.is_null() {
            check(below, value, schema, &path)?;
        }
        // The one field that is optional in a spec and plain in a status.
        let plain = name == "replicas" && schema.type_name() == Some("DeploymentStatus") && *value == 0;
        if value.is_null() || ((plain || is_zero(below, name, value)) && !schema.requires(name)) {
            unset.push(name.clone());
        }
    }
    map.retain(|name, _| !unset.contains(name));
    Ok(())
}

fn is_zero(schema: &Schema, name: &str, value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty() && schema.is_map(),
        Value::Bool(false) => !ZERO_COUNTS.contains(&name),
        Value::String(text) => text.is_empty() && !ZERO_COUNTS.contains(&name),
        Value::Number(number) => {
            number.as_i64() == Some(0) && !ZERO_COUNTS.contains(&name) && !schema.is_int_or_string()
        }
        _ => false,
    }
}

fn check(schema: &Schema, value: &mut Value, parent: &Schema, path: &str) -> Result<(), String> {
    if schema.type_name() == Some("Quantity") {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null => return Ok(()),
            _ => return Err(quantity::MALFORMED.into()),
        };
        *value = quantity::canonical(&text).ok_or(quantity::MALFORMED)?.into();
        return Ok(());
    }
    if !value.is_null() && !schema.allows_type(value) {
        let parent = parent.type_name().map_or(String::new(), |name| format!("{name}."));
        return Err(format!(
            "json: cannot unmarshal {} into Go struct field {parent}{path} of type {}",
            kind(value),
            schema.go_type()
        ));
    }
    walk(schema, value, path)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
