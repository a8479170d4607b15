//! Removal of what a schema does not know, with the paths of what was removed.

use serde_json::{Map, Value};

use super::{
    builtin,
    node::{Additional, Schema},
    path::Path,
};

/// Fields that a resource has whatever its schema says.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Removes from a resource every field that the schema does not know, `metadata`'s among them. Answers the paths of
    /// the unknown fields as `fieldValidation` reports them: those in `metadata` first, then sorted.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let (mut unknown, mut embedded) = (Vec::new(), Vec::new());
        let mut all = match object.get_mut("metadata") {
            Some(metadata) => prune_metadata(metadata, &Path::Root.field("metadata")),
            None => Vec::new(),
        };
        let mut pruner = Pruner {
            unknown: &mut unknown,
            embedded: &mut embedded,
        };
        pruner.prune(object, Some(self), &Path::Root, false);
        // Built-in types are read field by field, custom ones looked through by name.
        if self.embedded_resource {
            unknown.sort();
        }
        all.append(&mut unknown);
        all.append(&mut embedded);
        all
    }
}

impl Schema {
    /// Removes every `null` that may not be one and has no default.
    pub fn drop_nulls(&self, object: &mut Value) {
        drop_nulls(object, self);
    }

    /// The same for a part of a resource.
    pub(crate) fn prune_part(&self, value: &mut Value) -> Vec<String> {
        let (mut unknown, mut embedded) = (Vec::new(), Vec::new());
        let mut pruner = Pruner {
            unknown: &mut unknown,
            embedded: &mut embedded,
        };
        pruner.prune(value, Some(self), &Path::Root, false);
        unknown
    }
}

struct Pruner<'a> {
    unknown: &'a mut Vec<String>,
    /// Unknown fields in the metadata of resources within the resource.
    embedded: &'a mut Vec<String>,
}

impl Pruner<'_> {
    /// `keep`: the list that holds this element preserves what its schema does not know.
    fn prune(&mut self, value: &mut Value, schema: Option<&Schema>, path: &Path<'_>, keep: bool) {
        let keep = keep || schema.is_some_and(|s| s.preserve_unknown);
        match value {
            Value::Object(map) => self.object(map, schema, path, keep),
            Value::Array(list) => {
                let items = schema.and_then(|s| s.items.as_deref());
                for (index, element) in list.iter_mut().enumerate() {
                    self.prune(element, items, &path.index(index), keep);
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, map: &mut Map<String, Value>, schema: Option<&Schema>, path: &Path<'_>, keep: bool) {
        let embedded = schema.is_some_and(|s| s.embedded_resource);
        let mut gone = Vec::new();
        for (name, value) in &mut *map {
            let field = path.field(name);
            if embedded && META.contains(&name.as_str()) {
                if name == "metadata" && !matches!(path, Path::Root) {
                    self.embedded.append(&mut prune_metadata(value, &field));
                }
                continue;
            }
            let known = schema.and_then(|s| s.properties.get(name));
            match (known, schema.and_then(|s| s.additional.as_ref())) {
                (Some(known), _) | (None, Some(Additional::Of(known))) => self.prune(value, Some(known), &field, false),
                (None, Some(Additional::Any)) => self.prune(value, None, &field, keep),
                (None, _) if keep => {}
                (None, _) => {
                    self.unknown.push(field.to_string());
                    gone.push(name.clone());
                }
            }
        }
        map.retain(|name, _| !gone.contains(name));
    }
}

fn prune_metadata(metadata: &mut Value, path: &Path<'_>) -> Vec<String> {
    let (mut unknown, mut embedded) = (Vec::new(), Vec::new());
    let mut pruner = Pruner {
        unknown: &mut unknown,
        embedded: &mut embedded,
    };
    pruner.prune(metadata, Some(builtin::object_meta()), path, false);
    unknown
}

/// A `null` where the schema wants a value counts as absent, unless a default will take its place.
fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            map.retain(|name, value| {
                let known = schema.properties.get(name).or(match &schema.additional {
                    Some(Additional::Of(known)) => Some(known),
                    _ => None,
                });
                let Some(known) = known else { return true };
                if value.is_null() && !known.nullable && known.default.is_none() {
                    return false;
                }
                drop_nulls(value, known);
                true
            });
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for element in list {
                    drop_nulls(element, items);
                }
            }
        }
        _ => {}
    }
}
