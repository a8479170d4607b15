//! Label selectors: parsed from a query or read from an object, matched against an object's labels.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

use crate::schema::names;

/// A label selector. All requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Reads `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Tokens { rest: text };
        let mut requirements = Vec::new();
        if tokens.peek() == Token::End {
            return Ok(Self(requirements));
        }
        loop {
            if !matches!(tokens.peek(), Token::Word(_) | Token::Symbol("!")) {
                let expected = "!, identifier, or 'end of string'";
                return Err(format!("found '{}', expected: {expected}", tokens.peek().text()));
            }
            requirements.push(
                tokens
                    .requirement()
                    .map_err(|error| format!("unable to parse requirement: {error}"))?,
            );
            match tokens.next() {
                Token::End => return Ok(Self(requirements)),
                Token::Symbol(",") if matches!(tokens.peek(), Token::Word(_) | Token::Symbol("!")) => {}
                Token::Symbol(",") => {
                    return Err(format!(
                        "found '{}', expected: identifier after ','",
                        tokens.peek().text()
                    ));
                }
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
        }
    }

    /// Reads a `LabelSelector` object (`matchLabels` and `matchExpressions`).
    pub fn from_object(selector: &Value) -> Self {
        let mut requirements = Vec::new();
        for (key, value) in selector
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement {
                key: key.clone(),
                test: Test::In([value].into()),
            });
        }
        for expression in selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let word = |field| expression.get(field).and_then(Value::as_str).unwrap_or_default();
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let values = values.filter_map(|value| value.as_str().map(str::to_owned)).collect();
            let test = match word("operator") {
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" => Test::Exists,
                _ => Test::Absent,
            };
            requirements.push(Requirement {
                key: word("key").to_owned(),
                test,
            });
        }
        Self(requirements)
    }

    /// True if nothing is required.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object's labels fit.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.0.iter().all(|requirement| {
            let value = labels
                .and_then(|labels| labels.get(&requirement.key))
                .and_then(Value::as_str);
            match (&requirement.test, value) {
                (Test::Exists, value) => value.is_some(),
                (Test::Absent, value) => value.is_none(),
                (Test::In(values), value) => value.is_some_and(|value| values.contains(value)),
                (Test::NotIn(values), value) => value.is_none_or(|value| !values.contains(value)),
                (Test::Greater(limit), value) => parsed(value).is_some_and(|value| value > *limit),
                (Test::Less(limit), value) => parsed(value).is_some_and(|value| value < *limit),
            }
        })
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut requirements: Vec<&Requirement> = self.0.iter().collect();
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        for (index, Requirement { key, test }) in requirements.into_iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            let joined = |values: &BTreeSet<String>| values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
            match test {
                Test::Exists => f.write_str(key)?,
                Test::Absent => write!(f, "!{key}")?,
                Test::In(values) if values.len() == 1 => write!(f, "{key}={}", joined(values))?,
                Test::In(values) => write!(f, "{key} in ({})", joined(values))?,
                Test::NotIn(values) => write!(f, "{key} notin ({})", joined(values))?,
                Test::Greater(limit) => write!(f, "{key}>{limit}")?,
                Test::Less(limit) => write!(f, "{key}<{limit}")?,
            }
        }
        Ok(())
    }
}

fn parsed(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'a str),
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Word(text) | Self::Symbol(text) => text,
            Self::End => "",
        }
    }
}

struct Tokens<'a> {
    rest: &'a str,
}

const SYMBOLS: [&str; 9] = ["!=", "==", "=", "!", "(", ")", ",", ">", "<"];

impl<'a> Tokens<'a> {
    fn split(&self) -> (Token<'a>, &'a str) {
        let text = self.rest.trim_start();
        if text.is_empty() {
            return (Token::End, text);
        }
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| text.starts_with(symbol)) {
            return (Token::Symbol(symbol), text.strip_prefix(symbol).unwrap_or_default());
        }
        let end = text
            .find(|c: char| c.is_whitespace() || "=!(),><".contains(c))
            .unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        (Token::Word(word), rest)
    }

    fn peek(&self) -> Token<'a> {
        self.split().0
    }

    fn next(&mut self) -> Token<'a> {
        let (token, rest) = self.split();
        self.rest = rest;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Token::Symbol("!");
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key.to_owned(),
            other => {
                return Err(format!(
                    "found '{}', expected: !, identifier, or 'end of string'",
                    other.text()
                ));
            }
        };
        check("<nil>", &key, &names::qualified(&key))?;
        if absent {
            return Ok(Requirement {
                key,
                test: Test::Absent,
            });
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(Requirement {
                key,
                test: Test::Exists,
            });
        }
        let operator = self.next().text();
        let test = match operator {
            "=" | "==" => Test::In([self.value()?].into()),
            "!=" => Test::NotIn([self.value()?].into()),
            "in" => Test::In(self.values()?),
            "notin" => Test::NotIn(self.values()?),
            ">" => Test::Greater(self.integer()?),
            "<" => Test::Less(self.integer()?),
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        if let Test::In(values) | Test::NotIn(values) = &test {
            for (index, value) in values.iter().enumerate() {
                check(&format!("values[{index}][{key}]"), value, &names::label_value(value))?;
            }
        }
        Ok(Requirement { key, test })
    }

    /// One value; an empty one is allowed (`a=`).
    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::Word(word) => {
                self.next();
                Ok(word.to_owned())
            }
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Symbol(other) => Err(format!("found '{other}', expected: identifier")),
        }
    }

    fn integer(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        value.parse().map_err(|_| {
            format!("values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer")
        })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        if self.peek() != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", self.peek().text()));
        }
        self.next();
        let mut values = BTreeSet::new();
        loop {
            let word = match self.peek() {
                Token::Word(word) => {
                    self.next();
                    word
                }
                _ => "",
            };
            values.insert(word.to_owned());
            match self.next() {
                Token::Symbol(",") => {}
                Token::Symbol(")") => return Ok(values),
                Token::End if values.len() == 1 && values.contains("") => {
                    return Err("found '', expected: ',', ')' or identifier".into());
                }
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}

/// The first of what is wrong with a key or a value.
fn check(place: &str, text: &str, wrong: &[String]) -> Result<(), String> {
    match wrong.first() {
        Some(why) => Err(format!("{place}: Invalid value: {text:?}: {why}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labelled(labels: &Value) -> Value {
        json!({"metadata": {"labels": labels}})
    }

    #[test]
    fn label_selectors() {
        let object = labelled(&json!({"a": "1", "b": "x", "e": ""}));
        for (text, fits) in [
            ("", true),
            ("a=1", true),
            ("a==1,b=x", true),
            ("a=2", false),
            ("a!=2", true),
            ("none!=2", true),
            ("b in (x, y)", true),
            ("b notin (x,y)", false),
            ("none notin (x)", true),
            ("a", true),
            ("!a", false),
            ("!none", true),
            ("a>0", true),
            ("a<1", false),
            ("e=", true),
            ("in in (x)", false),
            ("skerry.io/owner=a", false),
        ] {
            let selector = LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selector.matches(&object), fits, "{text}");
        }
        for text in ["a=b=c", "a in x", "a in (x", "=", "a,,b", "a>x"] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn label_selector_objects() {
        let selector = LabelSelector::from_object(&json!({"matchLabels": {"a": "1"},
            "matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["x"]}]}));
        assert_eq!(selector.to_string(), "a=1,b notin (x)");
        assert!(selector.matches(&labelled(&json!({"a": "1"}))));
        assert!(!selector.matches(&labelled(&json!({"a": "1", "b": "x"}))));
    }
}
