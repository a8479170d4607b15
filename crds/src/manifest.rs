//! How a definition is written down: YAML that is short enough for any tool and whose changes read well in a review.
//!
//! What people wrote descriptions for is in block style. The embedded Kubernetes types, which have none, would be ten
//! thousand lines of indentation; they are in flow style, one line for each of their parts.

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_saphyr::{FlowMap, FlowSeq, SerializerOptions};

/// As long as an object in flow style may be, in bytes of JSON.
const OBJECT: usize = 1500;
/// As long as a list in flow style may be: longer ones have one line for each entry.
const LIST: usize = 120;

/// One YAML document.
pub(crate) fn document(value: &impl Serialize) -> Result<String, serde_saphyr::ser::Error> {
    let value = serde_json::to_value(value).map_err(<serde_saphyr::ser::Error as serde::ser::Error>::custom)?;
    let mut options = SerializerOptions::default();
    options.prefer_block_scalars = false;
    let mut text = String::new();
    serde_saphyr::to_fmt_writer_with_options(&mut text, &Styled(&value), options)?;
    Ok(text)
}

/// A value that knows its style.
struct Styled<'a>(&'a Value);

impl Styled<'_> {
    fn in_flow(&self) -> bool {
        let text = self.0.to_string();
        let most = if self.0.is_array() { LIST } else { OBJECT };
        text.len() <= most && !text.contains(r#""description":"#)
    }
}

impl Serialize for Styled<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(map) if self.in_flow() => FlowMap(map).serialize(serializer),
            Value::Array(list) if self.in_flow() => FlowSeq(list).serialize(serializer),
            Value::Object(map) => serializer.collect_map(map.iter().map(|(key, value)| (key, Styled(value)))),
            Value::Array(list) => serializer.collect_seq(list.iter().map(Styled)),
            scalar => scalar.serialize(serializer),
        }
    }
}
