//! Field selectors: parsed from a query, matched against an object's fields.

use serde_json::Value;

/// A field selector: paths that must equal, or must not equal, a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<(String, bool, String)>);

impl FieldSelector {
    /// Reads `metadata.name=a,status.phase!=Running`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for term in text.split(',').map(str::trim).filter(|term| !term.is_empty()) {
            let (path, equal, value) = if let Some((path, value)) = term.split_once("!=") {
                (path, false, value)
            } else if let Some((path, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (path, true, value)
            } else {
                return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
            };
            terms.push((path.trim().to_owned(), equal, value.to_owned()));
        }
        Ok(Self(terms))
    }

    /// True if nothing is required.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same with other names for the paths.
    pub fn renamed(self, name: impl Fn(&str) -> String) -> Self {
        Self(
            self.0
                .into_iter()
                .map(|(path, equal, value)| (name(&path), equal, value))
                .collect(),
        )
    }

    /// The paths that are named.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(path, ..)| path.as_str())
    }

    /// Whether an object fits.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(path, equal, wanted)| {
            let found = path.split('.').try_fold(object, |value, field| value.get(field));
            let found = match found {
                Some(Value::String(text)) => text.clone(),
                None | Some(Value::Null) => unset(path).to_owned(),
                Some(other) => other.to_string(),
            };
            (found == *wanted) == *equal
        })
    }
}

/// What a field that is not set reads as.
fn unset(path: &str) -> &'static str {
    match path {
        "spec.unschedulable" | "spec.hostNetwork" => "false",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn field_selectors() {
        let object = json!({"metadata": {"name": "p"}, "status": {"phase": "Running"}});
        for (text, fits) in [
            ("metadata.name=p", true),
            ("metadata.name==p,status.phase!=Failed", true),
            ("spec.nodeName=", true),
            ("spec.nodeName!=", false),
            ("spec.unschedulable=false", true),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(&object), fits, "{text}");
        }
        assert!(FieldSelector::parse("metadata.name").is_err());
    }
}
