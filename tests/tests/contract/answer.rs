//! What a server answered.

use serde_json::{Value, json};

/// An answer, as far as it is compared.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub code: u16,
    /// The media type of the body.
    pub content_type: String,
    /// What the server warns of.
    pub warnings: Vec<String>,
    /// JSON where it is; events of a watch as a list; any other as text.
    pub body: Value,
}

impl Answer {
    /// The body of an answer, parsed.
    pub fn parse(content_type: &str, watched: bool, body: &[u8]) -> Value {
        let text = String::from_utf8_lossy(body);
        if content_type.contains("yaml") {
            return serde_saphyr::from_str(&text).unwrap_or_else(|_| Value::String(text.into_owned()));
        }
        if body.is_empty() || !content_type.contains("json") {
            return Value::String(text.into_owned());
        }
        if watched {
            let events = text.lines().map(serde_json::from_str);
            if let Ok(events) = events.collect::<Result<Vec<Value>, _>>() {
                return Value::Array(events);
            }
        }
        serde_json::from_slice(body).unwrap_or_else(|_| Value::String(text.into_owned()))
    }

    /// The answer as one tree, whose paths name what differs.
    pub fn tree(&self) -> Value {
        json!({"code": self.code, "type": self.content_type, "warnings": self.warnings, "body": self.body})
    }
}
