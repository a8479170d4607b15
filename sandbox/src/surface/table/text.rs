//! Pieces of objects as one line of text.

use serde_json::{Map, Value};

/// What stands where there is nothing.
pub(super) const NONE: &str = "<none>";

/// A value below an object, by the names on the way.
pub(super) fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.')
        .try_fold(object, |value, name| value.get(name))
        .filter(|value| !value.is_null())
}

/// A string below an object; empty where there is none.
pub(super) fn text<'v>(object: &'v Value, path: &str) -> &'v str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The same with a word for nothing.
pub(super) fn text_or<'v>(object: &'v Value, path: &str, nothing: &'v str) -> &'v str {
    match text(object, path) {
        "" => nothing,
        text => text,
    }
}

/// A whole number below an object; 0 where there is none.
pub(super) fn number(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or_default()
}

/// A list below an object; empty where there is none.
pub(super) fn list<'v>(object: &'v Value, path: &str) -> &'v [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A map below an object.
pub(super) fn map<'v>(object: &'v Value, path: &str) -> Option<&'v Map<String, Value>> {
    at(object, path).and_then(Value::as_object)
}

/// A scalar as it is; anything else as JSON.
pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The condition of a type among an object's conditions.
pub(super) fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    list(object, "status.conditions")
        .iter()
        .find(|c| text(c, "type") == kind)
}

/// True if the condition of a type holds.
pub(super) fn holds(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|c| text(c, "status") == "True")
}

/// Labels as `a=1,b=2`.
pub(super) fn labels(object: &Value, path: &str) -> String {
    match pairs(map(object, path)) {
        pairs if pairs.is_empty() => NONE.into(),
        pairs => pairs.join(","),
    }
}

fn pairs(labels: Option<&Map<String, Value>>) -> Vec<String> {
    let mut pairs: Vec<_> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect();
    pairs.sort_unstable();
    pairs
}

/// A label selector as `a=1,b in (2,3)`.
pub(super) fn selector(object: &Value, path: &str) -> String {
    let Some(selector) = at(object, path) else {
        return NONE.into();
    };
    let equal = map(selector, "matchLabels").into_iter().flatten();
    let mut terms: Vec<(&str, String)> = equal
        .map(|(key, value)| (key.as_str(), format!("{key}={}", plain(value))))
        .collect();
    for expression in list(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values: Vec<_> = list(expression, "values").iter().map(plain).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        terms.push((key, term));
    }
    terms.sort_by_key(|(key, _)| *key);
    let terms: Vec<_> = terms.into_iter().map(|(_, term)| term).collect();
    if terms.is_empty() { NONE.into() } else { terms.join(",") }
}

/// Names and images of a pod template's containers.
pub(super) fn containers(object: &Value, path: &str) -> [Value; 2] {
    ["name", "image"].map(|field| {
        let all: Vec<_> = list(object, path)
            .iter()
            .map(|container| text(container, field))
            .collect();
        all.join(",").into()
    })
}

/// At most `most` of these, and how many more there are.
pub(super) fn some_of(all: &[String], most: usize, separator: &str) -> String {
    let shown = all.get(..most.min(all.len())).unwrap_or_default().join(separator);
    match all.len().saturating_sub(most) {
        _ if all.is_empty() => NONE.into(),
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}
