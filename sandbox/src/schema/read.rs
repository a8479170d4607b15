//! Reads JSON and notes the fields that are there twice, of which the last one counts.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::path::Path;

/// A document and the paths of its duplicate fields, in the order of the document.
pub fn read_json(text: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let node = Node {
        path: &Path::Root,
        duplicates: &mut duplicates,
    };
    let value = node.deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, duplicates))
}

struct Node<'a> {
    path: &'a Path<'a>,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number is finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        loop {
            let path = self.path.index(values.len());
            let node = Node {
                path: &path,
                duplicates: self.duplicates,
            };
            match list.next_element_seed(node)? {
                Some(value) => values.push(value),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = self.path.field(&name);
            let value = fields.next_value_seed(Node {
                path: &path,
                duplicates: self.duplicates,
            })?;
            if map.contains_key(&name) {
                self.duplicates.push(path.to_string());
            }
            map.insert(name.clone(), value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_that_is_there_twice_is_told_and_its_last_value_counts() {
        let text = br#"{"a": 1, "b": [{"c": 1, "d": null}, {"c": 1, "c": 2.5}], "a": "x", "e": {"f": {"g": true, "g": false}}}"#;
        let (value, duplicates) = read_json(text).unwrap();
        assert_eq!(duplicates, ["b[1].c", "a", "e.f.g"]);
        assert_eq!(
            value,
            json!({"a": "x", "b": [{"c": 1, "d": null}, {"c": 2.5}], "e": {"f": {"g": false}}})
        );
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in ["", "{", "{} {}", "{a: 1}"] {
            assert!(read_json(text.as_bytes()).is_err(), "{text}");
        }
    }
}
