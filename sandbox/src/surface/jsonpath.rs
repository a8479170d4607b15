//! Kubernetes' `JSONPath`, as far as printer columns and selectable fields use it: fields, indices, slices, wildcards,
//! recursive descent and filters that compare with a literal.

use std::cmp::Ordering;

use serde_json::Value;
use thiserror::Error;

/// Why a path cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("JSON path {path:?}, at character {at}: {why}")]
pub struct PathError {
    /// The path as it was given.
    pub path: String,
    /// Where reading stopped, in bytes.
    pub at: usize,
    /// What would be right.
    pub why: &'static str,
}

/// A path that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Fields(Vec<String>),
    /// Negative ones count from the end.
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    Every,
    /// The value itself and all values below it.
    Below,
    Filter(Vec<Step>, Option<(Comparison, Value)>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Reads a path such as `.spec.replicas` or `.status.conditions[?(@.type=="Ready")].status`. Braces around it and
    /// a `$` before it are allowed.
    pub fn parse(path: &str) -> Result<Self, PathError> {
        let inner = path.strip_prefix('{').and_then(|p| p.strip_suffix('}')).unwrap_or(path);
        let inner = inner.strip_prefix('$').unwrap_or(inner);
        let mut reader = Reader {
            whole: path,
            rest: inner,
        };
        let steps = reader.steps(str::is_empty)?;
        Ok(Self { steps })
    }

    /// Everything that the path leads to, in order; nothing where a field on the way is missing.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        follow(&self.steps, vec![value])
    }

    /// The first thing that the path leads to.
    pub fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.find(value).into_iter().next()
    }
}

fn follow<'v>(steps: &[Step], start: Vec<&'v Value>) -> Vec<&'v Value> {
    steps.iter().fold(start, |values, step| {
        values.into_iter().flat_map(|value| take(step, value)).collect()
    })
}

fn take<'v>(step: &Step, value: &'v Value) -> Vec<&'v Value> {
    let list = value.as_array();
    let place = |index: i64, length: usize| -> usize {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        let index = if index < 0 {
            (length + index).max(0)
        } else {
            index.min(length)
        };
        usize::try_from(index).unwrap_or_default()
    };
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Fields(names) => names.iter().filter_map(|name| value.get(name)).collect(),
        Step::Index(index) => list
            .and_then(|list| list.get(place(*index, list.len())))
            .into_iter()
            .collect(),
        Step::Slice(from, to) => {
            let Some(list) = list else { return Vec::new() };
            let from = place(from.unwrap_or_default(), list.len());
            let to = to.map_or(list.len(), |to| place(to, list.len()));
            list.get(from..to.max(from)).unwrap_or_default().iter().collect()
        }
        Step::Every => match value {
            Value::Array(list) => list.iter().collect(),
            Value::Object(map) => map.values().collect(),
            _ => Vec::new(),
        },
        Step::Below => {
            let mut all = vec![value];
            let below = take(&Step::Every, value);
            all.extend(below.into_iter().flat_map(|value| take(&Step::Below, value)));
            all
        }
        Step::Filter(path, comparison) => {
            let keep = |element: &&Value| {
                let found = follow(path, vec![element]);
                match comparison {
                    None => !found.is_empty(),
                    Some((comparison, literal)) => found.first().is_some_and(|v| compare(v, *comparison, literal)),
                }
            };
            list.into_iter().flatten().filter(keep).collect()
        }
    }
}

fn compare(value: &Value, comparison: Comparison, literal: &Value) -> bool {
    let order = match (value, literal) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (a, b) if a == b => Some(Ordering::Equal),
        _ => None,
    };
    match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::LessOrEqual => order.is_some_and(Ordering::is_le),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
    }
}

struct Reader<'p> {
    whole: &'p str,
    rest: &'p str,
}

impl Reader<'_> {
    fn error<T>(&self, why: &'static str) -> Result<T, PathError> {
        let at = self.whole.rfind(self.rest).unwrap_or(self.whole.len());
        Err(PathError {
            path: self.whole.to_owned(),
            at,
            why,
        })
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn steps(&mut self, end: impl Fn(&str) -> bool) -> Result<Vec<Step>, PathError> {
        let mut steps = Vec::new();
        while !end(self.rest) {
            if self.eat("..") {
                steps.push(Step::Below);
                if !self.rest.starts_with('[') {
                    steps.push(self.name()?);
                }
            } else if self.eat(".") {
                if !self.rest.is_empty() && !self.rest.starts_with('[') {
                    steps.push(self.name()?);
                }
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else {
                return self.error("a field begins with '.' and an index with '['");
            }
        }
        Ok(steps)
    }

    /// A field's name; `\` lets a dot be part of it.
    fn name(&mut self) -> Result<Step, PathError> {
        let mut name = String::new();
        let mut characters = self.rest.char_indices();
        let end = loop {
            match characters.next() {
                Some((_, '\\')) => name.extend(characters.next().map(|(_, c)| c)),
                Some((at, '.' | '[' | ' ' | '=' | '!' | '<' | '>' | ')')) => break at,
                Some((_, c)) => name.push(c),
                None => break self.rest.len(),
            }
        };
        self.rest = self.rest.get(end..).unwrap_or_default();
        match name.as_str() {
            "" => self.error("a field has a name"),
            "*" => Ok(Step::Every),
            _ => Ok(Step::Field(name)),
        }
    }

    fn bracket(&mut self) -> Result<Step, PathError> {
        if self.eat("?(") {
            return self.filter();
        }
        let Some(end) = self.closing() else {
            return self.error("'[' is closed by ']'");
        };
        let inside = self.rest.get(..end).unwrap_or_default();
        let step = match inside.chars().next() {
            _ if inside == "*" => Some(Step::Every),
            Some('\'' | '"') => fields(inside),
            _ => slice(inside),
        };
        let Some(step) = step else {
            return self.error("an index is a number, a slice, '*' or quoted names");
        };
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        Ok(step)
    }

    /// Where the bracket ends, quoted ones left aside.
    fn closing(&self) -> Option<usize> {
        let mut quote = None;
        self.rest.char_indices().find_map(|(at, c)| match (quote, c) {
            (None, ']') => Some(at),
            (None, '\'' | '"') => {
                quote = Some(c);
                None
            }
            (Some(open), c) if open == c => {
                quote = None;
                None
            }
            _ => None,
        })
    }

    fn filter(&mut self) -> Result<Step, PathError> {
        self.rest = self.rest.trim_start();
        if !self.eat("@") {
            return self.error("a filter begins with '@'");
        }
        let path = self.steps(|rest| rest.is_empty() || rest.starts_with([' ', '=', '!', '<', '>', ')']))?;
        self.rest = self.rest.trim_start();
        let comparisons = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let found = comparisons.into_iter().find(|(sign, _)| self.eat(sign));
        let comparison = match found {
            Some((_, comparison)) => Some((comparison, self.literal()?)),
            None => None,
        };
        self.rest = self.rest.trim_start();
        if self.eat(")]") {
            Ok(Step::Filter(path, comparison))
        } else {
            self.error("a filter ends with ')]'")
        }
    }

    fn literal(&mut self) -> Result<Value, PathError> {
        self.rest = self.rest.trim_start();
        if let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"')) {
            let text = self.rest.get(1..).and_then(|rest| rest.split_once(quote));
            let Some((text, rest)) = text else {
                return self.error("a quoted text is closed");
            };
            self.rest = rest;
            return Ok(text.into());
        }
        let end = self.rest.find([')', ' ']).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        let Ok(value) = serde_json::from_str(text) else {
            return self.error("a field is compared with a quoted text, a number, true or false");
        };
        self.rest = rest;
        Ok(value)
    }
}

fn fields(inside: &str) -> Option<Step> {
    let unquote = |name: &str| {
        let name = name.trim();
        let quote = name.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let name = name.strip_prefix(quote)?.strip_suffix(quote)?;
        Some(name.replace("\\.", "."))
    };
    let names: Vec<_> = inside.split(',').map(unquote).collect::<Option<_>>()?;
    Some(match <[String; 1]>::try_from(names) {
        Ok([name]) => Step::Field(name),
        Err(names) => Step::Fields(names),
    })
}

fn slice(inside: &str) -> Option<Step> {
    let number = |text: &str| -> Option<Option<i64>> {
        let text = text.trim();
        if text.is_empty() {
            Some(None)
        } else {
            text.parse().ok().map(Some)
        }
    };
    match inside.split_once(':') {
        Some((from, to)) => Some(Step::Slice(number(from)?, number(to)?)),
        None => inside.trim().parse().ok().map(Step::Index),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_where_kubernetes_has_them_lead() {
        let value = json!({
            "metadata": {"labels": {"app.kubernetes.io/name": "x"}, "name": "n"},
            "spec": {"list": [1, 2, 3], "deep": {"name": "m"}},
            "status": {"conditions": [{"type": "A", "n": 1}, {"type": "Ready", "status": "True", "n": 2}]},
        });
        for (path, found) in [
            (".metadata.name", json!(["n"])),
            ("{.metadata.name}", json!(["n"])),
            ("$.metadata.name", json!(["n"])),
            (r".metadata.labels.app\.kubernetes\.io/name", json!(["x"])),
            (".metadata.labels['app.kubernetes.io/name']", json!(["x"])),
            (r".metadata.labels['app\.kubernetes\.io/name']", json!(["x"])),
            (".spec.list[0]", json!([1])),
            (".spec.list[-1]", json!([3])),
            (".spec.list[1:]", json!([2, 3])),
            (".spec.list[:2]", json!([1, 2])),
            (".spec.list[*]", json!([1, 2, 3])),
            (".spec.list[7]", json!([])),
            (".spec.missing.more", json!([])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (".status.conditions[?(@.type=='Ready')].status", json!(["True"])),
            (".status.conditions[?(@.n > 1)].type", json!(["Ready"])),
            (".status.conditions[?(@.status)].type", json!(["Ready"])),
            (".status.conditions[-1:].type", json!(["Ready"])),
            (".metadata['name','missing']", json!(["n"])),
            ("..name", json!(["n", "m"])),
        ] {
            let values: Vec<Value> = JsonPath::parse(path)
                .unwrap()
                .find(&value)
                .into_iter()
                .cloned()
                .collect();
            assert_eq!(json!(values), found, "{path}");
        }
    }

    #[test]
    fn a_path_that_cannot_be_read_says_where_and_why() {
        for (path, why) in [
            ("spec", "a field begins with '.' and an index with '['"),
            (".a[", "'[' is closed by ']'"),
            (".a[x]", "an index is a number, a slice, '*' or quoted names"),
            (".a[?(b==1)]", "a filter begins with '@'"),
            (
                ".a[?(@.b==x)]",
                "a field is compared with a quoted text, a number, true or false",
            ),
        ] {
            assert_eq!(JsonPath::parse(path).unwrap_err().why, why, "{path}");
        }
    }
}
