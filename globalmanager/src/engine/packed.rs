//! Objects as they are kept: packed against another one of their kind. Objects of a kind are mostly alike, so that what is
//! kept of each is hardly more than what is its own.

use std::sync::Arc;

use lz4_flex::block;
use serde_json::Value;

/// How far back LZ4 looks: more of a pattern is of no use.
const REACH: usize = 64 * 1024;

/// The object against which those of its kind are packed: the first that was seen.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Arc<[u8]>);

/// An object.
#[derive(Debug)]
pub(crate) struct Packed(Box<[u8]>);

impl Pattern {
    /// A pattern like this object.
    pub(crate) fn like(object: &Value) -> Self {
        let bytes = bytes(object);
        let beyond = bytes.len().saturating_sub(REACH);
        Self(bytes.get(beyond..).unwrap_or_default().into())
    }

    /// Packs an object.
    pub(crate) fn pack(&self, object: &Value) -> Packed {
        Packed(block::compress_prepend_size_with_dict(&bytes(object), &self.0).into())
    }

    /// Unpacks what was packed with this very pattern.
    pub(crate) fn unpack(&self, Packed(packed): &Packed) -> Value {
        let bytes = block::decompress_size_prepended_with_dict(packed, &self.0).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

fn bytes(object: &Value) -> Vec<u8> {
    serde_json::to_vec(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn deployment(name: &str) -> Value {
        let env: Vec<_> = (0..20)
            .map(|number| json!({"name": format!("VARIABLE_{number}"), "value": number}))
            .collect();
        json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")}, "spec": {"template": {"env": env}}})
    }

    #[test]
    fn of_what_is_alike_little_is_kept() {
        let first = deployment("first");
        let pattern = Pattern::like(&first);
        let second = deployment("second");
        let packed = pattern.pack(&second);
        assert_eq!(pattern.unpack(&packed), second);
        assert!(packed.0.len() * 8 < bytes(&second).len(), "{} bytes", packed.0.len());
    }

    proptest! {
        #[test]
        fn whatever_is_packed_is_unpacked_as_it_was(pattern in "\\PC{0,80}", texts in prop::collection::vec("\\PC{0,80}", 0..9)) {
            let pattern = Pattern::like(&json!(pattern));
            let object = json!(texts);
            prop_assert_eq!(pattern.unpack(&pattern.pack(&object)), object);
        }
    }
}
