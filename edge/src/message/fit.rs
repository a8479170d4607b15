//! What may be placed on a node: whatever is taken here is taken by the node, too.
//!
//! Decided where an item is placed. A node ends the session over which it is sent what it cannot take, and would be sent the
//! same with the next, for ever; nothing that comes after it would arrive.

use std::io;

use super::decode::{MessageError, check_uid, depth};
use crate::{
    limits,
    object::{Credential, Item, Object},
};

/// Levels of nesting around an object's body in its frame.
const ENVELOPE: usize = 3;

impl Item {
    /// Whether a node takes the frame that brings this.
    pub fn check(&self) -> Result<(), MessageError> {
        self.key().check()?;
        check_uid(self.uid())?;
        match self {
            Self::Object(object) => object.check_body(),
            Self::Credential(credential) => within(limits::MAX_BODY, credential.encoded()?),
        }
    }
}

impl Object {
    fn check_body(&self) -> Result<(), MessageError> {
        let body = self.body.json();
        within(limits::MAX_BODY, body.len())?;
        if depth(body.as_bytes()) + ENVELOPE > limits::MAX_DEPTH {
            return Err(MessageError::TooDeep);
        }
        Ok(())
    }
}

impl Credential {
    /// Bytes of its fields in a frame: one that is not text may have six for each of its own.
    fn encoded(&self) -> Result<usize, serde_json::Error> {
        let mut count = Count(0);
        serde_json::to_writer(&mut count, &self.fields)?;
        Ok(count.0)
    }
}

fn within(limit: usize, bytes: usize) -> Result<(), MessageError> {
    if bytes > limit {
        return Err(MessageError::TooLong { bytes, limit });
    }
    Ok(())
}

/// Counts what is written, and keeps nothing of it.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{Downstream, ObjectKey, message::Received};

    fn object(body: &str) -> Item {
        Item::Object(Object {
            key: ObjectKey::new("k".repeat(63), "n".repeat(253), "o".repeat(253)),
            uid: "\u{1}".repeat(limits::MAX_NAME),
            generation: i64::MIN,
            body: serde_json::from_str(body).unwrap(),
        })
    }

    fn credential(fields: BTreeMap<String, String>) -> Item {
        Item::Credential(Credential {
            owner: ObjectKey::new("k".repeat(63), "n".repeat(253), "o".repeat(253)),
            uid: "\u{1}".repeat(limits::MAX_NAME),
            secret: "s".repeat(253),
            fields,
        })
    }

    /// Whether the node takes the frame that brings it.
    fn arrives(item: &Item) -> bool {
        let version = u64::MAX;
        let frame = match item.clone() {
            Item::Object(object) => Downstream::Put { version, object },
            Item::Credential(credential) => Downstream::PutCredential { version, credential },
        };
        let read = Downstream::decode(&frame.encode().unwrap());
        read.is_ok_and(|read| read == Received::Message(frame))
    }

    /// A text of so many bytes at most that take more of them in JSON, or not.
    fn text(bytes: usize) -> impl Strategy<Value = String> {
        (
            prop::sample::select(vec!["a", "\"", "\n", "\u{1}", "\u{7f}", "é"]),
            0..=bytes,
        )
            .prop_map(|(text, bytes)| text.repeat(bytes / text.len()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn whatever_may_be_placed_arrives(
            fields in prop::collection::btree_map(text(64), text(1 << 20), 0..4),
            said in text(2 << 20),
            levels in 0..80_usize,
        ) {
            let said = serde_json::to_string(&said).unwrap();
            let nested = format!("{}{said}{}", "[".repeat(levels), "]".repeat(levels));
            for item in [credential(fields), object(&nested)] {
                prop_assert!(item.check().is_err() || arrives(&item));
            }
        }
    }

    #[test]
    fn what_is_of_the_largest_size_may_be_placed_and_nothing_above_it() {
        let of = |bytes: usize| object(&serde_json::to_string(&"x".repeat(bytes - 2)).unwrap());
        assert!(of(limits::MAX_BODY).check().is_ok());
        assert!(of(limits::MAX_BODY + 1).check().is_err());

        let fields = |value: String| credential([("a".to_owned(), value)].into());
        let room = limits::MAX_BODY - r#"{"a":""}"#.len();
        assert!(fields("x".repeat(room)).check().is_ok());
        assert!(fields("x".repeat(room + 1)).check().is_err());
        assert!(fields("\u{1}".repeat(room / 6)).check().is_ok());
        assert!(fields("\u{1}".repeat(room / 6 + 1)).check().is_err());

        let deep = |levels: usize| object(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
        let most = limits::MAX_DEPTH - ENVELOPE;
        assert!(deep(most).check().is_ok() && arrives(&deep(most)));
        assert!(deep(most + 1).check().is_err() && !arrives(&deep(most + 1)));
    }
}
