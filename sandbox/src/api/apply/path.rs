//! Steps of a path into an object, as `FieldsV1` spells them.

use std::fmt;

use serde_json::{Map, Value};

/// One step. Values are kept as JSON text, so that steps have an order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::api) enum Step {
    /// A field of a struct or an entry of a map.
    Field(String),
    /// An element of a list whose elements are told apart by fields: those fields, sorted by name, as a JSON object.
    Key(String),
    /// An element of a set: the element itself.
    Value(String),
    /// An element by its place. Read for the sake of completeness, never written.
    Index(u64),
}

impl Step {
    pub(in crate::api) fn field(name: impl Into<String>) -> Self {
        Self::Field(name.into())
    }

    /// The key of a list's element, from its key fields.
    pub(in crate::api) fn key(mut fields: Vec<(String, Value)>) -> Self {
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(Value::Object(fields.into_iter().collect::<Map<_, _>>()).to_string())
    }

    /// The step in `FieldsV1`.
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(key) => format!("k:{key}"),
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    pub(super) fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::field(rest)),
            "k" => match serde_json::from_str(rest).ok()? {
                Value::Object(fields) => Some(Self::key(fields.into_iter().collect())),
                _ => None,
            },
            "v" => Some(Self::Value(serde_json::from_str::<Value>(rest).ok()?.to_string())),
            "i" => Some(Self::Index(rest.parse().ok()?)),
            _ => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(key) => {
                let fields: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
                let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path, printed as conflicts print it.
pub(super) fn shown(path: &[Step]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_round_trip_and_print() {
        let key = Step::key(vec![
            ("protocol".into(), json!("TCP")),
            ("containerPort".into(), json!(80)),
        ]);
        for (step, encoded, printed) in [
            (Step::field("spec"), "f:spec", ".spec"),
            (
                key,
                r#"k:{"containerPort":80,"protocol":"TCP"}"#,
                r#"[containerPort=80,protocol="TCP"]"#,
            ),
            (Step::Value("\"a\"".into()), r#"v:"a""#, r#"[="a"]"#),
            (Step::Index(3), "i:3", "[3]"),
            (Step::field("a:b"), "f:a:b", ".a:b"),
        ] {
            assert_eq!(step.encode(), encoded);
            assert_eq!(Step::decode(encoded), Some(step.clone()));
            assert_eq!(step.to_string(), printed);
        }
        assert_eq!(Step::decode("x:1"), None);
    }
}
