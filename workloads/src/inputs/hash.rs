//! Short words that derive from content: names that two managers choose alike, and the mark by which a changed input is
//! seen.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Letters and digits that spell no words and are not taken for each other.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Five characters for a name, from what tells two names apart.
pub(crate) fn short(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        // The length keeps ("a", "bc") and ("ab", "c") apart.
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let digest = hasher.finalize();
    let letter = |byte: &u8| ALPHABET.get(usize::from(*byte) % ALPHABET.len());
    digest
        .iter()
        .take(5)
        .filter_map(letter)
        .map(|byte| char::from(*byte))
        .collect()
}

/// Sixteen hexadecimal digits that differ where the content does. The order of an object's fields does not count, nor
/// does a field without a value: the API server keeps neither.
pub(crate) fn of(content: &Value) -> String {
    let mut canonical = String::new();
    write_canonical(content, &mut canonical);
    let digest = Sha256::digest(canonical.as_bytes());
    digest
        .iter()
        .take(8)
        .fold(String::new(), |hash, byte| hash + &format!("{byte:02x}"))
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().filter(|(_, value)| !value.is_null()).collect();
            fields.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (key, value) in fields {
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(elements) => {
            out.push('[');
            for element in elements {
                write_canonical(element, out);
                out.push(',');
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_short_hash_is_fit_for_a_name_and_tells_parts_apart() {
        let hash = short(&["uid", "edge"]);
        assert_eq!(hash.len(), 5);
        assert!(hash.bytes().all(|byte| ALPHABET.contains(&byte)));
        assert_eq!(hash, short(&["uid", "edge"]));
        assert_ne!(short(&["a", "bc"]), short(&["ab", "c"]));
    }

    #[test]
    fn the_order_of_fields_and_absent_values_do_not_count() {
        assert_eq!(
            of(&json!({"a": 1, "b": null, "c": {"x": [1, 2]}})),
            of(&json!({"c": {"x": [1, 2]}, "a": 1}))
        );
    }

    #[test]
    fn everything_else_counts() {
        let base = json!({"a": [1, 2], "b": "1"});
        for other in [
            json!({"a": [2, 1], "b": "1"}),
            json!({"a": [1, 2], "b": 1}),
            json!({"a": [1, 2]}),
            json!({"a": [1, 2], "b": "1", "c": []}),
        ] {
            assert_ne!(of(&base), of(&other), "{other}");
        }
    }

    #[test]
    fn the_hash_is_the_same_in_every_version_of_the_manager() {
        assert_eq!(
            of(&json!({"template": {"spec": {}}, "model": "/m"})),
            "6ea8b31d6457eea3"
        );
        assert_eq!(short(&["uid", "edge"]), "dt6z5");
    }
}
