//! The hash that tells a Deployment's pod templates apart (label `pod-template-hash`).

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;

/// Vowels and letters that look alike are left out, so that no hash reads as a word. The list is Kubernetes'.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The hash of a template, made to differ from that of another template with the same hash by `collisions`.
///
/// FNV-1a in the alphabet and the length of Kubernetes'; the bytes that are hashed are our own, so the value differs.
pub(crate) fn of_template(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let mut text = String::new();
    if let Ok(value) = serde_json::to_value(template) {
        canonical(&value, &mut text);
    }
    if let Some(collisions) = collisions {
        // Writing to a String cannot fail.
        let _ = write!(text, "#{collisions}");
    }
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    safe(&hash.to_string())
}

/// `text` with every byte replaced by one of the alphabet.
pub(crate) fn safe(text: &str) -> String {
    text.bytes()
        .filter_map(|byte| ALPHABET.get(usize::from(byte) % ALPHABET.len()))
        .map(|&byte| char::from(byte))
        .collect()
}

/// JSON with sorted keys: equal templates hash alike whatever order they were written in.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            for (key, value) in fields {
                let _ = write!(out, "{key}:{{");
                canonical(value, out);
                out.push('}');
            }
        }
        Value::Array(items) => items.iter().for_each(|item| {
            out.push('[');
            canonical(item, out);
            out.push(']');
        }),
        leaf => {
            let _ = write!(out, "{leaf}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(json: Value) -> PodTemplateSpec {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn differs_by_template_and_by_collision_and_by_nothing_else() {
        let a =
            template(json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"containers": [{"name": "x"}]}}));
        let same =
            template(json!({"spec": {"containers": [{"name": "x"}]}, "metadata": {"labels": {"b": "2", "a": "1"}}}));
        let other = template(json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "x"}]}}));
        let hash = of_template(&a, None);
        assert!(
            (8..=10).contains(&hash.len()) && hash.bytes().all(|byte| ALPHABET.contains(&byte)),
            "{hash}"
        );
        assert_eq!(hash, of_template(&same, None));
        assert_ne!(hash, of_template(&other, None));
        assert_ne!(hash, of_template(&a, Some(1)));
    }
}
