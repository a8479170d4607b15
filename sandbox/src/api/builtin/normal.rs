//! A built-in object as the typed round trip of Kubernetes leaves it: types checked, unset values dropped, quantities
//! written in one way. Unknown fields are none of its business.

use serde_json::{Map, Value};

use super::{quantity, time};
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

/// Why an object cannot be read, in the sentence that Kubernetes answers with.
#[derive(Debug)]
pub(in crate::api) struct Unreadable {
    /// Where it is read from text.
    pub(in crate::api) from_text: String,
    /// Where an apply has made it: then it is no text any more, and most values do not know of which field they are.
    pub(in crate::api) applied: String,
}

impl<S: Into<String>> From<S> for Unreadable {
    fn from(why: S) -> Self {
        let from_text = why.into();
        Self {
            applied: from_text.clone(),
            from_text,
        }
    }
}

/// Brings an object into its normal form.
pub(super) fn normalize(schema: &Schema, object: &mut Value) -> Result<(), Unreadable> {
    walk(schema, object, "", schema)
}

/// `owner` is the nearest type with a name, which errors tell.
fn walk(schema: &Schema, value: &mut Value, path: &str, owner: &Schema) -> Result<(), Unreadable> {
    match value {
        Value::Object(map) if schema.is_map() => {
            for (key, value) in map.iter_mut() {
                if let Some(below) = schema.field(key) {
                    // A key without a value has the empty one.
                    if value.is_null() && below.allows_type(&"".into()) {
                        *value = "".into();
                    }
                    check(below, value, owner, path)?;
                }
            }
        }
        Value::Object(map) => fields(schema, map, path)?,
        Value::Array(list) => {
            for item in list {
                if let Some(items) = schema.items() {
                    check(items, item, owner, path)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn fields(schema: &Schema, map: &mut Map<String, Value>, path: &str) -> Result<(), Unreadable> {
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
        let kept = matches!(
            (schema.type_name(), name.as_str()),
            // Definitions are stored as JSON, which tells an empty list from none.
            (Some("CustomResourceDefinitionSpec"), "versions")
                // Defaults tell them apart, before anything is stored.
                | (Some("HPAScalingRules"), "policies")
        );
        if value.is_null()
            || (is_empty(below, value) && !kept)
            || ((plain || is_zero(below, name, value)) && !schema.requires(name))
        {
            unset.push(name.clone());
        }
    }
    map.retain(|name, _| !unset.contains(name));
    Ok(())
}

/// Storage does not tell an empty list or map from none.
fn is_empty(schema: &Schema, value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty() && schema.is_map(),
        _ => false,
    }
}

fn is_zero(schema: &Schema, name: &str, value: &Value) -> bool {
    match value {
        Value::Bool(false) => !ZERO_COUNTS.contains(&name),
        Value::String(text) => text.is_empty() && !ZERO_COUNTS.contains(&name),
        Value::Number(number) => {
            number.as_i64() == Some(0) && !ZERO_COUNTS.contains(&name) && !schema.is_int_or_string()
        }
        _ => false,
    }
}

fn check(schema: &Schema, value: &mut Value, owner: &Schema, path: &str) -> Result<(), Unreadable> {
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
    if let (Value::String(text), Some(name @ ("Time" | "MicroTime"))) = (&*value, schema.type_name()) {
        *value = time::canonical(text, name == "MicroTime")?.into();
        return Ok(());
    }
    if let Value::String(text) = value
        && schema.is_bytes()
        && let Some(at) = corrupt(text)
    {
        let why = format!("illegal base64 data at input byte {at}");
        return Err(Unreadable {
            applied: format!("error decoding from json: {why}"),
            from_text: why,
        });
    }
    if !value.is_null() && !schema.allows_type(value) {
        return Err(mistyped(schema, value, owner, path));
    }
    let owner = if schema.type_name().is_some() { schema } else { owner };
    walk(schema, value, path, owner)
}

/// What is said of a value of the wrong type.
fn mistyped(schema: &Schema, value: &Value, owner: &Schema, path: &str) -> Unreadable {
    // Times are texts until they are parsed, and what is no text is a number where it may be either.
    let (read_as, reads_itself) = match schema.type_name() {
        Some("Time" | "MicroTime") => ("string".into(), true),
        Some("IntOrString") => ("int32".into(), true),
        _ => (schema.go_type(), false),
    };
    let is = match value {
        Value::Number(number) if read_as.starts_with("int") => format!("number {number}"),
        _ => kind(value).to_owned(),
    };
    let owner = owner.type_name().map_or(String::new(), |name| format!("{name}."));
    Unreadable {
        from_text: format!("json: cannot unmarshal {is} into Go struct field {owner}{path} of type {read_as}"),
        applied: if value.is_number() && !reads_itself {
            format!("cannot convert float64 to {read_as}")
        } else {
            format!("json: cannot unmarshal {is} into Go value of type {read_as}")
        },
    }
}

/// Where text ceases to be base64.
fn corrupt(text: &str) -> Option<usize> {
    let letters = text.trim_end_matches('=');
    let wrong = letters
        .bytes()
        .position(|byte| !byte.is_ascii_alphanumeric() && byte != b'+' && byte != b'/');
    wrong.or_else(|| (!text.len().is_multiple_of(4) || text.len() - letters.len() > 2).then_some(letters.len()))
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
