//! How Go prints values, where messages of Kubernetes repeat them.

use std::fmt::Write;

use serde_json::Value;

/// A value as Go prints it where nothing else is asked for.
pub(crate) fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(printed).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let mut fields: Vec<_> = map
                .iter()
                .map(|(name, value)| format!("{name}:{}", printed(value)))
                .collect();
            fields.sort();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

/// A value as Go's source would have it.
pub(crate) fn source(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::String(text) => quoted(text),
        Value::Array(list) => {
            let items: Vec<_> = list.iter().map(source).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let field = |(name, value): (&String, &Value)| format!("{}:{}", quoted(name), source(value));
            let mut fields: Vec<_> = map.iter().map(field).collect();
            fields.sort();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// Text in quotes: characters that cannot be seen are written otherwise than in JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            letter if letter.is_ascii_control() => {
                // Writing to memory does not fail.
                let _ = write!(out, "\\x{:02x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_and_texts() {
        assert_eq!(
            printed(&json!({"b": [1, null], "a": {"c": "d"}})),
            "map[a:map[c:d] b:[1 <nil>]]"
        );
        assert_eq!(quoted("a\"\u{7}\u{1}é"), "\"a\\\"\\a\\x01é\"");
    }
}
