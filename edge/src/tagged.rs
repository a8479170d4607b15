//! Reads externally tagged enums (`{"variant": {…}}`) of a newer peer: a variant that is not known is told apart from
//! one that is malformed.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor},
};

/// An enum in the form `{"variant": {…}}`.
pub(crate) trait Tagged: DeserializeOwned {
    /// The variants' names on the wire.
    const NAMES: &'static [&'static str];
}

/// What was read.
pub(crate) enum Known<T> {
    /// A variant that we know.
    Yes(T),
    /// A variant of this name that we do not.
    No(String),
}

/// Reads a `T` from its JSON.
pub(crate) fn read<T: Tagged>(json: &str) -> Result<Known<T>, serde_json::Error> {
    match serde_json::from_str(json) {
        Ok(value) => Ok(Known::Yes(value)),
        Err(error) => match serde_json::from_str(json) {
            Ok(Tag(name)) if !T::NAMES.contains(&name.as_str()) => Ok(Known::No(name)),
            _ => Err(error),
        },
    }
}

/// The only key of a map, whatever its value.
struct Tag(String);

impl<'de> Deserialize<'de> for Tag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneKey;

        impl<'de> Visitor<'de> for OneKey {
            type Value = Tag;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of one key")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tag, A::Error> {
                match (map.next_entry::<String, IgnoredAny>()?, map.next_key::<IgnoredAny>()?) {
                    (Some((name, _)), None) => Ok(Tag(name)),
                    _ => Err(Error::custom("not a map of one key")),
                }
            }
        }

        deserializer.deserialize_map(OneKey)
    }
}
