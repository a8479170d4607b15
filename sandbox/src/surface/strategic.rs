//! Strategic merge patch, which `kubectl apply`, `edit` and `patch` send for the built-in kinds: a merge patch whose
//! lists are merged by the keys that their types declare, with directives (`$patch`, `$retainKeys`,
//! `$setElementOrder/…`, `$deleteFromPrimitiveList/…`) in between.
//!
//! It changes a document; whether the outcome is a valid object is decided elsewhere.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::{
    go,
    schema::{PatchStrategy, Schema},
};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

/// Why a patch cannot be followed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PatchError {
    /// `$patch` is none of `merge`, `replace`, `delete`.
    #[error("unknown patch type {found} in {PATCH}: it is merge, replace or delete")]
    UnknownDirective {
        /// What it says.
        found: String,
    },
    /// An element cannot be told apart from others.
    #[error("map: {element} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The element, as Go prints it.
        element: String,
        /// The field that it lacks.
        key: String,
    },
    /// A list that is merged by key holds something that has none.
    #[error("list element types are not identical in {field}: elements are objects with the field {key}")]
    NotObjects {
        /// The list.
        field: String,
        /// The field that tells elements apart.
        key: String,
    },
    /// A directive does not say what it must.
    #[error("invalid patch format: {directive} is a list")]
    NotAList {
        /// The directive, such as `$setElementOrder/containers`.
        directive: String,
    },
    /// The list of an order and the list that is to be in that order differ.
    #[error("the elements of {field} in the patch are not in the order that $setElementOrder/{field} states")]
    OutOfOrder {
        /// The list.
        field: String,
    },
    /// `$retainKeys` leaves out what the patch sets.
    #[error("invalid patch format of {RETAIN}: {key:?} is set by the patch but not in the list")]
    NotRetained {
        /// The field that is set.
        key: String,
    },
}

/// Changes `original` as `patch` says. `schema` is that of the whole document.
pub fn patch(schema: &Schema, original: &mut Value, patch: Value) -> Result<(), PatchError> {
    match (original, patch) {
        (Value::Object(original), Value::Object(patch)) => merge_map(Some(schema), original, patch),
        (original, patch) => {
            *original = plain(patch);
            Ok(())
        }
    }
}

fn merge_map(
    schema: Option<&Schema>,
    original: &mut Map<String, Value>,
    mut patch: Map<String, Value>,
) -> Result<(), PatchError> {
    match patch.shift_remove(PATCH) {
        None => {}
        Some(directive) => match directive.as_str() {
            Some("merge") => {}
            Some("replace") => {
                *original = plain_map(patch);
                return Ok(());
            }
            Some("delete") => {
                original.clear();
                return Ok(());
            }
            _ => {
                return Err(PatchError::UnknownDirective {
                    found: directive.to_string(),
                });
            }
        },
    }
    retain_keys(original, &mut patch)?;
    in_order(schema, original, &mut patch)?;
    for (name, value) in patch {
        if let Some(name) = name.strip_prefix(DELETE) {
            delete_from(original, name, &value)?;
        } else {
            set(schema, original, name, value)?;
        }
    }
    Ok(())
}

/// Sets, merges or removes one field.
fn set(
    schema: Option<&Schema>,
    original: &mut Map<String, Value>,
    name: String,
    value: Value,
) -> Result<(), PatchError> {
    let field = schema.and_then(|s| s.field(&name)).map(AsRef::as_ref);
    let strategy = field.map(Schema::patch_strategy).cloned().unwrap_or_default();
    match (original.get_mut(&name), value) {
        (_, Value::Null) => {
            original.shift_remove(&name);
        }
        (Some(Value::Object(old)), Value::Object(new)) if !strategy.replace => merge_map(field, old, new)?,
        (Some(Value::Array(old)), Value::Array(new)) if strategy.merge => {
            let merged = merge_list(field, &strategy, &name, old, new)?;
            original.insert(name, Value::Array(merged));
        }
        // Where there is nothing to replace, what was to replace it is dropped.
        (None, Value::Object(new)) if new.contains_key(PATCH) => {}
        (_, value) => {
            original.insert(name, plain(value));
        }
    }
    Ok(())
}

/// Drops what `$retainKeys` does not name.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let Some(kept) = patch.shift_remove(RETAIN) else {
        return Ok(());
    };
    let Value::Array(kept) = kept else {
        return Err(PatchError::NotAList {
            directive: RETAIN.into(),
        });
    };
    let is_kept = |name: &str| kept.iter().any(|k| k == name);
    if let Some((key, _)) = patch
        .iter()
        .find(|(key, v)| !key.starts_with('$') && !v.is_null() && !is_kept(key))
    {
        return Err(PatchError::NotRetained { key: key.clone() });
    }
    original.retain(|name, _| is_kept(name));
    Ok(())
}

/// Merges the lists whose order the patch states. What only the server has keeps its place among them.
fn in_order(
    schema: Option<&Schema>,
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), PatchError> {
    let directives: Vec<_> = patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    for directive in directives {
        let name = directive.strip_prefix(ORDER).unwrap_or_default().to_owned();
        let Some(Value::Array(order)) = patch.shift_remove(&directive) else {
            return Err(PatchError::NotAList { directive });
        };
        let field = schema.and_then(|s| s.field(&name)).map(AsRef::as_ref);
        let strategy = field.map(Schema::patch_strategy).cloned().unwrap_or_default();
        let old = match original.get(&name) {
            Some(Value::Array(old)) => old.clone(),
            _ => Vec::new(),
        };
        let merged = match patch.shift_remove(&name) {
            Some(Value::Array(new)) => {
                follows(&new, &order, strategy.merge_key.as_deref(), &name)?;
                merge_list(field, &strategy, &name, &old, new)?
            }
            // Other than a list: it is set, or removed, as it stands.
            Some(other) => {
                patch.insert(name, other);
                continue;
            }
            None if old.is_empty() => continue,
            None => old.clone(),
        };
        let key = strategy.merge_key.as_deref();
        original.insert(name, Value::Array(arrange(merged, &order, &old, key)));
    }
    Ok(())
}

/// The plain elements of a patch's list are all in the order, one after the other.
fn follows(new: &[Value], order: &[Value], key: Option<&str>, field: &str) -> Result<(), PatchError> {
    let mut rest = order.iter();
    let mut next = |value: &Value| match key {
        Some(key) => rest.any(|v| v.get(key) == value.get(key)),
        None => rest.any(|v| v == value),
    };
    if new.iter().filter(|v| v.get(PATCH).is_none()).all(&mut next) {
        Ok(())
    } else {
        Err(PatchError::OutOfOrder {
            field: field.to_owned(),
        })
    }
}

fn delete_from(original: &mut Map<String, Value>, name: &str, gone: &Value) -> Result<(), PatchError> {
    let Some(gone) = gone.as_array() else {
        return Err(PatchError::NotAList {
            directive: format!("{DELETE}{name}"),
        });
    };
    if let Some(list) = original.get_mut(name).and_then(Value::as_array_mut) {
        list.retain(|value| !gone.contains(value));
    }
    Ok(())
}

fn merge_list(
    schema: Option<&Schema>,
    strategy: &PatchStrategy,
    name: &str,
    old: &[Value],
    new: Vec<Value>,
) -> Result<Vec<Value>, PatchError> {
    let Some(key) = strategy.merge_key.as_deref() else {
        let mut merged: Vec<Value> = Vec::new();
        for value in old.iter().chain(&new) {
            if !merged.contains(value) {
                merged.push(value.clone());
            }
        }
        return Ok(arrange(merged, &new, old, None));
    };
    let (kept, new) = directives(key, name, old, new)?;
    let items = schema.and_then(Schema::items).map(AsRef::as_ref);
    let mut merged = kept.clone();
    for element in &new {
        let id = element.get(key).ok_or_else(|| no_key(element, key))?;
        let Value::Object(fields) = element.clone() else {
            continue;
        };
        match merged.iter_mut().find(|m| m.get(key) == Some(id)) {
            Some(Value::Object(found)) => merge_map(items, found, fields)?,
            _ => merged.push(Value::Object(plain_map(fields))),
        }
    }
    Ok(arrange(merged, &new, &kept, Some(key)))
}

/// Follows the directives among a list's elements. Answers what is left of the old list, and the plain elements.
fn directives(key: &str, name: &str, old: &[Value], new: Vec<Value>) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut kept = old.to_vec();
    let mut plain = Vec::new();
    let mut replace = false;
    for element in new {
        if !element.is_object() {
            return Err(PatchError::NotObjects {
                field: name.to_owned(),
                key: key.to_owned(),
            });
        }
        match element.get(PATCH) {
            None => plain.push(element),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let id = element.get(key).ok_or_else(|| no_key(&element, key))?;
                    kept.retain(|k| k.get(key) != Some(id));
                }
                Some("replace") => replace = true,
                _ => {
                    return Err(PatchError::UnknownDirective {
                        found: directive.to_string(),
                    });
                }
            },
        }
    }
    Ok(if replace { (plain, Vec::new()) } else { (kept, plain) })
}

fn no_key(element: &Value, key: &str) -> PatchError {
    PatchError::NoMergeKey {
        element: go::printed(element),
        key: key.to_owned(),
    }
}

/// Puts the elements that `order` names in its order, and the others where the old list had them relative to these.
fn arrange(merged: Vec<Value>, order: &[Value], old: &[Value], key: Option<&str>) -> Vec<Value> {
    let place = |list: &[Value], value: &Value| match key {
        Some(key) => list.iter().position(|v| v.get(key) == value.get(key)),
        None => list.iter().position(|v| v == value),
    };
    let (mut named, mut others): (Vec<_>, Vec<_>) = merged.into_iter().partition(|v| place(order, v).is_some());
    named.sort_by_key(|v| place(order, v));
    others.sort_by_key(|v| place(old, v));
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(next), Some(other)) = (named.peek(), others.peek()) {
        let earlier = matches!((place(old, other), place(old, next)), (Some(other), Some(next)) if other < next);
        arranged.extend(if earlier { others.next() } else { named.next() });
    }
    arranged.extend(named.chain(others));
    arranged
}

/// A part of a patch as a document of its own: without directives and nulls.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(plain_map(map)),
        Value::Array(list) => {
            let deleted = |v: &Value| v.get(PATCH).is_some();
            Value::Array(list.into_iter().filter(|v| !deleted(v)).map(plain).collect())
        }
        scalar => scalar,
    }
}

fn plain_map(map: Map<String, Value>) -> Map<String, Value> {
    let directive = |name: &str| name == PATCH || name == RETAIN || name.starts_with(ORDER) || name.starts_with(DELETE);
    map.into_iter()
        .filter(|(name, v)| !directive(name) && !v.is_null())
        .map(|(name, v)| (name, plain(v)))
        .collect()
}

#[cfg(test)]
mod tests;
