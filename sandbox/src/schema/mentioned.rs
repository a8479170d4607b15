//! What CEL rules look at in a value. A value is turned into CEL's own before a rule runs, and an object's managed fields and
//! status are most of it, while most rules look at a field or two: they are shown these alone.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::Regex;
use serde_json::Value;

/// A rule's value or its old one, the fields that are selected from it, and whether the last of them is a function's name.
static SELECTION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b(?:self|oldSelf)\b((?:\.[A-Za-z_][A-Za-z0-9_]*)*)(\s*\()?").ok());

/// A part of a value.
#[derive(Debug, PartialEq)]
pub(super) enum Part {
    Whole,
    Fields(BTreeMap<String, Self>),
}

impl Part {
    /// All that these expressions can look at. It is more where they say so in a way that is not plain to see.
    pub(super) fn mentioned<'a>(expressions: impl IntoIterator<Item = &'a str>) -> Self {
        let Some(selection) = &*SELECTION else {
            return Self::Whole;
        };
        let mut part = Self::Fields(BTreeMap::new());
        for found in expressions.into_iter().flat_map(|text| selection.captures_iter(text)) {
            let chain = found.get(1).map_or("", |chain| chain.as_str());
            let mut names: Vec<_> = chain.split('.').skip(1).collect();
            if found.get(2).is_some() {
                names.pop();
            }
            // Names that are none in CEL are written in another way.
            let escaped = names.iter().position(|name| name.contains("__"));
            names.truncate(escaped.unwrap_or(names.len()));
            part.add(&names);
        }
        part
    }

    fn add(&mut self, names: &[&str]) {
        match (&mut *self, names) {
            (Self::Whole, _) => {}
            (_, []) => *self = Self::Whole,
            (Self::Fields(fields), [first, rest @ ..]) => {
                let below = fields.entry((*first).to_owned());
                below.or_insert_with(|| Self::Fields(BTreeMap::new())).add(rest);
            }
        }
    }

    /// This part of a value.
    pub(super) fn of(&self, value: &Value) -> Value {
        match (self, value) {
            (Self::Fields(fields), Value::Object(map)) => {
                let there = fields
                    .iter()
                    .filter_map(|(name, part)| Some((name.clone(), part.of(map.get(name)?))));
                Value::Object(there.collect())
            }
            (_, value) => value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_are_shown_what_they_can_look_at() {
        let value = json!({"name": "n", "list": [{"x": 1}], "map": {"a": {"b": 1, "c": 2}, "d__": 3}, "size": 4});
        for (rules, shown) in [
            (vec!["!self.name.contains('.')"], json!({"name": "n"})),
            (vec!["has(self.name) && self.size > 3"], json!({"name": "n", "size": 4})),
            (vec!["self.list.all(e, e.x > 0)"], json!({"list": [{"x": 1}]})),
            (vec!["self.list[0].x > 0"], json!({"list": [{"x": 1}]})),
            (vec!["self.map.a.b == 1"], json!({"map": {"a": {"b": 1}}})),
            (
                vec!["self.map.a.b == 1", "self.map.a.size () == 2"],
                json!({"map": {"a": {"b": 1, "c": 2}}}),
            ),
            (
                vec!["self.size >= oldSelf.map.a.c"],
                json!({"size": 4, "map": {"a": {"c": 2}}}),
            ),
            (vec!["self.name.absent == 1"], json!({"name": "n"})),
            (vec!["self.absent.field == 1"], json!({})),
            (vec!["1 == 1"], json!({})),
            // What is not plain to see.
            (
                vec!["self.map.d____underscores__ == 3"],
                json!({"map": {"a": {"b": 1, "c": 2}, "d__": 3}}),
            ),
            (vec!["self.size() == 4"], value.clone()),
            (vec!["self == oldSelf"], value.clone()),
            (vec!["self['name'] == 'n'"], value.clone()),
            (vec!["self . name == 'n'"], value.clone()),
            (vec!["self.?name.hasValue()"], value.clone()),
            (vec!["[self].all(s, s.name == 'n')"], value.clone()),
        ] {
            assert_eq!(Part::mentioned(rules.clone()).of(&value), shown, "{rules:?}");
        }
    }
}
