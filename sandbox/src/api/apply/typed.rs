//! Walks over objects by their schema: which fields there are, what differs, what a merge yields.
//!
//! Where a schema says nothing, maps are merged field by field and lists are replaced as a whole.

use serde_json::{Map, Value};

use super::{path::Step, set::FieldSet};
use crate::schema::{ListKind, Schema, is_same};

/// How a value is owned.
pub(super) enum Shape<'a> {
    /// As a whole.
    Leaf,
    /// Field by field.
    Map(&'a Map<String, Value>),
    /// Element by element.
    List(&'a [Value], &'a ListKind),
}

pub(super) fn shape<'a>(schema: Option<&'a Schema>, value: &'a Value) -> Shape<'a> {
    match (value, schema) {
        // A map where text or a number belongs is refused later.
        (_, Some(schema)) if schema.is_atomic() || schema.is_int_or_string() => Shape::Leaf,
        (Value::Object(map), _) => Shape::Map(map),
        (Value::Array(list), Some(schema)) if *schema.list_kind() != ListKind::Atomic => {
            Shape::List(list, schema.list_kind())
        }
        _ => Shape::Leaf,
    }
}

pub(super) fn field<'a>(schema: Option<&'a Schema>, name: &str) -> Option<&'a Schema> {
    schema.and_then(|schema| schema.field(name)).map(AsRef::as_ref)
}

pub(super) fn items(schema: Option<&Schema>) -> Option<&Schema> {
    schema.and_then(Schema::items).map(AsRef::as_ref)
}

/// A field of a struct, as opposed to an entry of a map: it is owned through what it contains.
fn is_named(schema: Option<&Schema>, name: &str) -> bool {
    let standard = |schema: &Schema| schema.embedded_resource && matches!(name, "apiVersion" | "kind" | "metadata");
    schema.is_some_and(|schema| schema.properties.contains_key(name) || standard(schema))
}

/// The step to an element of a list; `None` if the element has none of the keys.
pub(super) fn step_to(schema: Option<&Schema>, kind: &ListKind, item: &Value) -> Option<Step> {
    match kind {
        ListKind::Atomic => None,
        ListKind::Set => (!item.is_object() && !item.is_array()).then(|| Step::Value(item.to_string())),
        ListKind::Map(keys) => {
            let fields: Vec<(String, Value)> = keys
                .iter()
                .filter_map(|key| {
                    let value = item.get(key).cloned().or_else(|| default_of(schema?, key))?;
                    Some((key.clone(), value))
                })
                .collect();
            (!fields.is_empty()).then(|| Step::key(fields))
        }
    }
}

/// What a key counts as where an element lacks it. In built-in types that is its empty value.
fn default_of(list: &Schema, key: &str) -> Option<Value> {
    let stated = list.key_default(key).cloned();
    stated.or_else(|| {
        let item = list.items().filter(|item| item.type_path().is_some())?;
        let number = item.field(key)?.go_type().starts_with("int");
        Some(if number { 0.into() } else { "".into() })
    })
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// The fields of an object.
pub(super) fn fields(schema: Option<&Schema>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    match shape(schema, value) {
        Shape::Leaf => {}
        Shape::Map(map) => {
            for (name, value) in map {
                let step = Step::field(name.as_str());
                let below = field(schema, name);
                let empty_map = value.as_object().is_some_and(Map::is_empty);
                if is_leaf(below, value) || empty_map || !is_named(schema, name) {
                    set.members.insert(step.clone());
                }
                set.graft(&step, fields(below, value));
            }
        }
        Shape::List(list, kind) => {
            for item in list {
                let Some(step) = step_to(schema, kind, item) else {
                    continue;
                };
                set.members.insert(step.clone());
                if list
                    .iter()
                    .filter(|other| step_to(schema, kind, other).as_ref() == Some(&step))
                    .count()
                    == 1
                {
                    set.graft(&step, fields(items(schema), item));
                }
            }
        }
    }
    set
}

fn is_leaf(schema: Option<&Schema>, value: &Value) -> bool {
    matches!(shape(schema, value), Shape::Leaf)
}

/// What differs between two objects.
#[derive(Default)]
pub(super) struct Comparison {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Comparison {
    fn graft(&mut self, step: &Step, child: Self) {
        self.added.graft(step, child.added);
        self.modified.graft(step, child.modified);
        self.removed.graft(step, child.removed);
    }

    /// What was added or modified.
    pub(super) fn written(&self) -> FieldSet {
        self.added.union(&self.modified)
    }

    /// Without some fields and all below them.
    pub(super) fn without(&self, fields: &FieldSet) -> Self {
        Self {
            added: self.added.without(fields),
            modified: self.modified.without(fields),
            removed: self.removed.without(fields),
        }
    }
}

/// Compares two objects of one schema.
pub(super) fn compare(schema: Option<&Schema>, old: &Value, new: &Value) -> Comparison {
    let mut out = Comparison::default();
    compare_below(schema, Some(old), Some(new), &mut out);
    out
}

fn compare_below(schema: Option<&Schema>, old: Option<&Value>, new: Option<&Value>, out: &mut Comparison) {
    let (old_shape, new_shape) = (old.map(|old| shape(schema, old)), new.map(|new| shape(schema, new)));
    if let Some(Shape::List(..)) = new_shape.as_ref().or(old_shape.as_ref()) {
        let (old, new) = (by_step(schema, old), by_step(schema, new));
        for (step, olds) in &old {
            let news = new
                .iter()
                .find(|(other, _)| other == step)
                .map_or(&[][..], |(_, news)| news);
            compare_items(schema, step, olds, news, out);
        }
        for (step, news) in new
            .iter()
            .filter(|(step, _)| !old.iter().any(|(other, _)| other == step))
        {
            compare_items(schema, step, &[], news, out);
        }
        return;
    }
    let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
    for (name, before) in old.into_iter().flatten() {
        let after = new.and_then(|new| new.get(name));
        compare_at(
            field(schema, name),
            &Step::field(name.as_str()),
            Some(before),
            after,
            out,
        );
    }
    for (name, after) in new
        .into_iter()
        .flatten()
        .filter(|(name, _)| !old.is_some_and(|old| old.contains_key(*name)))
    {
        compare_at(field(schema, name), &Step::field(name.as_str()), None, Some(after), out);
    }
}

type Items<'a> = Vec<(Step, Vec<&'a Value>)>;

/// A list's elements by step, each step once, in order.
fn by_step<'a>(schema: Option<&Schema>, list: Option<&'a Value>) -> Items<'a> {
    let mut found: Items<'a> = Vec::new();
    let kind = schema.map_or(&ListKind::Atomic, Schema::list_kind);
    for item in list.and_then(Value::as_array).into_iter().flatten() {
        let Some(step) = step_to(schema, kind, item) else {
            continue;
        };
        match found.iter_mut().find(|(other, _)| *other == step) {
            Some((_, items)) => items.push(item),
            None => found.push((step, vec![item])),
        }
    }
    found
}

/// Elements that are there more than once are compared as a whole.
fn compare_items(schema: Option<&Schema>, step: &Step, old: &[&Value], new: &[&Value], out: &mut Comparison) {
    match (old, new) {
        ([] | [_], [] | [_]) => compare_at(items(schema), step, old.first().copied(), new.first().copied(), out),
        ([_, _, ..], [_, _, ..]) => {
            if old != new {
                out.modified.members.insert(step.clone());
            }
        }
        ([_, _, ..], _) => {
            if let Some(new) = new.first() {
                compare_at(items(schema), step, None, Some(new), out);
            }
            out.removed.members.insert(step.clone());
        }
        (_, [_, _, ..]) => {
            if let Some(old) = old.first() {
                compare_at(items(schema), step, Some(old), None, out);
            }
            out.added.members.insert(step.clone());
        }
    }
}

fn compare_at(schema: Option<&Schema>, step: &Step, old: Option<&Value>, new: Option<&Value>, out: &mut Comparison) {
    let both_empty = old.is_none_or(is_empty) && new.is_none_or(is_empty);
    let leaf = |value: Option<&Value>| value.is_none_or(|value| is_leaf(schema, value));
    let whole = both_empty || (leaf(old) && leaf(new));
    if !whole {
        let mut child = Comparison::default();
        compare_below(schema, old, new, &mut child);
        out.graft(step, child);
    }
    let changed = match (old, new) {
        (None, _) => &mut out.added,
        (_, None) => &mut out.removed,
        (Some(old), Some(new)) if whole && !is_same(old, new) => &mut out.modified,
        // A value that was a leaf and is none any more, or the reverse.
        (Some(old), Some(new)) if !whole && leaf(Some(old)) != leaf(Some(new)) && !is_empty(old) && !is_empty(new) => {
            &mut out.modified
        }
        _ => return,
    };
    changed.members.insert(step.clone());
}

/// Lays one object over another. The elements of both lists stay, in an order that keeps that of the upper one.
pub(super) fn merge(schema: Option<&Schema>, under: Option<&Value>, over: Option<&Value>) -> Option<Value> {
    let (Some(lower), Some(upper)) = (under, over) else {
        return over.or(under).cloned();
    };
    match (shape(schema, lower), shape(schema, upper)) {
        (Shape::Map(lower), Shape::Map(upper)) if !(lower.is_empty() && upper.is_empty()) => {
            let mut merged = Map::new();
            for name in lower
                .keys()
                .chain(upper.keys().filter(|name| !lower.contains_key(*name)))
            {
                if let Some(value) = merge(field(schema, name), lower.get(name), upper.get(name)) {
                    merged.insert(name.clone(), value);
                }
            }
            Some(Value::Object(merged))
        }
        (Shape::List(lower, kind), Shape::List(upper, _)) if !(lower.is_empty() && upper.is_empty()) => {
            Some(Value::Array(merge_lists(schema, kind, lower, upper)))
        }
        // What is owned field by field is not taken away by a null; what has no field is owned as a whole.
        (Shape::Map(_) | Shape::List(..), _) if upper.is_null() && !is_empty(lower) && schema.is_some() => {
            Some(lower.clone())
        }
        _ => Some(upper.clone()),
    }
}

fn merge_lists(schema: Option<&Schema>, kind: &ListKind, lower: &[Value], upper: &[Value]) -> Vec<Value> {
    let steps = |list: &[Value]| -> Vec<Option<Step>> { list.iter().map(|item| step_to(schema, kind, item)).collect() };
    let (lower_steps, upper_steps) = (steps(lower), steps(upper));
    let mut merged = Vec::new();
    let mut below = lower.iter().zip(&lower_steps).peekable();
    for (index, (item, step)) in upper.iter().zip(&upper_steps).enumerate() {
        let next_shared = upper_steps.iter().skip(index).find(|step| lower_steps.contains(step));
        // What only the lower list has stays before the next element that both have, as far as the orders agree.
        while let Some((_, step_below)) = below.peek() {
            if *step_below == step || (upper_steps.contains(step_below) && next_shared == Some(step_below)) {
                break;
            }
            let shared = upper_steps.contains(step_below);
            merged.extend(below.next().filter(|_| !shared).map(|(item, _)| item.clone()));
            if shared && next_shared.is_none() {
                break;
            }
        }
        let at = lower_steps.iter().position(|other| other == step);
        let once = lower_steps.iter().filter(|other| *other == step).count() == 1;
        let counterpart = at.filter(|_| once).and_then(|at| lower.get(at));
        merged.extend(merge(items(schema), counterpart, Some(item)));
        if below.peek().is_some_and(|(_, step_below)| *step_below == step) {
            below.next();
        }
    }
    merged.extend(
        below
            .filter(|(_, step)| !upper_steps.contains(step))
            .map(|(item, _)| item.clone()),
    );
    merged
}

/// Takes fields out of an object; `None` if nothing is left.
pub(super) fn remove(schema: Option<&Schema>, value: &Value, fields: &FieldSet) -> Option<Value> {
    match shape(schema, value) {
        Shape::Map(map) if !map.is_empty() => {
            let mut kept = Map::new();
            for (name, value) in map {
                let step = Step::field(name.as_str());
                if fields.members.contains(&step) {
                    continue;
                }
                let value = match fields.children.get(&step).filter(|below| !below.is_empty()) {
                    Some(below) => remove(field(schema, name), value, below),
                    None => Some(value.clone()),
                };
                // A field of which nothing is left is null, which most kinds refuse, as they do on a real API server.
                kept.insert(name.clone(), value.unwrap_or_default());
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Shape::List(list, kind) if !list.is_empty() => {
            let mut kept = Vec::new();
            for item in list {
                let step = step_to(schema, kind, item);
                if step.as_ref().is_some_and(|step| fields.members.contains(step)) {
                    continue;
                }
                let below = step
                    .and_then(|step| fields.children.get(&step))
                    .filter(|below| !below.is_empty());
                match below {
                    Some(below) => kept.extend(remove(items(schema), item, below)),
                    None => kept.push(item.clone()),
                }
            }
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        // Something below a leaf is to go, so the leaf goes.
        Shape::Leaf if value.is_object() || value.is_array() => None,
        _ => Some(value.clone()),
    }
}

/// The set together with the struct fields that lead to its members.
pub(super) fn with_parents(schema: Option<&Schema>, set: &FieldSet) -> FieldSet {
    let mut out = FieldSet {
        members: set.members.clone(),
        ..FieldSet::default()
    };
    for (step, child) in &set.children {
        let below = match step {
            Step::Field(name) => {
                if is_named(schema, name) {
                    out.members.insert(step.clone());
                }
                field(schema, name)
            }
            _ => items(schema),
        };
        out.graft(step, with_parents(below, child));
    }
    out
}
