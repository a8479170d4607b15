//! Sets of fields: a tree of steps, and the algebra that ownership is computed with.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::path::Step;

/// A set of fields. A field can be a member without what lies below it, and the reverse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::api) struct FieldSet {
    pub(super) members: BTreeSet<Step>,
    pub(super) children: BTreeMap<Step, FieldSet>,
}

impl FieldSet {
    /// The fields at these paths of field names.
    pub(in crate::api) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let steps: Vec<Step> = path.iter().map(|name| Step::field(*name)).collect();
            set.insert(&steps);
        }
        set
    }

    pub(super) fn insert(&mut self, path: &[Step]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// Puts a subtree in place, unless it is empty.
    pub(super) fn graft(&mut self, step: &Step, child: FieldSet) {
        if !child.is_empty() {
            self.children.insert(step.clone(), child);
        }
    }

    /// What is in one or the other.
    pub(super) fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.members.extend(other.members.iter().cloned());
        for (step, child) in &other.children {
            let merged = union
                .children
                .get(step)
                .map_or_else(|| child.clone(), |mine| mine.union(child));
            union.graft(step, merged);
        }
        union
    }

    /// What is in both.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            ..Self::default()
        };
        for (step, child) in &self.children {
            if let Some(theirs) = other.children.get(step) {
                both.graft(step, child.intersection(theirs));
            }
        }
        both
    }

    /// What is in this one only. A field stays although a parent of it is in the other.
    pub(super) fn difference(&self, other: &Self) -> Self {
        let mut rest = Self {
            members: self.members.difference(&other.members).cloned().collect(),
            ..Self::default()
        };
        for (step, child) in &self.children {
            let left = other
                .children
                .get(step)
                .map_or_else(|| child.clone(), |theirs| child.difference(theirs));
            rest.graft(step, left);
        }
        rest
    }

    /// What is in this one, without the members of the other and all that lies below them.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest = Self {
            members: self.members.difference(&other.members).cloned().collect(),
            ..Self::default()
        };
        for (step, child) in &self.children {
            if !other.members.contains(step) {
                let left = other
                    .children
                    .get(step)
                    .map_or_else(|| child.clone(), |theirs| child.without(theirs));
                rest.graft(step, left);
            }
        }
        rest
    }

    /// All paths: those of members, then those below.
    pub(super) fn paths(&self) -> Vec<Vec<Step>> {
        let mut paths: Vec<Vec<Step>> = self.members.iter().map(|step| vec![step.clone()]).collect();
        for (step, child) in &self.children {
            for mut rest in child.paths() {
                rest.insert(0, step.clone());
                paths.push(rest);
            }
        }
        paths
    }

    /// `fieldsV1`.
    pub(super) fn encode(&self) -> Value {
        let mut fields = Map::new();
        for step in self.members.iter().chain(self.children.keys()).collect::<BTreeSet<_>>() {
            let mut below = match self.children.get(step).map(Self::encode) {
                Some(Value::Object(below)) => below,
                _ => Map::new(),
            };
            if self.members.contains(step) && !below.is_empty() {
                below.shift_insert(0, ".".into(), json!({}));
            }
            fields.insert(step.encode(), Value::Object(below));
        }
        Value::Object(fields)
    }

    /// Whether this can be read as `fieldsV1`.
    pub(super) fn is_readable(fields: &Value) -> bool {
        let Some(fields) = fields.as_object() else { return false };
        fields
            .iter()
            .all(|(text, below)| (text == "." || Step::decode(text).is_some()) && Self::is_readable(below))
    }

    /// Reads `fieldsV1`; steps that make no sense are left out.
    pub(super) fn decode(fields: &Value) -> Self {
        let mut set = Self::default();
        for (text, below) in fields.as_object().into_iter().flatten() {
            let Some(step) = Step::decode(text) else { continue };
            let child = Self::decode(below);
            if below
                .as_object()
                .is_none_or(|below| below.is_empty() || below.contains_key("."))
            {
                set.members.insert(step.clone());
            }
            set.graft(&step, child);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(paths: &[&[&str]]) -> FieldSet {
        FieldSet::of(paths)
    }

    #[test]
    fn round_trips_through_fields_v1() {
        let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}}}, "f:finalizers": {"v:\"x\"": {}}}});
        assert_eq!(FieldSet::decode(&fields).encode(), fields);
    }

    #[test]
    fn algebra() {
        let a = set(&[&["a"], &["a", "b"], &["c", "d"]]);
        let b = set(&[&["a", "b"], &["c"], &["e"]]);
        assert_eq!(a.union(&b), set(&[&["a"], &["a", "b"], &["c"], &["c", "d"], &["e"]]));
        assert_eq!(a.intersection(&b), set(&[&["a", "b"]]));
        assert_eq!(a.difference(&b), set(&[&["a"], &["c", "d"]]));
        assert_eq!(a.without(&b), set(&[&["a"]]));
        assert_eq!(a.difference(&a), FieldSet::default());
    }
}
